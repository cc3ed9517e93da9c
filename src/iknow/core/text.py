r"""Text from outside, made fit to be shown: nothing in it acts, and nothing in it is endless.

Labels, layers' names, paths and other people's error messages may hold anything: an escape sequence
that repaints the terminal, a mark that turns the direction of what follows, half of a surrogate
pair, nine megabytes. What cannot be seen is written as Python writes it, \x1b or \u202e.
"""

from __future__ import annotations

import math
import unicodedata

JOINERS = "\u200c\u200d"
"""Not seen themselves, but the scripts of Iran and India, and emoji, are spelled with them."""

LONGEST_NAME = 200


def visible(text: object) -> str:
    """The text in characters that can be seen; all others as their escapes, on one line."""
    text = str(text)
    return text if text.isprintable() else "".join(map(_seen, text))


def shorten(text: str, most: int = LONGEST_NAME) -> str:
    """The text in at most `most` characters: of a longer one its beginning and its end."""
    if len(text) <= most:
        return text
    gap = f" … ({len(text):,} characters) … "
    end = max(most - len(gap), 0) // 4
    return text[: max(most - len(gap), 0) - end] + gap + text[len(text) - end :]


def name(text: object, most: int = LONGEST_NAME) -> str:
    """A label or another name as it is shown: visible, and no longer than `most`."""
    return shorten(visible(shorten(str(text), most)), most)


def shown(value: object, most: int = LONGEST_NAME) -> str:
    """Whatever somebody gave, as it is quoted in an error: by its repr, if it has one.

    A repr may fail: of an object that refuses, of nested lists without end, of 5,000 digits.
    """
    try:
        text = repr(value)
    except Exception:
        text = f"an object of type {type(value).__name__}"
    return name(text, most)


def names(texts: object, most: int = 10) -> str:
    """Several names, quoted, with commas between them; of many the first, and how many more."""
    listed = list(texts)  # type: ignore[call-overload]
    first = ", ".join(shown(text) for text in listed[:most])
    more = f", … ({len(listed):,} in all)" if len(listed) > most else ""
    return f"{first}{more}" or "none"


def percent(fraction: float, dash: str = "–") -> str:
    """A fraction as a percentage; an undefined one as a dash."""
    return dash if math.isnan(fraction) else f"{100 * fraction:.1f}%"


def _seen(character: str) -> str:
    if character.isprintable() or character in JOINERS:
        return character
    if unicodedata.category(character) == "Zs":  # a space, if an unusual one
        return character
    return character.encode("unicode_escape").decode("ascii")
