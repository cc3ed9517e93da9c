"""Publish: python -m benchmarks.scoreboard.publish RUN... --out docs/scoreboard.

Joins the results of runs on several machines, adds what MAPIE certifies for softmax where it is
installed, and writes results.json and the figures. The page's tables are made from results.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scoreboard.matplotlib import LOOKS, draw_curves, draw_shifts, to_png
from benchmarks.scoreboard.measuring import CONFIDENCE, certified
from benchmarks.scoreboard.running import CONFIDENCES, RESULTS, read
from benchmarks.scoreboard.summary import VARIANTS, Summary, by_position
from iknow.evaluation.risk import certify_by_mapie

MAPIE = "softmax, MAPIE"


def join(folders: list[Path]) -> dict[str, Any]:
    """All runs, with MAPIE's figures beside the others."""
    whole: dict[str, Any] = {"coverages": read(folders[0])["coverages"], "runs": {}}
    for folder in folders:
        found = read(folder)["runs"]
        if (folder / CONFIDENCES).exists():
            _add_mapie(found, np.load(folder / CONFIDENCES))
        for name, runs in found.items():
            whole["runs"].setdefault(name, {}).update(runs)
    return whole


def _add_mapie(runs: dict[str, Any], arrays: Any) -> None:
    for key in arrays.files:
        if not key.endswith("/val"):
            continue
        name, seed, variant, _ = key.split("/")
        stem = key.removesuffix("val")
        if name not in runs:
            continue
        for accuracy, row in runs[name][seed][variant]["certified"].items():
            limit = certify_by_mapie(
                arrays[key],
                arrays[f"{stem}val_wrong"],
                accuracy=float(accuracy),
                confidence=CONFIDENCE,
                random_state=int(seed),
            )
            row[MAPIE] = certified(arrays[f"{stem}test"], arrays[f"{stem}test_wrong"], limit)


def _rounded(value: Any) -> Any:
    """Numbers with four digits after the point: seeds differ in the third."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return round(value, 4) if isinstance(value, float) else value


def shorten(results: dict[str, Any]) -> dict[str, Any]:
    """The results with few digits, and only the curves that are drawn, with half the points."""
    for runs in results["runs"].values():
        for run in runs.values():
            for variant in VARIANTS:
                curves = run.get(variant, {}).pop("curves", {})
                if variant == "plain" and curves:
                    run[variant]["curves"] = {
                        name: row[::2] for name, row in curves.items() if name in LOOKS
                    }
    short: dict[str, Any] = _rounded(results)
    return short


def main() -> None:
    """Write results.json and the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scoreboard.publish")
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    results = shorten(join(asked.runs))
    text = json.dumps(by_position(results), separators=(",", ":"))
    (asked.out / RESULTS).write_text(text + "\n", "utf-8")
    summary = Summary(results)
    (asked.out / "curves.png").write_bytes(to_png(draw_curves(summary)))
    (asked.out / "shifts.png").write_bytes(to_png(draw_shifts(summary)))


if __name__ == "__main__":
    main()
