"""Makes the programs under `.ci` importable, as `make bench` does."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / ".ci"))
