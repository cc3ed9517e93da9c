"""Makers of blocks about the alarm and the service, from their committed results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import wrap
from typing import Any

from benchmarks.alarm.summary import to_lines
from benchmarks.service import fuzz, kill, load, soak

FIGURES = Path(__file__).parents[1] / "figures"


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FIGURES / name).read_text("utf-8"))
    return found


def alarm_held_out() -> str:
    """False alarms and delays on data that chose nothing."""
    return "\n".join(to_lines(_read("alarm.json"))).strip()


def alarm_design() -> str:
    """The same on the data that the bets were tried on."""
    return "\n".join(to_lines(_read("alarm-design.json"))).strip()


def service_load() -> str:
    """Requests per second, and the price of knowing."""
    found = _read("service.json")["load"]
    machine = [found["machine"][key] for key in ("processor", "cores", "caches", "memory")]
    told = f"Measured on {machine[0]}, {machine[1]} cores, {machine[2]}, {machine[3]}."
    return "\n".join([*load.lines(found), "", told])


def service_faults() -> str:
    """What kills, broken requests and a long run did."""
    results = _read("service.json")
    parts = {"kill": kill.lines, "fuzz": fuzz.lines, "soak": soak.lines}
    measured = {name: lines for name, lines in parts.items() if name in results}
    told = [line for name, lines in measured.items() for line in lines(results[name])]
    bare = [line for line in told if not line.startswith("status ")]  # the bytes of a request
    return "\n".join(["```text", *(part for line in bare for part in wrap(line, 100)), "```"])


PRODUCTION: dict[str, Callable[[], str]] = {
    maker.__name__: maker for maker in (alarm_held_out, alarm_design, service_load, service_faults)
}
