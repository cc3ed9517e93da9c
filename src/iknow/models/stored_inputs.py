"""Inputs of a model as plain arrays and values, and back, without pickle or loss.

Texts and other plain objects are kept as JSON, one after another in one array of bytes: texts of
any length take no more room than they need, and nothing can run when they are read. Data frames are
kept column by column, and compared with what will be read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix, sparray

from iknow.core.arrays import Ints
from iknow.models.inputs import Fields, as_fields, take_rows
from iknow.models.numbers import is_sparse

KINDS = "biufUmM"  # arrays that need no pickle: numbers, bools, text and times
WITH_GAPS = re.compile(r"object|str|string(\[\w{1,20}\])?|boolean|U?Int(8|16|32|64)|Float(32|64)")
"""Names of dtypes whose columns we store as values and a mask of the missing ones."""

Stored = tuple[dict[str, Any], dict[str, Any]]


def keep_rows(inputs: Any, rows: Ints) -> Any:
    """A copy of these samples; None for inputs of a kind that no bundle can keep."""
    parts = inputs.arrays.values() if isinstance(inputs, Fields) else [inputs]
    marks = ("iloc", "detach", "tocsr")  # of a data frame, a tensor and a sparse matrix
    known = (isinstance(x, np.ndarray | list) or any(hasattr(x, m) for m in marks) for x in parts)
    return take_rows(inputs, rows) if all(known) else None


def store_inputs(inputs: Any) -> Stored:
    """Plain values and arrays by name; ValueError if these inputs cannot be stored."""
    if isinstance(inputs, Fields):
        found = [store_inputs(values) for values in inputs.arrays.values()]
        if any(record != {"kind": "array"} for record, _ in found):
            raise ValueError("inputs by name that are not all arrays cannot be kept in a bundle")
        arrays = {f"inputs{i}": stored["inputs"] for i, (_, stored) in enumerate(found)}
        return {"kind": "fields", "names": list(inputs.arrays)}, arrays
    if hasattr(inputs, "iloc") and inputs.ndim == 2:
        return _store_frame(inputs)
    if hasattr(inputs, "iloc"):
        if inputs.name is not None and not _is_plain_name(inputs.name):
            raise ValueError("a Series can be kept only if its name is text or an integer")
        record, arrays = _store_frame(inputs.to_frame("series"))
        return {**record, "kind": "series", "name": inputs.name}, arrays
    if is_sparse(inputs):
        rows = inputs.tocsr()
        if rows.dtype.kind not in "biuf":
            raise ValueError(f"sparse inputs of dtype {rows.dtype} cannot be kept in a bundle")
        record = {"kind": "sparse", "shape": list(rows.shape), "array": isinstance(rows, sparray)}
        return record, {"inputs": rows.data, "columns": rows.indices, "starts": rows.indptr}
    if isinstance(inputs, list) or (np.ndim(inputs) == 1 and inputs.dtype == object):
        return _store_objects(inputs)
    if hasattr(inputs, "detach"):
        inputs = inputs.detach().cpu()
        # numpy has no bfloat16; single precision holds every number in half precision.
        is_half = inputs.is_floating_point() and inputs.element_size() < 4
        inputs = (inputs.float() if is_half else inputs).numpy()
    if type(inputs) is not np.ndarray or inputs.dtype.kind not in KINDS:
        raise ValueError(f"inputs of dtype {inputs.dtype} cannot be kept in a bundle")
    return {"kind": "array"}, {"inputs": inputs}


def restore_inputs(record: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
    """The inputs that `store_inputs` got; a tensor comes back as an array, as good to a model."""
    kind = record["kind"]
    if kind == "fields":
        names = map(str, record["names"])
        return as_fields({name: np.array(arrays[f"inputs{i}"]) for i, name in enumerate(names)})
    if kind == "frame":
        return _restore_frame(record, arrays)
    if kind == "series":
        return _restore_frame(record, arrays).iloc[:, 0].rename(record["name"])
    if kind == "sparse":
        parts = (np.array(arrays[part]) for part in ("inputs", "columns", "starts"))
        make = csr_array if record["array"] else csr_matrix
        found = make(tuple(parts), shape=tuple(record["shape"]))
        found.check_format(full_check=True)  # scipy's loops trust the positions
        return found
    if kind == "objects":
        whole, ends = bytes(np.asarray(arrays["inputs"], dtype=np.uint8)), arrays["ends"].tolist()
        listed = [json.loads(whole[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        return listed if record["listed"] else np.fromiter(listed, dtype=object)
    return np.array(arrays["inputs"])


def _store_objects(objects: Any) -> Stored:
    """A list, or an array of shape (n,), of texts, dicts and others that JSON can hold."""
    listed = list(objects)
    try:
        texts = [json.dumps(each) for each in listed]
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"these inputs cannot be kept in a bundle: {error}") from error
    if [json.loads(text) for text in texts] != listed:  # tuples, keys that are numbers, NaN
        kinds = sorted({type(each).__name__ for each in listed})
        raise ValueError(f"inputs of type {', '.join(kinds)} cannot be kept in a bundle")
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)  # of ASCII
    arrays = {"inputs": np.frombuffer("".join(texts).encode("ascii"), dtype=np.uint8), "ends": ends}
    return {"kind": "objects", "listed": isinstance(objects, list)}, arrays


def _store_frame(given: Any) -> Stored:
    import pandas as pd

    frame, arrays = given.reset_index(drop=True), dict[str, Any]()
    if not all(map(_is_plain_name, frame.columns)):
        raise ValueError("a data frame can be kept only if its column names are text or integers")
    columns = [
        {"name": name, **_store_column(frame.iloc[:, i], f"column{i}", arrays)}
        for i, name in enumerate(frame.columns)
    ]
    record = {"kind": "frame", "columns": columns, "n_rows": len(frame)}
    try:
        again = _restore_frame(record, arrays)
        pd.testing.assert_frame_equal(
            frame, again, check_exact=True, check_column_type=True, check_categorical=True
        )
    except (AssertionError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"this data frame cannot be kept in a bundle: {reason}") from error
    return record, arrays


def _restore_frame(record: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
    """The frame that `_store_frame` was given, with rows numbered from 0."""
    import pandas as pd

    columns = [_restore_column(column, arrays) for column in record["columns"]]
    index = pd.RangeIndex(int(record["n_rows"]))
    if any(len(column) != len(index) for column in columns):
        raise ValueError(f"a column has more or fewer than {len(index)} rows")
    frame = pd.DataFrame(dict(enumerate(columns)), index=index)
    frame.columns = pd.Index([column["name"] for column in record["columns"]])
    return frame


def _is_plain_name(name: Any) -> bool:
    return isinstance(name, str | int) and not isinstance(name, bool)


def _store_column(column: Any, name: str, arrays: dict[str, Any]) -> dict[str, Any]:
    import pandas as pd

    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        arrays[name] = column.cat.codes.to_numpy(dtype=np.int64)
        of = _store_column(pd.Series(dtype.categories), f"{name}-of", arrays)
        return {"array": name, "ordered": bool(dtype.ordered), "of": of}
    if isinstance(dtype, np.dtype) and dtype.kind in "biufmM":
        arrays[name] = column.to_numpy()
        return {"array": name}
    missing = column.isna().to_numpy()
    present = column[~missing].tolist()
    kinds = {type(value) for value in present}
    is_known = WITH_GAPS.fullmatch(str(dtype)) is not None
    if not is_known or len(kinds) > 1 or not kinds <= {str, bool, int, float}:
        raise ValueError(f"data frames with a column of {dtype} cannot be kept in a bundle")
    filled = np.zeros(len(column), dtype=np.array(present).dtype if present else np.bool_)
    filled[~missing] = present
    arrays[name], arrays[f"{name}-missing"] = filled, missing
    lacks_nan = any(value is None for value in column[missing])
    return {"array": name, "dtype": str(dtype), "none": lacks_nan}


def _restore_column(record: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
    import pandas as pd

    values = arrays[record["array"]]
    if "of" in record:
        categories = pd.Index(_restore_column(record["of"], arrays))
        return pd.Series(pd.Categorical.from_codes(values, categories, ordered=record["ordered"]))
    if "dtype" not in record:
        return pd.Series(np.array(values))
    if not WITH_GAPS.fullmatch(record["dtype"]):
        raise ValueError("a column has a dtype of no known name")
    nothing = None if record["none"] or record["dtype"] != "object" else np.nan
    missing = arrays[f"{record['array']}-missing"]
    pairs = zip(values.tolist(), missing.tolist(), strict=True)
    return pd.Series(
        [nothing if is_missing else value for value, is_missing in pairs], dtype=record["dtype"]
    )
