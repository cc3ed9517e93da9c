"""Run the alarm and its peers; writes alarm.json and alarm.png."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.alarm import peers, streams
from benchmarks.alarm.matplotlib import draw_evidence
from benchmarks.alarm.scenes import DESIGN, HELD_OUT, Scene, make_scenes
from benchmarks.alarm.streams import RATE, trace
from benchmarks.alarm.summary import summarize, to_lines
from iknow.version import __version__
from reproduction.figures.style import to_png

DRAWN, TRACES, QUIET_TRACES = "MNIST", 2, 12


def main() -> None:
    args = _read_arguments()
    found: list[dict[str, Any]] = []
    versions = {f"iknow {__version__}"}
    for scene in make_scenes(args.scenes):
        runs = [peers.run_ours(scene, args.streams)]
        others = [peers.run_river(scene, args.peer_streams)]
        others += [
            peers.run_elsewhere(scene, args.peer_streams, module, python)
            for module, python in vars(args).items()
            if module in ("alibi_detect", "evidently") and python
        ]
        versions |= {version for version, _ in others}
        rang = peers.merge(runs + [each for _, each in others])
        found.append(_record(scene, rang))
        if scene.name == DRAWN:
            args.out.joinpath("alarm.png").write_bytes(_draw(scene))
    settings = {"rate": RATE, "quiet": streams.QUIET, "before": streams.BEFORE,
                "after": streams.AFTER, "new": streams.NEW, "degrees": streams.DEGREES,
                "versions": sorted(versions)}  # fmt: skip
    results = {"settings": settings, "scenes": found}
    args.out.joinpath("alarm.json").write_text(json.dumps(results, indent=1) + "\n")
    print("\n".join(to_lines(results)))


def _record(scene: Scene, rang: peers.Rang) -> dict[str, Any]:
    return {
        "name": scene.name,
        "about": scene.about,
        "held out": scene.name.lower() in HELD_OUT,
        "classes": len(scene.classes),
        "layers": list(scene.layers),
        "reference": min(streams.REFERENCE, len(scene.ordinary) - streams.QUIET),
        "kinds": list(rang),
        "detectors": summarize(rang),
    }


def _draw(scene: Scene) -> bytes:
    def traces(kind: str, n: int) -> list[Any]:
        return [trace(scene, streams.draw_stream(scene, kind, seed), seed) for seed in range(n)]

    moved = {kind: traces(kind, TRACES) for kind in streams.kinds_of(scene)[1:]}
    quiet = traces(streams.NO_CHANGE, QUIET_TRACES)
    return to_png(draw_evidence(f"{scene.name}: evidence of drift", quiet, moved))


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.alarm")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--scenes", nargs="*", default=[*DESIGN, *HELD_OUT])
    parser.add_argument("--streams", type=int, default=100, help="of each kind")
    parser.add_argument("--peer-streams", type=int, default=20, help="of each kind, for peers")
    parser.add_argument("--alibi-detect", help="a Python that has alibi-detect")
    parser.add_argument("--evidently", help="a Python that has Evidently")
    return parser.parse_args()


if __name__ == "__main__":
    main()
