"""`python -m benchmarks.service load | fuzz | kill | soak`: measures, prints, writes JSON."""

from __future__ import annotations

import argparse
import json
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine

FIGURES = Path("docs/figures/service.json")
DEFAULTS = {"load": 0, "fuzz": 100_000, "kill": 220, "soak": 200_000}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service", description=__doc__)
    parser.add_argument("what", choices=DEFAULTS)
    parser.add_argument("--requests", "--kills", type=int, help="how many", dest="amount")
    parser.add_argument("--out", type=Path, default=FIGURES, help="where results are kept")
    asked = parser.parse_args()
    measuring = import_module(f"benchmarks.service.{asked.what}")
    start = time.monotonic()
    amount = DEFAULTS[asked.what] if asked.amount is None else asked.amount
    found: dict[str, Any] = measuring.measure(amount)
    found |= {"machine": describe_machine(), "minutes": round((time.monotonic() - start) / 60, 1)}
    kept = json.loads(asked.out.read_text("utf-8")) if asked.out.exists() else {}
    asked.out.write_text(json.dumps(kept | {asked.what: found}, indent=1) + "\n", "utf-8")
    print("\n".join(measuring.lines(found)))


if __name__ == "__main__":
    main()
