"""Tables with columns of text as data frames, which pipelines and boosted trees take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd


def make_frame(columns: Mapping[str, Any]) -> Any:
    """A frame of columns of length n: arrays of numbers, and Arrow's columns of text or categories.

    A missing text is NaN, as where pandas itself reads a file.
    """
    found = {
        name: column if isinstance(column, np.ndarray) else column.to_pandas()
        for name, column in columns.items()
    }
    return pd.DataFrame(found, copy=False)


def join_frames(parts: Sequence[Any]) -> Any:
    """Successive frames as one, with rows numbered from 0; their categories become one list."""
    joined = pd.concat(parts, ignore_index=True)
    for name in parts[0].columns:
        if isinstance(parts[0][name].dtype, pd.CategoricalDtype):
            joined[name] = pd.api.types.union_categoricals([part[name] for part in parts])
    return joined


def as_categories(frame: Any) -> Any:
    """The same frame with text as categories, as boosted trees take it."""
    text = [name for name in frame.columns if pd.api.types.is_string_dtype(frame[name].dtype)]
    return frame.astype(dict.fromkeys(text, "category"))
