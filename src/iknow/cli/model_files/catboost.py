"""Files of catboost, which keep the labels of a classifier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import catboost


def load(path: Path) -> Any:
    """The classifier in a .cbm file."""
    return catboost.CatBoostClassifier().load_model(str(path))
