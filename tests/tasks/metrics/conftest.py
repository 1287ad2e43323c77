"""Lets tests import the reference for tags."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # for strict_tags
