"""Snippets: the Python fences of a page, run in order, with the output of each below it.

A page runs like a notebook: one namespace, in an empty folder that contains `docs`, as the root of
a checkout does. A snippet that fails ends the build. Only the data of a tutorial may be absent:
then the page says so instead of showing output.

markdown-exec shows what a fence prints and nothing else: no value of its last line, so that each
figure and explanation would have to print its own HTML, no files that it writes, no page without
its data. Sybil runs fences and shows nothing, and would be a second way to run them: the tests run
pages with the very code of the build.
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
    The data of this page was not available, so the output of its code is missing. Set `IKNOW_DATA`
    to the folder that holds the data; without it, iknow looks in the cache and downloads it.
"""

os.environ["MPLBACKEND"] = "Agg"  # a build has no screen


class SnippetError(Exception):
    """A snippet failed; the message names the page and the snippet."""


@dataclass(frozen=True)
class Snippet:
    """A fence: its code, the line in the page where that begins, and where the fence ends."""

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
    """Run each snippet of a page in an empty folder; None from the one whose data is absent on."""
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
    """Whether data is absent. A file that exists but is damaged is another matter."""
    return isinstance(error, DataError) and error.__cause__ is not None


def weave(markdown: str, outputs: list[Output | None], images: list[str]) -> str:
    """Put the outputs below their snippets; `images` are the paths of the pictures, in order."""
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
