"""Probes: some training inputs, and what the model said about them.

A bundle does not hold its model, and the user may load it with another one. Weights and versions
cannot identify a model: one changed number outside the weights may change every answer. So iknow
keeps some inputs with their scores and activations, which the same model repeats.

Batch sizes, threads, processors and libraries change the order of sums. So an activation may differ
by 1/10,000 of the layer's spread (the root mean square distance from their mean), or by ten times
the difference that other batches of the same inputs made at `fit`, whichever is larger, plus a few
units in the last place. A smaller change, or one on inputs unlike the probes, goes unnoticed.

Inputs are stored as plain arrays and values, without pickle or loss. Texts and other plain objects
are kept as JSON, one after another in one array of bytes: texts of any length take no more room
than they need, and nothing can run when they are read. Data frames are kept column by column, and
compared with what will be read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix, sparray

from iknow.core.arrays import Floats, Ints
from iknow.errors import BundleError
from iknow.models.function import PrecomputedModel
from iknow.models.inputs import Fields, as_fields, choose_rows, count_samples, is_sparse, take_rows
from iknow.models.model import Model, Observation, as_belief, observe_inputs

MOST_ROWS = 32
MOST_BYTES = 1 << 20  # of all inputs, scores and activations
SHARE_OF_SPREAD = 1e-4
TIMES_NOISE = 10.0
UNITS_IN_LAST_PLACE = 16 * float(np.finfo(np.float32).eps)
SCORES = "the scores"

KINDS = "biufUmM"  # of arrays that need no pickle: numbers, bools, text and times
WITH_GAPS = re.compile(r"object|str|string(\[\w{1,20}\])?|boolean|U?Int(8|16|32|64)|Float(32|64)")
"""Names of dtypes whose columns we store as values and a mask of the missing ones."""

Stored = tuple[dict[str, Any], dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Probe:
    """Inputs of n samples and what a model said about them.

    The `inputs` are as the model takes them, and `observed` is what it said. The `tolerances` say
    for each layer, and for the scores, how far two answers may differ; `rows`, of shape (n,), are
    the numbers of the training samples that the inputs are.
    """

    inputs: Any
    observed: Observation
    tolerances: Mapping[str, float]
    rows: Ints

    def find_difference(self, model: Model, batch_size: int | None = None) -> str | None:
        """Say how `model`, in batches of `batch_size`, answers differently; None for alike."""
        try:
            found = observe_inputs(model, self.inputs, tuple(self.observed.activations), batch_size)
        except Exception as error:  # a model may raise anything on the inputs of another
            return f"it fails on inputs that the original model accepted ({error})"
        worst, words = 1.0, None
        for name, before in tables_of(self.observed).items():
            after = tables_of(found)[name]
            if after.shape != before.shape:
                return f"{name} have shape {after.shape} instead of {before.shape}"
            lengths = row_distances(before, after)
            row, allowed = int(lengths.argmax()), self.tolerances[name]
            if lengths[row] > worst * allowed:
                worst = lengths[row] / allowed if allowed else np.inf
                words = (
                    f"{name} differ by {lengths[row]:.3g} on input {row} of the "
                    f"{len(before)} kept, where {allowed:.3g} is allowed"
                )
        scores, belief, other = self.observed.scores, self.observed.belief, found.belief
        changed = np.flatnonzero(belief != other)
        lead = np.abs(scores[changed, belief[changed]] - scores[changed, other[changed]])
        untied = changed[lead > 2 * self.tolerances[SCORES]]
        if words is None and len(untied):
            return f"it believes another class on input {untied[0]} of the {len(scores)} kept"
        return words

    def without(self, rows: Ints) -> Probe | str:
        """Return the probe without the training samples numbered `rows`, or why none is left."""
        kept = np.flatnonzero(~np.isin(self.rows, rows))
        if not len(kept):
            return "the samples that it was known by were removed"
        inputs = self.inputs if len(kept) == len(self.rows) else take_rows(self.inputs, kept)
        return Probe(inputs, self.observed[kept], self.tolerances, self.rows[kept])

    def store(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return plain values and arrays, no pickle; ValueError if the inputs forbid it."""
        record, arrays = store_inputs(self.inputs)
        layers = {f"layer{i}": v for i, v in enumerate(self.observed.activations.values())}
        said = {"scores": self.observed.scores, "belief": self.observed.belief, "rows": self.rows}
        tolerances = [self.tolerances[name] for name in tables_of(self.observed)]
        return {"inputs": record, "tolerances": tolerances}, arrays | said | layers


