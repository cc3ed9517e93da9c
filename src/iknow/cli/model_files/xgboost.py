"""Files of xgboost: boosters as JSON or UBJSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import xgboost


def load(path: Path) -> Any:
    """The booster in a file."""
    return xgboost.Booster(model_file=str(path))
