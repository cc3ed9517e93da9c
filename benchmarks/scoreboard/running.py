"""Running: one problem and seed at a time, several of them at once, results kept as they come."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scoreboard.cells import make_variants
from benchmarks.scoreboard.data import load
from benchmarks.scoreboard.measuring import measure
from benchmarks.scoreboard.methods import COVERAGES, Methods
from benchmarks.scoreboard.problems import PROBLEMS

ADAPTIVE = ("adaptive attack", "adaptive attack, CIFAR-10")
RESULTS = "results.json"

Job = tuple[str, int]


def run_job(job: Job, folder: Path, device: str | None, quick: bool) -> dict[str, Any]:
    """The record of one problem and seed."""
    begun = time.monotonic()
    name, seed = job
    if name in ADAPTIVE:
        from benchmarks.scoreboard.torch.adaptive import STUDIES, study

        given = STUDIES[name]
        data = load(folder, given.dataset, seed)
        data = data.flat() if given.kind == "mlp" else data
        found = study(given, data, seed, device or "cpu", quick)
        return {"runs": found, "seconds": round(time.monotonic() - begun, 1)}
    problem = PROBLEMS[name]
    data = load(folder, problem.dataset, seed)
    data = data.flat() if problem.kind == "mlp" else data
    data = data.few() if quick else data
    record: dict[str, Any] = {}
    for variant in make_variants(problem, data, seed, device, quick):
        record[variant.name] = measure(Methods(variant, data.n_classes, device, seed), seed)
    record["seconds"] = round(time.monotonic() - begun, 1)
    return record


def run_jobs(
    jobs: Sequence[Job],
    folder: Path,
    out: Path,
    device: str | None,
    quick: bool,
    workers: int,
    say: Callable[[str], None],
) -> None:
    """Run all jobs and write what is there after each; one that fails stops no other."""
    out.mkdir(parents=True, exist_ok=True)
    results = read(out)
    begun = time.monotonic()
    # A forked process cannot use CUDA.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        workers, mp_context=context, initializer=_share_cores, initargs=(workers,)
    ) as pool:
        pending = {pool.submit(run_job, job, folder, device, quick): job for job in jobs}
        for future in as_completed(pending):
            (name, seed), error = pending[future], future.exception()
            took = f"{time.monotonic() - begun:6.1f} s  {name}, seed {seed}"
            if error is not None:
                say(f"{took}: {type(error).__name__}: {error}")
                continue
            record = future.result()
            results["runs"].setdefault(name, {})[str(seed)] = record
            write(out, results)
            say(f"{took}: {record['seconds']} s, {_glance(record)}")


def read(out: Path) -> dict[str, Any]:
    """The results so far."""
    path = out / RESULTS
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return found
    return {"coverages": list(COVERAGES), "runs": {}}


def write(out: Path, results: dict[str, Any]) -> None:
    """Replace the results at once: a run may be stopped at any time."""
    part = out / f"{RESULTS}.part"
    part.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    os.replace(part, out / RESULTS)


def _glance(record: dict[str, Any]) -> str:
    """A record in a line, to watch a run by."""
    if "plain" not in record:
        return json.dumps(record["runs"])
    names = record["plain"]["methods"]
    cells = [
        cell
        for part in record.values()
        if isinstance(part, dict)
        for cell in part["cells"].values()
    ]
    shares, softmax = (
        np.round(100 * np.mean([cell["wrong"][names.index(each)] for cell in cells], axis=0), 2)
        for each in ("iknow", "softmax")
    )
    return f"error {record['plain']['model_error']:.4f}, wrong IK {shares}%, softmax {softmax}%"


def _share_cores(workers: int) -> None:
    """Each process takes its part of the cores."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(max(1, (os.cpu_count() or 1) // workers))
