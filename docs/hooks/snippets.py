"""Snippets: the Python fences of a page, run in its order, with what came out put below each.

A page is run like a notebook: one namespace, in an empty folder that has `docs` in it as the root
of a checkout has. A snippet that fails ends the build. One thing may be absent, the data of a
tutorial: then the page says so in the place of all that would have come.
"""

from __future__ import annotations

import ast
import io
import os
import re
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from iknow.errors import DataError
from outputs import Output, as_html, as_picture, to_markdown

DOCS = Path(__file__).parents[1]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ABSENT = """\
!!! note "Not run in this build"
    The data of this page was not at hand, so what the code gives is left out. `IKNOW_DATA` names
    the folder that holds it; without one it is looked for in the cache, and downloaded.
"""

os.environ["MPLBACKEND"] = "Agg"  # a build has no screen


class SnippetError(Exception):
    """A snippet failed; the message says which, of which page."""


@dataclass(frozen=True)
class Snippet:
    """A fence. line: of its first line of code in the page. end: where in the page it ends."""

    code: str
    line: int
    end: int


def find_snippets(markdown: str) -> list[Snippet]:
    """The Python fences of a page, in its order."""
    return [
        Snippet(found[1], 2 + markdown.count("\n", 0, found.start()), found.end())
        for found in FENCE.finditer(markdown)
    ]


def run_page(markdown: str, page: str, folder: Path) -> list[Output | None]:
    """What each snippet gives, run in an empty folder; None from where data is absent on."""
    names: dict[str, Any] = {"__name__": "__main__"}
    snippets = find_snippets(markdown)
    outputs: list[Output | None] = [None] * len(snippets)
    (folder / "docs").symlink_to(DOCS)
    for i, snippet in enumerate(snippets):
        try:
            with chdir(folder):
                outputs[i] = run(snippet, page, names)
        except Exception as error:
            if is_absent(error):
                break
            where = f"{page}, snippet {i + 1}, line {snippet.line}"
            raise SnippetError(f"{where}: {type(error).__name__}: {error}") from error
    return outputs


def run(snippet: Snippet, page: str, names: dict[str, Any]) -> Output:
    """Run a snippet in the current folder; it reads and changes `names`."""
    before = _stamps()
    # Empty lines before it make the lines of a traceback those of the page.
    tree = ast.parse("\n" * (snippet.line - 1) + snippet.code, page)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value = None
    # On one thread results do not depend on the number of cores, and small networks learn faster.
    with redirect_stdout(io.StringIO()) as printed, threadpool_limits(1):
        exec(compile(tree, page, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), page, "eval"), names)
    wrote = sorted(name for name, stamp in _stamps().items() if before.get(name) != stamp)
    return Output(
        text=printed.getvalue().rstrip(),
        html=as_html(value),
        picture=as_picture(value),
        files={name: Path(name).read_bytes() for name in wrote},
    )


def is_absent(error: BaseException) -> bool:
    """Whether data could not be had. A file that is there and damaged is another matter."""
    return isinstance(error, DataError) and error.__cause__ is not None


def weave(markdown: str, outputs: list[Output | None], images: list[str]) -> str:
    """The page with the outputs below their snippets. images: where the pictures are, in order."""
    parts, start, places, told = [], 0, iter(images), False
    for snippet, output in zip(find_snippets(markdown), outputs, strict=True):
        parts.append(markdown[start : snippet.end])
        start = snippet.end
        if output is not None:
            parts.append(f"\n\n{to_markdown(output, places)}\n")
        elif not told:
            parts.append(f"\n\n{ABSENT}")
            told = True
    return "".join([*parts, markdown[start:]])


def _stamps() -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in Path().glob("*.html")}
