"""The manifest of a bundle: everything but its arrays and its model, as strict JSON.

`Manifest` and the records in it are the schema: msgspec compares names and types, each record what
else its values must be. Nothing more is needed to know what a bundle says; whether it fits its
arrays, `iknow.storage.bundle` knows. Records never hold a function: nothing in a bundle may run.

Whoever can write a bundle can compute its checksums, so a correct one proves nothing. JSON leaves
room that we close:

- at most 32 MiB, 2 million values and 32 levels, counted before we parse them;
- the text must be what we write for the values that it holds. So no key occurs twice, no NaN, no
  number is read differently from how it is written, and no space is added;
- numbers that JSON lacks are objects: {"float": "inf"}, "-inf" or "nan".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from iknow.core.arrays import Labels
from iknow.core.text import name as short
from iknow.core.text import names, shown, visible
from iknow.errors import BundleError, InputError
from iknow.models.adapt import OPTIONS
from iknow.models.views import NAMED

FORMAT = 10
LARGEST = 1 << 25
MOST_VALUES = 2_000_000
DEEPEST = 32
LONGEST_NAME = 200
LONGEST_NOTE = 20_000
LONGEST_OPTION = 20_000
LONGEST_WORDS = 2_000
"""Characters of who made a change, and of why."""
LARGEST_TEXT = 1 << 28
"""Bytes of an array of text, in which numpy makes every label as long as the longest."""

PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
UNWRITTEN = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)

Label = str | bool | int | float
Whole = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Words = Annotated[str, Meta(max_length=LONGEST_WORDS)]
Day = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
WHEN = rf"^{Day}(\.[0-9]{{1,6}})?Z\Z"
"""The time of a change, in UTC."""
What = Annotated[str, Meta(pattern=r"^(add|remove|relabel)\Z")]
Part = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_]{1,100}\Z")]
Option = str | int | Annotated[dict[str, str | int], Meta(min_length=1)] | None
NUMBERS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
"""Kinds of labels that are numbers, by numpy's names."""


class Record(msgspec.Struct, forbid_unknown_fields=True):
    """A JSON object with exactly these entries, of these types."""


class Classes(Record):
    """The labels of the classes, and their kind: "str", "object" or a number's type in numpy."""

    kind: str
    values: Annotated[list[Label], Meta(min_length=2)]


class LayerRecord(Record):
    """A layer's metric, without the arrays whose names are listed, and its rule, if it has one."""

    metric: dict[str, Any]
    metric_arrays: list[Part]
    neighborhood: dict[str, Any] | None


class About(Record):
    """What a bundle is, in the words of its maker and in numbers; it can be printed as it is.

    inputs: the shape of one sample, by the names of the model's inputs; None if unknown.
    """

    name: str | None
    version: str | None
    note: str
    created: Annotated[str, Meta(pattern=rf"^{Day}Z\Z")]
    model: str
    per_class: list[Whole]
    inputs: Annotated[
        dict[str, Annotated[list[Whole], Meta(max_length=32)]], Meta(max_length=1_000)
    ] | None  # fmt: skip

    def __post_init__(self) -> None:
        check_name(self.name)
        check_version(self.version)
        check_note(self.note)
        datetime.fromisoformat(self.created)
        for each in (self.model, *(self.inputs or {})):
            if each != short(each):
                raise InputError(f"names must be visible and short; got {shown(each)}")


class Reading(Record):
    """How the model is read: its options, and the names of those that were functions."""

    pool: Option
    scores: Option
    embed: None
    views: Annotated[list[str], Meta(min_length=1)] | None
    functions: list[str]

    def __post_init__(self) -> None:
        if self.functions != [option for option in OPTIONS if option in self.functions]:
            raise InputError(f"functions must be some of {OPTIONS}; got {shown(self.functions)}")
        if unknown := set(self.views or ()).difference(NAMED):
            raise InputError(f"views must be some of {names(NAMED)}; got {names(unknown)}")
        for option in OPTIONS:
            value = getattr(self, option)
            if value is not None and (option in self.functions or len(str(value)) > LONGEST_OPTION):
                raise InputError(f"{option} must be a function, or short; got {shown(value)}")


class ProbeRecord(Record):
    """What identifies the model, without its arrays; see `iknow.models.probe`."""

    inputs: dict[str, Any]
    tolerances: list[float]


