"""Bodies: what a request holds, within limits, as rows in the form that the classifier takes.

    an array (n, ...)             numbers, one row each
    an array (n,) of objects      texts, for models that read them
    columns by name, each (n,)    for models that take several inputs, or a table with text

Requests whose rows have the same form are joined, and taken apart again. Nothing in a body can
execute code, and none takes more memory than the budget has: a JSON text is charged for what it
unpacks to before it is parsed, and no text is put into an array of its width, where the longest
would set the width of all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.text import names, shown
from iknow.npy import decode_array
from iknow.serve.schema import JSON, NPY, AssessRequest, Refusal

T = TypeVar("T")
Columns = Mapping[str, NDArray[Any]]
WIDEST = 120
"""What a byte of JSON unpacks to at most, such as in a list of empty objects."""
DEEPEST = 32
"""Axes of an array in JSON, at most."""
NUMBERS = {int, float, bool, type(None)}


class ByteBudget:
    """Bytes that all requests under way hold together; it belongs to the event loop's thread.

    Each body is bounded by itself. A thousand of them at the same time would still fill the memory.
    """

    def __init__(self, most: int) -> None:
        self._most, self.held = most, 0

    def take(self, n_bytes: int) -> None:
        """Hold bytes. Raises a `Refusal`: 429 if too many are held already, 413 if there can never
        be as many.
        """
        if n_bytes > self._most:
            problem = f"the body would take {n_bytes:,} bytes of memory, and {self._most:,} may be"
            raise Refusal(413, f"{problem} held: send fewer rows in several requests")
        if self.held + n_bytes > self._most:
            problem = f"requests under way hold {self.held:,} bytes already, and {self._most:,} may"
            raise Refusal(429, f"{problem} be held: try again later", 1)
        self.held += n_bytes

    def check_json(self, text: bytes) -> None:
        """Refuse a JSON text, as `take` does, that unpacks to more than may be held."""
        if WIDEST * len(text) > self._most - self.held:  # else there is no need to look
            n_bytes = unpacked_size(text)
            self.take(n_bytes)  # while it is parsed, and nobody else's is
            self.give(n_bytes)

    def give(self, n_bytes: int) -> None:
        """Return bytes, once they are not held any longer."""
        self.held -= n_bytes


def unpacked_size(text: bytes) -> int:
    """Bytes that a JSON text takes as Python's objects and then as arrays, at most.

    Examples:
        >>> unpacked_size(b"[[],[],[]]") > 10 * len(b"[[],[],[]]")
        True
    """
    codes = np.frombuffer(text, np.uint8)
    commas, lists, objects, quotes = (int(np.count_nonzero(codes == ord(each))) for each in ',[{"')
    width = 1 if text.isascii() and b"\\u" not in text else 4  # one wide character widens its text
    texts = 32 * quotes + (width * len(text) if quotes else 0)
    return 56 * (commas + lists + objects + 1) + 96 * lists + 240 * objects + texts


def read_json(body: bytes, kind: type[T], budget: ByteBudget) -> T:
    """What a JSON text holds, as a struct of the schema; NaN and Infinity are numbers. Raises a
    `Refusal`: 400 if it is no JSON, 422 if it holds something else, 413 or 429 if it takes more
    memory than there is for it.
    """
    budget.check_json(body)
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError):  # it may hold numbers that Python alone writes and reads
        pass
    try:
        value = json.loads(body.decode())
        msgspec.json.encode(value)  # refuses halves of surrogate pairs
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the body is no JSON: {error}") from error
    return as_struct(value, kind)


def as_struct(value: Any, kind: type[T], *, strict: bool = True) -> T:
    """Plain values as a struct of the schema. strict: whether texts are no numbers and no flags.
    Raises a `Refusal`: 422 if they hold something else.
    """
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        what, _, where = str(error).replace("`", "").partition(" - at $.")
        fields = names(kind.__struct_fields__)  # type: ignore[attr-defined]
        hint = (
            "/openapi.json describes it" if where else f"expected an object with some of {fields}"
        )
        raise Refusal(422, f"{where or 'the body'}: {what[0].lower()}{what[1:]}; {hint}") from error


@dataclass(frozen=True, eq=False)
class Rows:
    """n samples. values: an array, of objects if these are texts, or such arrays by name."""

    values: NDArray[Any] | Columns

    @property
    def arrays(self) -> Mapping[str | None, NDArray[Any]]:
        """The arrays by name; the only one by None if it has no name."""
        return self.values if isinstance(self.values, Mapping) else {None: self.values}  # type: ignore[return-value]

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    @property
    def form(self) -> tuple[Any, ...]:
        """What rows must have in common to be joined."""
        return tuple((name, each.dtype.str, each.shape[1:]) for name, each in self.arrays.items())

    @property
    def n_bytes(self) -> int:
        """How much memory they take; of texts, what is not in the body."""
        return sum(64 * x.size if x.dtype == object else x.nbytes for x in self.arrays.values())


def join_rows(parts: Sequence[Rows]) -> Rows:
    """Rows of the same form, one after another."""
    if len(parts) == 1:
        return parts[0]
    joined: Any = {
        name: np.concatenate([part.arrays[name] for part in parts]) for name in parts[0].arrays
    }
    return Rows(joined.get(None, joined))


def decode(body: bytes, content_type: str, most_rows: int, budget: ByteBudget) -> Rows:
    """The rows of a body. Raises a `Refusal`: 400, 413, 415, 422 or 429, with what is wrong."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in (JSON, NPY):
        raise Refusal(
            415, f"the content type must be one of {names((JSON, NPY))}; got {shown(kind, 80)}"
        )
    if not body:
        raise Refusal(400, "the body is empty: send rows")
    if kind == NPY:
        return _from_npy(body, most_rows)
    given = read_json(body, AssessRequest, budget)
    if given.rows is not None and given.inputs is None:
        return as_rows(given.rows, most_rows, has_text=body.count(b'"') > 2)  # those of "rows"
    if not given.inputs or given.rows is not None:
        raise Refusal(422, 'expected an object {"rows": [...]} or {"inputs": {...}}, one of them')
    arrays = {name: as_rows(values, most_rows).values for name, values in given.inputs.items()}
    if any(isinstance(each, Mapping) for each in arrays.values()):
        raise Refusal(422, "each of the inputs must be a list of numbers, lists or texts")
    return by_name(arrays, most_rows)


