"""Files of torch: whole modules, TorchScript, and programs of torch.export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iknow.models.torch import load_module


def load(path: Path) -> Any:
    """The module or program in a file, which can run code."""
    return load_module(path)
