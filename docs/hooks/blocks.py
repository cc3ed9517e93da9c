"""Blocks: parts of a page that are made from the results and the code, not written by hand.

    <!-- made by gpu_table -->
    <!-- end -->

The build puts what `gpu_table` gives between the two. The page in the repository holds it too, for
those who read it there: `python docs/hooks/blocks.py` writes it anew, and a test compares.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

BLOCK = re.compile(r"^<!-- made by (\w+) -->\n(.*?)^<!-- end -->$", re.DOTALL | re.MULTILINE)
Makers = Mapping[str, Callable[[], str]]


class BlockError(Exception):
    """A block that nothing makes."""


def find_blocks(markdown: str) -> dict[str, str]:
    """What stands in the blocks of a page, by the name of their makers."""
    return {found[1]: found[2] for found in BLOCK.finditer(markdown)}


def fill(markdown: str, makers: Makers) -> str:
    """The page with all blocks made anew."""

    def make(found: re.Match[str]) -> str:
        name = found[1]
        if name not in makers:
            raise BlockError(f"nothing makes {name!r}: choose one of {', '.join(makers)}")
        return f"<!-- made by {name} -->\n\n{makers[name]().strip()}\n\n<!-- end -->"

    return BLOCK.sub(make, markdown)


def main() -> None:
    """Write the blocks of all pages in the repository anew."""
    sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks and the reproduction
    from results import MAKERS

    docs = Path(__file__).parents[1]
    for path in [docs.parent / "README.md", *sorted(docs.rglob("*.md"))]:
        before = path.read_text("utf-8")
        after = fill(before, MAKERS)
        if after != before:
            path.write_text(after, "utf-8")
            print(path)


if __name__ == "__main__":
    main()