def restore_probe(
    record: Mapping[str, Any], arrays: Mapping[str, Any], layers: Sequence[str]
) -> Probe:
    """The probe that `Probe.store` wrote for these layers."""
    try:
        activations = {layer: arrays[f"layer{i}"] for i, layer in enumerate(layers)}
        scores, belief = np.asarray(arrays["scores"], dtype=np.float64), arrays["belief"]
        inputs, rows = restore_inputs(record["inputs"], arrays), np.array(arrays["rows"])
        n, _ = scores.shape
        observed = Observation(scores, belief, activations, np.zeros(n, dtype=bool))
        tables, lengths = tables_of(observed), [float(length) for length in record["tolerances"]]
        as_belief(belief, scores)
        fit = all(v.ndim == 2 and len(v) == n and v.dtype.kind == "f" for v in tables.values())
        fit &= rows.dtype.kind in "iu" and rows.shape == (n,) and count_samples(inputs) == n
        if not fit or (belief < 0).any() or not all(0 <= length < np.inf for length in lengths):
            raise ValueError(
                f"it must hold {n} inputs with the numbers of their rows and class codes as "
                "beliefs, scores and activations as tables of floats, and tolerances >= 0"
            )
        return Probe(inputs, observed, dict(zip(tables, lengths, strict=True)), rows)
    except ImportError:
        raise
    except Exception as error:  # a foreign file can be wrong in any way
        raise BundleError(f"the record of its model cannot be read: {error!r}") from error


def make_probe(
    model: Model,
    inputs: Any,
    codes: Ints,
    layers: Sequence[str],
    rows: Ints,
    batch_size: int | None = None,
) -> Probe | str:
    """A probe of a model by some training inputs, of all classes if possible, or why there is none.

    codes: the classes of the inputs, of shape (n,). rows: the numbers of the training samples that
    they are, of shape (n,).
    """
    if isinstance(model, PrecomputedModel):
        return "it was made from precomputed outputs, without the model"
    places = choose_rows(codes, MOST_ROWS)
    chosen = keep_rows(inputs, places)
    if chosen is None:
        return f"inputs of type {type(inputs).__name__} cannot be kept in a bundle"
    n = count_samples(chosen)
    try:
        whole = observe_inputs(model, chosen, layers, batch_size)
        cut = [take_rows(chosen, part) for part in (slice(1), slice(1, None))[:n]]
        parts = [observe_inputs(model, part, layers, batch_size) for part in cut]
    except Exception as error:  # it may require a fixed batch size
        return f"the model cannot run on a few inputs at a time ({error})"
    tolerances = {}
    for name, values in tables_of(whole).items():
        again = np.concatenate([tables_of(part)[name] for part in parts])
        noise = TIMES_NOISE * float(row_distances(values, again).max())
        if np.isinf(tolerance := find_tolerance(values, noise)):
            return "the model gives different answers each time for the same inputs"
        tolerances[name] = tolerance
    probe = Probe(chosen, whole, tolerances, rows[places])
    try:
        n_bytes = sum(np.asarray(array).nbytes for array in probe.store()[1].values())
    except Exception as error:  # no data frame may make `fit` fail
        return str(error)
    most = n * MOST_BYTES // n_bytes
    if not most:
        return f"one input with its scores and activations takes more than {MOST_BYTES:,} bytes"
    return probe.without(probe.rows[most:])


def tables_of(observed: Observation) -> dict[str, Any]:
    """The scores and the activations, by their names in errors."""
    layers = {f"the activations of layer {k!r}": v for k, v in observed.activations.items()}
    return {SCORES: observed.scores, **layers}


def row_distances(one: Floats, other: Floats) -> Floats:
    """The distance between the rows of two tables of shape (n, m); equal infinities count as 0."""
    with np.errstate(invalid="ignore"):
        difference = np.subtract(one, other, dtype=np.float64)
    difference[(one == other) | (np.isnan(one) & np.isnan(other))] = 0.0
    difference[np.isnan(difference)] = np.inf
    lengths: Floats = np.linalg.norm(difference, axis=1)
    return lengths


def find_tolerance(values: Floats, noise: float = 0.0) -> float:
    """How far rows of scores or activations may be from those of the same samples.

    values: of shape (n, m). noise: a difference that the same model makes; inf if it is too large.
    """
    finite = np.where(np.isfinite(values), values, 0.0).astype(np.float64)  # log(0) is a score too
    spread = float(np.sqrt(((finite - finite.mean(axis=0)) ** 2).sum(axis=1).mean()))
    rounding = UNITS_IN_LAST_PLACE * float(np.linalg.norm(finite, axis=1).max())
    is_random = noise > max(spread, rounding)
    return np.inf if is_random else max(SHARE_OF_SPREAD * spread, noise) + rounding


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
    if hasattr(inputs, "iloc"):
        return _store_frame(inputs)
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
    if kind in ("frame", "series"):
        frame = _restore_frame(record, arrays)
        return frame if kind == "frame" else frame.iloc[:, 0].rename(record["name"])
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
    """A data frame, or a Series as a frame of one column."""
    import pandas as pd

    is_series = given.ndim == 1
    frame = (given.to_frame("series") if is_series else given).reset_index(drop=True)
    names, arrays = frame.columns.tolist(), dict[str, Any]()
    for name in [*names, given.name if is_series and given.name is not None else ""]:
        if not isinstance(name, str | int) or isinstance(name, bool):
            raise ValueError("a table can be kept only if its columns' names are text or integers")
    stored = [_store_column(frame.iloc[:, i], f"column{i}", arrays) for i in range(len(names))]
    columns = [{"name": name, **column} for name, column in zip(names, stored, strict=True)]
    record = {"kind": "frame", "columns": columns, "n_rows": len(frame)}
    if is_series:
        record |= {"kind": "series", "name": given.name}
    try:
        again = _restore_frame(record, arrays)
        pd.testing.assert_frame_equal(frame, again, check_exact=True, check_column_type=True)
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
