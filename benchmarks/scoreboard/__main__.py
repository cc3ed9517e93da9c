"""Run the scoreboard: python -m benchmarks.scoreboard DATA --out DIR [--device cuda]."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarks.scoreboard.problems import PROBLEMS
from benchmarks.scoreboard.running import ADAPTIVE, run_jobs


def main(arguments: list[str] | None = None) -> None:
    """Run problems, seed by seed, and write results.json."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scoreboard", description=__doc__)
    parser.add_argument("data", type=Path, help="the folder that benchmarks.scoreboard.pack wrote")
    parser.add_argument("--out", type=Path, required=True, help="where to write, and to continue")
    parser.add_argument("--device", help="such as cuda, for networks and search")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", nargs="*", choices=[*PROBLEMS, *ADAPTIVE], metavar="NAME")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 2))
    parser.add_argument("--quick", action="store_true", help="few samples, to see that it runs")
    asked = parser.parse_args(arguments)
    names = asked.only or [*ADAPTIVE, *PROBLEMS]
    jobs = [
        (name, seed) for seed in range(asked.first, asked.first + asked.seeds) for name in names
    ]
    run_jobs(
        jobs, asked.data, asked.out, asked.device, asked.quick, asked.jobs,
        lambda line: print(line, flush=True),
    )  # fmt: skip


if __name__ == "__main__":
    main()
