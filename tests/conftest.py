"""Puts this folder on the path: `scripted` is imported by tests and, as they inherit the path, by actor processes."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny networks: more threads of torch only get in each other's way

HERE = str(Path(__file__).parent / "support")
if HERE not in sys.path:
    sys.path.insert(0, HERE)
