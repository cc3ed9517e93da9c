"""Files of lightgbm: boosters as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm


def load(path: Path) -> Any:
    """The booster in a file."""
    return lightgbm.Booster(model_file=str(path))
