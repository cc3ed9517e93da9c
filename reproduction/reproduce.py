"""Reproducing the paper: all seeds of some experiments, kept as they finish.

Each seed runs in its own process, as many at a time as there are cores. A finished seed never runs
again; an interrupted one leaves nothing behind.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from iknow.errors import InputError
from iknow.storage.files import write_bytes
from reproduction.comparison import write_comparison
from reproduction.protocol import Outcome, run_seed
from reproduction.results import recall, store, to_csv
from reproduction.setups import SETUPS, Setup, find_setup

# Called for each seed: the experiment's name, the seed, and whether it had run before.
Report = Callable[[str, int, bool], None]


def choose_setups(name: str, *, quick: bool = False) -> list[Setup]:
    """The experiments that a name on the command line stands for."""
    setups = list(SETUPS.values()) if name == "all" else [find_setup(name)]
    return [setup.quick() for setup in setups] if quick else setups


def list_runs(setups: Sequence[Setup], n_seeds: int | None) -> list[tuple[Setup, int]]:
    """The seeds to run of each experiment: 0, 1, ..., n_seeds of them or its own default."""
    if n_seeds is not None and n_seeds < 1:
        raise InputError(f"at least one seed is needed; got {n_seeds}")
    return [(setup, seed) for setup in setups for seed in range(n_seeds or setup.seeds)]


def reproduce(
    runs: Sequence[tuple[Setup, int]],
    out: Path,
    *,
    jobs: int | None = None,
    device: str = "cpu",
    report: Report = lambda name, seed, kept: None,
) -> list[Path]:
    """Run unfinished seeds, then write `results.csv` and `comparison.md`; returns their paths.

    jobs: how many seeds to run at a time; by default one per core. device: see `run_seed`.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"results go into a folder; {out} is a file")
    outcomes: dict[tuple[str, int], Outcome] = {}
    missing: list[tuple[Setup, int]] = []
    for setup, seed in runs:
        kept = recall(out, setup, seed)
        if kept is None:
            missing.append((setup, seed))
        else:
            outcomes[setup.name, seed] = kept
            report(setup.name, seed, True)
    for setup, outcome in _run_all(missing, jobs or os.cpu_count() or 1, device):
        store(out, setup, outcome)
        outcomes[setup.name, outcome.seed] = outcome
        report(setup.name, outcome.seed, False)
    ordered = [outcomes[setup.name, seed] for setup, seed in runs]
    return [
        write_bytes(out / "results.csv", to_csv(ordered)),
        write_comparison(out / "comparison.md", ordered, quick=any(s.max_samples for s, _ in runs)),
    ]


def _run_all(
    runs: Sequence[tuple[Setup, int]], jobs: int, device: str
) -> Iterator[tuple[Setup, Outcome]]:
    """The outcomes, in the order in which they finish."""
    if jobs == 1 or len(runs) < 2:
        for setup, seed in runs:
            yield setup, run_seed(setup, seed, device)
        return
    # Torch's threads do not survive a fork; a fresh process has none.
    with ProcessPoolExecutor(min(jobs, len(runs)), mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(run_seed, setup, seed, device): setup for setup, seed in runs}
        try:
            for future in as_completed(list(waiting)):
                yield waiting.pop(future), future.result()
        except Exception:
            # After a failure start nothing new, but keep the results of seeds already running.
            for future in as_completed([each for each in waiting if not each.cancel()]):
                if future.exception() is None:
                    yield waiting[future], future.result()
            raise
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
