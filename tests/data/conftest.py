"""Tests of data import the plain implementations beside them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # for plain_bert and chi_square
