"""Tests over real daemons: ``python3 -m unittest`` in clients/python."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
