"""Lets tests import the cases of tasks."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # for task_cases
