"""The manifest's text: strict JSON that seals itself.

Each entry has its own line, and the last is the sha256 of all bytes before it, so any change shows,
even one that JSON ignores, such as a space. An attacker can compute a new seal, so we check:

- at most 32 MiB, 2 million values and 32 levels, counted before we parse them;
- no key twice, no number that Python would read differently from how it is written;
- numbers that JSON lacks are objects: {"float": "inf"}, "-inf" or "nan".
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from iknow.errors import BundleError

LARGEST = 1 << 25
MOST_VALUES = 2_000_000
DEEPEST = 32
LONGEST_INTEGER = 20  # characters, as in the smallest and the largest 64-bit integer
SEAL = re.compile(rb',\n"sha256": "([0-9a-f]{64})"\n\}\n')
SEAL_LENGTH = 81
PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
UNWRITTEN = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def write_manifest(manifest: Mapping[str, Any]) -> bytes:
    """The text of a manifest, sealed."""
    to_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
    plain = _to_plain(dict(manifest))
    lines = [f"{json.dumps(key)}: {to_text(value)}" for key, value in plain.items()]
    whole = "{\n" + ",\n".join(lines)
    # UTF-8 cannot encode half a surrogate pair; JSON writes it with a backslash.
    body = whole.encode("utf-8", "backslashreplace")
    if PAIR.search(whole):
        raise BundleError("some text holds a surrogate pair, which JSON would join")
    return body + f',\n"sha256": "{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode()


def read_manifest(text: bytes) -> dict[str, Any]:
    """The entries of a manifest, without its seal, which must be intact."""
    if len(text) > LARGEST:
        raise BundleError(f"it may have {LARGEST:,} bytes; it has {len(text):,}")
    _check_structure(text)
    body, seal = text[:-SEAL_LENGTH], SEAL.fullmatch(text[-SEAL_LENGTH:])
    if seal is None or seal[1].decode() != hashlib.sha256(body).hexdigest():
        raise BundleError("it does not match its own checksum")
    try:
        found = json.loads(
            (body + b"}").decode("utf-8"),
            object_pairs_hook=_to_object,
            parse_int=_to_integer,
            parse_float=_to_float,
            parse_constant=_refuse,
        )
    except (ValueError, RecursionError) as error:
        raise BundleError(f"it cannot be read as JSON ({str(error)[:100]})") from error
    if not isinstance(found, dict):
        raise BundleError("it is not a JSON object")
    return found


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
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise BundleError(f"names must be text; got {key!r}")
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


def _to_object(pairs: list[tuple[str, Any]]) -> Any:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    if set(found) == {"float"} and isinstance(found["float"], str):
        if found["float"] not in UNWRITTEN:
            raise ValueError("an unknown number")
        return UNWRITTEN[found["float"]]
    return found


def _to_integer(digits: str) -> int:
    if len(digits) > LONGEST_INTEGER:
        raise ValueError("a whole number beyond 64 bits")
    return int(digits)


def _to_float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a number beyond the range of float64")
    return value


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")
