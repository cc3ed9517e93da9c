"""The batches of a torch dataset, which gives its samples one by one."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader


def load_batches(dataset: Any, batch_size: int) -> Any:
    """A loader of a dataset's samples, in its own order."""
    return DataLoader(dataset, batch_size=batch_size)
