"""The files of a run, each written in one step after all measurements."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from benchmarks.records import Results, to_json
from benchmarks.report import write_report
from benchmarks.targets import judge
from iknow.storage.files import write_bytes


def write_all(results: Results, folder: Path) -> list[Path]:
    """Write the numbers, the page and, if matplotlib is installed, the figure."""
    pictures = _draw(results)
    figure = "cost.png" if "cost.png" in pictures else None
    contents = {
        "benchmark.json": to_json(results, [asdict(each) for each in judge(results)]).encode(),
        **pictures,
        "report.md": write_report(results, figure).encode(),
    }
    return [write_bytes(folder / name, content) for name, content in contents.items()]


def _draw(results: Results) -> dict[str, bytes]:
    if not any(case.name.startswith(("rows ", "features ")) for case in results.cases):
        return {}
    try:
        from benchmarks.matplotlib import draw_cost, to_png, to_svg
    except ImportError:
        return {}
    # One figure per format, because saving a figure moves its parts a little.
    return {"cost.png": to_png(draw_cost(results)), "cost.svg": to_svg(draw_cost(results))}