def by_name(arrays: Mapping[str, Any], most_rows: int) -> Rows:
    """Arrays as inputs by name; all must have the same number of rows."""
    lengths = {name: len(each) for name, each in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise Refusal(422, f"all inputs must have the same number of rows; got {lengths}")
    check_count(next(iter(lengths.values())), most_rows)
    return Rows(arrays)


def check_count(n_rows: int, most: int) -> None:
    """Refuse no rows, and more than a request may have."""
    if not n_rows:
        raise Refusal(422, "there are no rows, the list is empty: send at least one")
    if n_rows > most:
        raise Refusal(
            413, f"a request may have {most:,} rows; got {n_rows:,}: send several requests"
        )


def as_rows(values: list[Any], most_rows: int, *, has_text: bool = True) -> Rows:
    """Rows from what JSON holds: a list of numbers or lists, of texts, or of objects.

    has_text: whether there may be text in them.
    """
    check_count(len(values), most_rows)
    kinds = set(map(type, values))
    if kinds == {str}:
        return Rows(as_texts(values))
    if kinds == {dict}:
        return as_columns(values)
    if kinds != {list}:
        strange = next(each for each in values if not isinstance(each, list))
        raise Refusal(
            422,
            "each row must be a list of numbers, or each a text, or each an object by feature; "
            f"got {shown(strange, 60)}",
        )
    return Rows(as_numbers(values, has_text=has_text))


def as_texts(values: list[Any]) -> NDArray[Any]:
    """Texts as objects, each of its own length."""
    return np.array(values, dtype=object)


def as_numbers(rows: list[Any], what: str = "rows", *, has_text: bool = True) -> NDArray[Any]:
    """Lists of numbers, nested to any depth, as an array; null is NaN, a missing number. Raises a
    `Refusal`: 422 if they hold anything else, or rows of several shapes.
    """
    if has_text and (strange := next(_strange(rows), None)) is not None:
        raise Refusal(422, f"{what} must hold numbers: {strange}")
    try:
        array = np.array(rows)
        if array.dtype.kind == "O":  # null, or whole numbers beyond 64 bits
            array = array.astype(np.float64)
    except OverflowError as error:
        raise Refusal(422, f"{what} must hold numbers: one is too large") from error
    except (TypeError, ValueError) as error:
        raise Refusal(422, _why_ragged(rows)) from error
    if array.size == 0:
        raise Refusal(422, f"{what} have no values: got an array of shape {array.shape}")
    return array


def _strange(values: list[Any], row: int | None = None, depth: int = 1) -> Iterator[str]:
    """What in nested lists is no number."""
    if set(map(type, values)) <= NUMBERS:
        return
    if depth > DEEPEST:
        yield f"row {row} is nested more than {DEEPEST} deep"
        return
    for i, each in enumerate(values):
        if isinstance(each, list):
            yield from _strange(each, i if row is None else row, depth + 1)
        elif type(each) not in NUMBERS:
            yield f"row {i if row is None else row} holds {shown(each, 60)}"


def _why_ragged(rows: list[Any]) -> str:
    sizes = [len(row) if isinstance(row, list) else 1 for row in rows]
    for i, size in enumerate(sizes):
        if size != sizes[0]:
            return f"row {i} has {size} values, and the first has {sizes[0]}: send equally many"
    return "all rows must have the same shape; some are nested more deeply than others"


def as_columns(rows: Sequence[Mapping[str, Any]]) -> Rows:
    """Objects by feature, all with the same features, as columns."""
    first = rows[0].keys()
    if not first:
        raise Refusal(422, "the rows have no features: got an empty object")
    for i, row in enumerate(rows):
        if differing := row.keys() ^ first:
            raise Refusal(
                422,
                "all rows must have the features of the first: "
                f"row {i}: {shown(min(differing), 60)}",
            )
    return Rows({name: _as_column([row[name] for row in rows], name) for name in first})


def _as_column(cells: list[Any], name: str) -> NDArray[Any]:
    if set(map(type, cells)) <= {str, type(None)} and any(cells):
        return as_texts(cells)
    column = as_numbers(cells, f"feature {shown(name, 60)}")
    if column.ndim != 1:
        raise Refusal(422, f"feature {shown(name, 60)} must hold one value for each row")
    return column


def _from_npy(body: bytes, most_rows: int) -> Rows:
    try:
        array = decode_array(np.frombuffer(body, dtype=np.uint8), by_columns=True)
    except ValueError as error:
        raise Refusal(400, f"the body is no .npy array: {error}") from error
    is_text = array.dtype.kind == "U" and array.ndim == 1
    if array.dtype.kind not in "biuf" and not is_text:
        raise Refusal(422, f"the array must hold numbers, or text in one axis; got {array.dtype}")
    if array.ndim < 2 and not is_text:
        raise Refusal(422, f"the array must have a row for each sample; got shape {array.shape}")
    check_count(len(array), most_rows)
    if not is_text:
        return Rows(np.array(array))  # a copy: aligned, and not the body itself
    try:  # halves of surrogate pairs
        array.tobytes().decode("utf-32-le")
    except UnicodeDecodeError as error:
        raise Refusal(400, f"the array holds text that is not Unicode: {error.reason}") from error
    return Rows(as_texts(array.tolist()))


def shape_rows(classifier: EpistemicClassifier, rows: Rows) -> Rows:
    """The same samples in the form that the classifier takes.

    Features that come by name are put in its order, those without names count by their places. A
    model with several inputs takes them by name.

    Raises:
        Refusal: 422 if the features are not those of the classifier.
    """
    known = getattr(classifier, "feature_names_in_", None)
    inputs = getattr(classifier.model_, "inputs", ())
    values = rows.values
    if len(inputs) > 1:
        return Rows(_in_order(values, tuple(inputs), "inputs"))
    if known is not None:
        ordered = _in_order(values, tuple(map(str, known)), "features")
        return Rows(_stack(ordered) if inputs else ordered)
    if not isinstance(values, Mapping):
        return rows
    if len(values) == 1 and set(values) == set(inputs):
        return Rows(next(iter(values.values())))
    return Rows(_stack(values))  # by their places, as in a file


def as_inputs(classifier: EpistemicClassifier, rows: Rows) -> Any:
    """Shaped rows as `assess` takes them; a frame if a model in Python was fitted with one."""
    values = rows.values
    if isinstance(values, Mapping):
        in_python = not hasattr(classifier.model_, "inputs")
        if in_python and hasattr(classifier, "feature_names_in_"):
            from iknow.tables.table import make_frame

            return make_frame(values)
    elif values.dtype == object:
        return values.tolist()
    return values


def _in_order(values: Any, known: tuple[str, ...], what: str) -> Columns:
    """Arrays by these names, in their order; the columns of a table if there are as many."""
    if isinstance(values, Mapping):
        missing = [name for name in known if name not in values]
        strange = [name for name in values if name not in known]
        if missing or strange:
            wrong = f"{shown([*missing, *strange][0], 60)} is {'missing' if missing else 'none'}"
            raise Refusal(422, f"{wrong} of the {what}: expected {names(known)}")
        return {name: values[name] for name in known}
    if values.ndim != 2 or values.shape[1] != len(known):
        raise Refusal(
            422,
            f"expected {len(known)} {what}, {names(known)}, by name or in this order; got rows of "
            f"shape {values.shape[1:]}",
        )
    return {name: values[:, i] for i, name in enumerate(known)}


def _stack(columns: Columns) -> NDArray[Any]:
    if text := [name for name, column in columns.items() if column.dtype.kind == "O"]:
        raise Refusal(422, f"the feature {shown(text[0], 60)} must hold numbers; got text")
    widths = {column.shape[1:] for column in columns.values()}
    if widths != {()}:
        raise Refusal(422, f"each feature must be one number per row; got shapes {sorted(widths)}")
    return np.column_stack(list(columns.values()))
