"""State on disk: arrays as plain values for JSON, and back, bit for bit; one file for each model.

Reading trusts nothing, as a state may come from a file that somebody has edited.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from errno import EAGAIN
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from iknow.core.text import shown
from iknow.errors import InputError
from iknow.storage.files import lock, write_bytes

T = TypeVar("T")
SIGNED = ("exponents", "now", "highest")


def array_to_text(values: NDArray[Any]) -> str:
    """The base64 of an array's values, little-endian."""
    return base64.b64encode(values.astype(values.dtype.newbyteorder("<")).tobytes()).decode("ascii")


def array_from_text(text: str, like: NDArray[Any], name: str) -> NDArray[Any]:
    """The array that `array_to_text` wrote, of the shape and type of another; finite."""
    try:
        content = base64.b64decode(text.encode("ascii"), validate=True)
        values = np.frombuffer(content, dtype=like.dtype.newbyteorder("<"))
        values = values.reshape(like.shape).astype(like.dtype)
    except ValueError as error:
        raise InputError(
            f"{name} must be {like.dtype} values of shape {like.shape} as base64; got "
            f"{shown(text, 80)}"
        ) from error
    if not np.isfinite(values).all() or (name not in SIGNED and (values < 0).any()):
        raise InputError(f"{name} must hold finite numbers, none negative")
    return values


def read_state(record: Any, kind: type[T]) -> T:
    """A state of a certain kind from plain values; an `InputError` names what is wrong."""
    try:
        return msgspec.convert(record, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"this is no state that can be continued: {error}") from error


def generator_from_dict(record: dict[str, Any]) -> np.random.Generator:
    """A generator that goes on where the one with this state of its bit generator was."""
    generator = np.random.default_rng(0)
    try:
        generator.bit_generator.state = record
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise InputError(f"the state of the random generator cannot be read: {error}") from error
    return generator


class StateFile:
    """The file of one model's monitors, `NAME@VERSION.json`, which one process writes.

    Args:
        folder: Where it lies; it is made if necessary.
        name: What the model is called. Neither it nor the version may hold `@` or `/`.
        version: Its version.

    Raises:
        OSError: It cannot be written, or another process writes it.
    """

    def __init__(self, folder: Path, name: str, version: str) -> None:
        for each in (name, version):
            if not each or {"@", "/", "\\", "\0"} & set(each):
                raise InputError(f"no file can be named after {shown(each)}: it holds @ or /")
        self.path = folder / f"{name}@{version}.json"
        folder.mkdir(parents=True, exist_ok=True)
        self._descriptor: int | None = _lock(folder / f"{name}@{version}.lock")

    def read(self) -> Any:
        """What was written last; None if nothing was.

        Raises:
            OSError, ValueError: It cannot be read.
        """
        return json.loads(self.path.read_bytes()) if self.path.exists() else None

    def write(self, state: Mapping[str, Any]) -> None:
        """Replace what is there; when this returns, it survives a crash."""
        write_bytes(self.path, json.dumps(state).encode())

    def set_aside(self) -> Path:
        """Give a damaged file another name, for somebody to look at."""
        aside = self.path.with_name(f"{self.path.name}.damaged")
        with suppress(OSError):
            os.replace(self.path, aside)
        return aside

    def close(self) -> None:
        """Let another process write it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _lock(path: Path) -> int:
    """Lock a file until its descriptor is closed, or its process ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    if lock(descriptor, wait=False) is False:  # None without locks
        os.close(descriptor)
        raise OSError(EAGAIN, "another service keeps its alarms there")
    return descriptor
