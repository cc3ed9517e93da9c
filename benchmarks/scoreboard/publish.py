"""Publish: python -m benchmarks.scoreboard.publish RUN... --out docs/scoreboard.

Joins the results of runs on several machines, and writes results.json and the figure. The page's
tables and its words are made from results.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.scoreboard.matplotlib import draw_shifts, to_png
from benchmarks.scoreboard.running import RESULTS, read
from benchmarks.scoreboard.summary import Summary


def join(folders: list[Path]) -> dict[str, Any]:
    """All runs."""
    whole: dict[str, Any] = {"coverages": read(folders[0])["coverages"], "runs": {}}
    for name, runs in (each for folder in folders for each in read(folder)["runs"].items()):
        whole["runs"].setdefault(name, {}).update(runs)
    return whole


def shorten(value: Any) -> Any:
    """Numbers of four digits: seeds differ in the second."""
    if isinstance(value, dict):
        return {key: shorten(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shorten(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def main() -> None:
    """Write results.json and the figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scoreboard.publish")
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    results = shorten(join(asked.runs))
    text = json.dumps(results, separators=(",", ":"))
    (asked.out / RESULTS).write_text(text + "\n", "utf-8")
    (asked.out / "shifts.png").write_bytes(to_png(draw_shifts(Summary(results))))


if __name__ == "__main__":
    main()
