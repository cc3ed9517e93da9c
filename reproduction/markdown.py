"""Tables as Markdown, for every page that is written from results: here, benchmarks and docs."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence


def table_lines(
    headings: Sequence[str], rows: Iterable[Sequence[str]], words: Container[int]
) -> list[str]:
    """The lines of a table. words: which columns, from 0, hold words; the others hold numbers."""
    marks = ("---" if i in words else "---:" for i in range(len(headings)))
    return [_line(headings), f"|{'|'.join(marks)}|", *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"