class ClassifierRecord(Record):
    """The parameters of the classifier, and what is known about its inputs and its model.

    layers, classes: whether they were given. metric: "one", or the layers that have their own.
    rule: the name of its kind, if it is tuned; fixed: else, how it was given. quorum: as given.
    probe: why there is none, if there is none.
    """

    rule: str | None
    fixed: Literal["one", "each", "selection"] | None
    k: Positive
    batch_size: Positive | None
    layers: bool
    metric: Literal["one"] | list[str] | None
    classes: bool
    validation_fraction: float
    random_state: Whole | None
    progress: bool
    quorum: int | list[int] | None
    n_features_in: Whole | None
    feature_names_in: list[str] | None
    probe: str | ProbeRecord
    about: About
    reading: Reading


class Distance(Record):
    """How far apart two answers may be, and how far the farthest were."""

    tolerance: float
    difference: float

    def __post_init__(self) -> None:
        if not (0 <= self.tolerance < math.inf and 0 <= self.difference < math.inf):
            raise InputError("distances must be numbers >= 0")


class OnnxReading(Record):
    """Of a model that was ONNX before: where its scores are, and how each layer is pooled."""

    scores: Any
    layers: dict[str, Any]


class Exported(Record):
    """How near model.onnx comes to the model that it was made of, on how many samples."""

    samples: Positive
    scores: Distance
    layers: dict[str, Distance]
    reading: OnnxReading | None
    sha256: str


class LogEntry(Record):
    """A change that the arrays hold already. ids: how many of the numbers in changes/ids.npy."""

    what: What
    when: Annotated[str, Meta(pattern=WHEN)]
    who: Words
    why: Words
    classes: list[Label]
    ids: Positive


class Manifest(Record):
    """All of it. arrays: the sha256 of each, by its name in the archive."""

    format: Annotated[int, Meta(ge=FORMAT, le=FORMAT)]
    iknow: str
    classes: Classes
    layers: Annotated[dict[str, LayerRecord], Meta(min_length=1)]
    probe: list[str]
    selection: dict[str, Any] | None
    settings: ClassifierRecord
    arrays: dict[str, str]
    model: Exported | None
    changes: list[LogEntry]


Kind = TypeVar("Kind", bound=Record)


# Text


def write_record(record: Record) -> bytes:
    """A record as JSON, with a line for each of its entries."""
    return _to_text(_to_plain(record))


def read_record(text: bytes, kind: type[Kind]) -> Kind:
    """The record that a text holds, which is as `write_record` wrote it."""
    if len(text) > LARGEST:
        raise BundleError(f"it may have {LARGEST:,} bytes; it has {len(text):,}")
    _check_structure(text)
    try:
        found = json.loads(text.decode("utf-8"), object_hook=_to_object)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"it cannot be read as JSON ({str(error)[:100]})") from error
    if not isinstance(found, dict) or _to_text(_to_plain(found)) != text:
        raise BundleError(
            "it is not written as iknow writes it: perhaps a key occurs twice, or a number is not "
            "one of JSON's, or something was added"
        )
    try:
        return msgspec.convert(found, kind)
    except (msgspec.ValidationError, ValueError) as error:
        raise BundleError(str(error)) from error


def _to_text(plain: Mapping[str, Any]) -> bytes:
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
    lines = [f"{encode(key)}: {encode(value)}" for key, value in plain.items()]
    whole = "{\n" + ",\n".join(lines) + "\n}\n"
    if PAIR.search(whole):
        raise BundleError("some text holds a surrogate pair, which JSON would join")
    # UTF-8 cannot encode half a surrogate pair; JSON writes it with a backslash.
    return whole.encode("utf-8", "backslashreplace")


def _check_structure(text: bytes) -> None:
    """Count values and levels, outside strings, without creating them."""
    marks = np.frombuffer(STRING.sub(b"", text), dtype=np.uint8)
    opens, closes = ((marks == ord(a)) | (marks == ord(b)) for a, b in ("[{", "]}"))
    if int(opens.sum()) + int((marks == ord(",")).sum()) > MOST_VALUES:
        raise BundleError(f"it may hold {MOST_VALUES:,} values; it holds more")
    steps = np.where(opens, 1, -1)[opens | closes]
    if np.cumsum(steps).max(initial=0) > DEEPEST:
        raise BundleError(f"its values may be nested {DEEPEST} deep; they are deeper")


