"""Files of Keras 3. Its safe mode refuses layers that would run code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras


def load(path: Path) -> Any:
    """The model in a .keras file, without what it needs for training."""
    return keras.models.load_model(path, compile=False, safe_mode=True)
