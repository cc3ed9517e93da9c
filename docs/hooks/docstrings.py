"""Docstrings as the reference shows them: what is said of each argument becomes an item of a list.

In the code the arguments of a function and the fields of a record are explained in a paragraph,
`name: what it is`. Which words are names is known from the signature, so the paragraph is taken
apart at sentences that begin with one.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from griffe import Class, Extension, Function

NAMES = r"[A-Za-z_]\w*(?:, [A-Za-z_]\w*)*"
ARGUMENT = re.compile(rf"(?:(?<=\. )|(?<=\? )|^)(?P<names>{NAMES}):\s", re.MULTILINE)


class ArgumentLists(Extension):
    """Takes the docstrings of functions and classes apart."""

    def on_function(self, *, func: Function, **_: Any) -> None:
        if func.docstring is not None:
            names = [parameter.name for parameter in func.parameters]
            func.docstring.value = list_arguments(func.docstring.value, names)

    def on_class_members(self, *, cls: Class, **_: Any) -> None:
        if cls.docstring is not None:
            names = [*cls.members, *(parameter.name for parameter in cls.parameters)]
            cls.docstring.value = list_arguments(cls.docstring.value, names)


def list_arguments(text: str, names: Collection[str]) -> str:
    """The text with every paragraph `name: what it is` as an item of a list."""
    paragraphs = re.split(r"\n{2,}", text)
    return "\n\n".join(_take_apart(paragraph, names) for paragraph in paragraphs)


def _take_apart(paragraph: str, names: Collection[str]) -> str:
    if paragraph.startswith("    "):  # an example or a table, shown as it stands
        return paragraph
    starts = [
        found
        for found in ARGUMENT.finditer(paragraph)
        if all(name in names for name in found["names"].split(", "))
    ]
    if not starts:
        return paragraph
    before = paragraph[: starts[0].start()].strip()
    ends = [found.start() for found in starts[1:]] + [len(paragraph)]
    items = [
        f"- {_as_code(found['names'])}: {' '.join(paragraph[found.end() : end].split())}"
        for found, end in zip(starts, ends, strict=True)
    ]
    return "\n\n".join([*([before] if before else []), "\n".join(items)])


def _as_code(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", "))