def _to_plain(value: Any) -> Any:
    """The same value in JSON's own types."""
    if type(value) is str or (type(value) is float and math.isfinite(value)):
        return value  # the common case
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Record):
        value = msgspec.structs.asdict(value)
    if isinstance(value, Mapping):
        if odd := [key for key in value if not isinstance(key, str)]:
            raise BundleError(f"names must be text; got {shown(odd[0])}")
        return {key: _to_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(float(value))}
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise BundleError("whole numbers must fit into 64 bits")
    if value is None or isinstance(value, str | int | float):
        return value
    raise BundleError(f"a value of type {type(value).__name__} cannot be written as JSON")


def _to_object(found: dict[str, Any]) -> Any:
    if set(found) == {"float"} and isinstance(found["float"], str):
        if found["float"] not in UNWRITTEN:
            raise ValueError("an unknown number")
        return UNWRITTEN[found["float"]]
    return found


# Labels


def write_classes(classes: Labels) -> Classes:
    """The record of labels of shape (n_classes,); `read_classes` gives them back."""
    kind = {"U": "str", "O": "object"}.get(classes.dtype.kind, classes.dtype.name)
    values = [v.item() if isinstance(v, np.generic) else v for v in classes.tolist()]
    if odd := [value for value in values if not isinstance(value, Label)]:
        what = f"a {type(odd[0]).__name__}"
        raise InputError(f"only labels that are text or numbers can be saved; one is {what}")
    return Classes(kind, values)


def read_classes(record: Classes) -> Labels:
    """The labels of a record, of shape (n_classes,), each of the type that it is written in."""
    kind, values = record.kind, record.values
    if kind not in (*NUMBERS, "str", "object"):
        raise BundleError(f"classes.kind must be str, object or a number's; it is {shown(kind)}")
    if kind == "str":
        longest = max(len(str(value)) for value in values)
        if 4 * len(values) * longest > LARGEST_TEXT:
            raise BundleError(
                f"labels may take {LARGEST_TEXT:,} bytes as an array of text; {len(values)} labels "
                f"of up to {longest:,} characters take more"
            )
    labels = np.empty(len(values), dtype=object)
    labels[:] = values
    try:
        labels = labels if kind == "object" else labels.astype(kind)
    except (OverflowError, ValueError) as error:
        raise BundleError(f"classes.values must be of kind {kind}: {error}") from error
    again = labels.tolist()
    if again != values or [*map(type, again)] != [*map(type, values)]:
        raise BundleError(f"labels of kind {kind} must come back as they are; some do not")
    if any(v != v or (kind != "object" and v in (math.inf, -math.inf)) for v in values):
        raise BundleError(f"labels of kind {kind} must not be NaN, nor infinite as numbers")
    if len(set(values)) != len(values):
        raise BundleError("labels must differ from one another; some are equal")
    return labels


# What a maker says


def check_name(name: Any) -> str | None:
    """The name of a bundle: one line of visible text, None for an empty one."""
    if name is None or (isinstance(name, str) and not name):
        return None
    if not isinstance(name, str) or visible(name) != name or len(name) > LONGEST_NAME:
        raise InputError(
            f"name must be one line of text, up to {LONGEST_NAME} characters; got {shown(name)}"
        )
    return name


def check_version(version: Any) -> str | None:
    """The version of a bundle, which can be a part of an address; None for an empty one."""
    if version is None or (isinstance(version, str) and not version):
        return None
    if not isinstance(version, str) or not VERSION.fullmatch(version):
        raise InputError(
            "version must be up to 64 letters, digits, dots, hyphens and underscores, a letter or "
            f"digit first, such as '1.3' or '2026-11-01'; got {shown(version, 80)}"
        )
    return version


def check_note(note: Any) -> str:
    """The note of a bundle: lines of visible text."""
    expected = f"note must be text of up to {LONGEST_NOTE:,} characters"
    if not isinstance(note, str) or len(note) > LONGEST_NOTE:
        raise InputError(f"{expected}; got {shown(note, 80)}")
    lines = note.replace("\r\n", "\n").split("\n")
    if any(visible(line) != line for line in (line.replace("\t", " ") for line in lines)):
        raise InputError(f"{expected} without control characters; got {shown(note, 80)}")
    return "\n".join(lines)
