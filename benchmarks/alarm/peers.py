"""All detectors on all streams, as one record of when each rang first."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.alarm.scenes import Scene
from benchmarks.alarm.streams import ALONE, NO_CHANGE, OURS, Stream, draw_stream, kinds_of, ring

SIGNALS = ("level", "confidence")
"""What peers watch: the level, or what there is without iknow."""

MORE_QUIET = 8
"""How many times more streams without a change than with one, for iknow's alarm."""

Rang = dict[str, dict[str, list[int | None]]]
"""By kind of stream and detector, the samples at which it rang first, stream by stream."""


def run_ours(scene: Scene, n_streams: int) -> Rang:
    found: Rang = {kind: {OURS: [], ALONE: []} for kind in kinds_of(scene)}
    for kind, seed, stream in _streams(scene, n_streams):
        found[kind][OURS].append(ring(scene, stream, seed))
        found[kind][ALONE].append(ring(scene, stream, seed, alone=True))
    for seed in range(n_streams, MORE_QUIET * n_streams):  # false alarms are rare
        stream = draw_stream(scene, NO_CHANGE, seed)
        found[NO_CHANGE][OURS].append(ring(scene, stream, seed))
    return found


def run_river(scene: Scene, n_streams: int) -> tuple[str, Rang]:
    peer = import_module("benchmarks.alarm.river")  # a package that not everybody has
    found: Rang = {kind: {} for kind in kinds_of(scene)}
    for kind, _, stream in _streams(scene, n_streams):
        for signal in SIGNALS:
            columns = (getattr(each, signal) for each in (stream.reference, stream.samples))
            for name, first in peer.ring(*map(_finite, columns)):
                found[kind].setdefault(f"{name}, {signal}", []).append(first)
    return peer.VERSION, found


def run_elsewhere(scene: Scene, n_streams: int, module: str, python: str) -> tuple[str, Rang]:
    """Run a peer that needs an environment of its own, on the level."""
    arrays: dict[str, Any] = {}
    for kind, seed, stream in _streams(scene, n_streams):
        arrays[f"{kind}/{seed:03}/reference"] = stream.reference.level
        arrays[f"{kind}/{seed:03}/stream"] = stream.samples.level
    with tempfile.TemporaryDirectory() as folder:
        streams, out = Path(folder, "streams.npz"), Path(folder, "out.json")
        np.savez(streams, **arrays)
        command = [python, "-m", f"benchmarks.alarm.{module}", str(streams), str(out)]
        subprocess.run(command, check=True)
        record = json.loads(out.read_text())
    found: Rang = {kind: {} for kind in kinds_of(scene)}
    for key, rang in sorted(record["rang"].items()):
        for name, first in rang.items():
            found[key.split("/")[0]].setdefault(f"{name}, level", []).append(first)
    return record["version"], found


def merge(parts: Sequence[Rang]) -> Rang:
    return {kind: {k: v for part in parts for k, v in part[kind].items()} for kind in parts[0]}


def _streams(scene: Scene, n_streams: int) -> Iterator[tuple[str, int, Stream]]:
    for kind in kinds_of(scene):
        for seed in range(n_streams):
            yield kind, seed, draw_stream(scene, kind, seed)


def _finite(values: Any) -> Any:
    return np.nan_to_num(values, posinf=50.0, neginf=-50.0)
