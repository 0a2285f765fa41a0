"""Makes `verl/local_training.py` importable, which is no test."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "verl"))
