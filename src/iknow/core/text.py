r"""Text from outside, made safe to show: no control characters, bounded length.

Labels, layer names, paths and error messages of other packages may hold anything: an escape
sequence that repaints the terminal, a mark that reverses the direction of text, half a surrogate
pair, nine megabytes. Invisible characters are written as Python escapes them: \x1b or \u202e.

Also checks that an argument is one number or one flag: an array, text or True in place of a number
would fail later or be taken for something else.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from numbers import Integral, Real
from typing import Any

import numpy as np

from iknow.errors import InputError

JOINERS = "\u200c\u200d"  # invisible, but Persian, Indian scripts and emoji are spelled with them
LONGEST_NAME = 200
NO_NUMBERS = (bool, np.bool_, np.timedelta64)  # though Python or numpy count them as numbers


def visible(text: object) -> str:
    """The text on one line, with invisible characters escaped."""
    text = str(text)
    return text if text.isprintable() else "".join(map(_seen, text))


def shorten(text: str, most: int = LONGEST_NAME) -> str:
    """The text in at most `most` characters: a longer one keeps its beginning and its end."""
    if len(text) <= most:
        return text
    gap = f" … ({len(text):,} characters) … "
    kept = max(most - len(gap), 0)
    return text[: kept - kept // 4] + gap + text[len(text) - kept // 4 :]


def name(text: object, most: int = LONGEST_NAME) -> str:
    """A label or another name, ready to show: visible, and no longer than `most`."""
    return shorten(visible(shorten(str(text), most)), most)


def shown(value: object, most: int = LONGEST_NAME) -> str:
    """A user's value as quoted in an error: its repr, or its type if repr fails, as it may."""
    try:
        text = repr(value)
    except Exception:
        text = f"an object of type {type(value).__name__}"
    return name(text, most)


def names(texts: object, most: int = 10) -> str:
    """Several names, quoted and separated by commas; the first `most`, then the total."""
    listed = list(texts)  # type: ignore[call-overload]
    more = [f"… ({len(listed):,} in all)"] if len(listed) > most else []
    return ", ".join([shown(text) for text in listed[:most]] + more) or "none"


def percent(fraction: float, dash: str = "–") -> str:
    """A fraction as a percentage; an undefined one as a dash."""
    return dash if math.isnan(fraction) else f"{100 * fraction:.1f}%"


def as_flag(value: Any, what: str) -> bool:
    """A Python or numpy boolean, as a bool."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{what} must be True or False; got {shown(value)}")
    return bool(value)


def as_whole(
    value: Any, what: str, do: str, least: float = -math.inf, most: float = math.inf
) -> int:
    """A whole number from `least` to `most`. do: completes "must ..." in the error message."""
    is_whole = isinstance(value, Integral) and not isinstance(value, NO_NUMBERS)
    if not (is_whole and least <= int(value) <= most):
        raise InputError(f"{what} must {do}; got {shown(value)}")
    return int(value)


def as_real(
    value: Any, what: str, do: str, fits: Callable[[float], bool] = lambda _: True
) -> float:
    """A real number that fits in float64 and satisfies `fits`. do: as in `as_whole`."""
    number = math.nan
    if isinstance(value, Real) and not isinstance(value, NO_NUMBERS):
        with suppress(OverflowError):  # an integer or a fraction that is too large
            number = float(value)
    if math.isnan(number) or not fits(number):
        raise InputError(f"{what} must {do}; got {shown(value)}")
    return number


def _seen(character: str) -> str:
    space = unicodedata.category(character) == "Zs"  # of an unusual kind
    if space or character.isprintable() or character in JOINERS:
        return character
    return character.encode("unicode_escape").decode("ascii")
