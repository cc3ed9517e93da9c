"""What to quote: false alarms without a change, and delays with one."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.alarm.peers import Rang
from benchmarks.alarm.streams import BEFORE, NO_CHANGE
from reproduction.markdown import table_lines


def summarize(rang: Rang) -> dict[str, dict[str, dict[str, Any]]]:
    """By detector and kind of stream.

    Without a change: streams, and on which share of them it rang. With one: on which share it rang
    before the change (a false alarm, and then no delay counts), on which it missed the change, and
    the median and the 95% quantile of the delay in samples; None where a detector misses too often
    for that.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for kind, detectors in rang.items():
        for name, firsts in detectors.items():
            record: dict[str, Any] = {"streams": len(firsts)}
            if kind == NO_CHANGE:
                record["rang"] = _share([first is not None for first in firsts])
            else:
                early = [first is not None and first <= BEFORE for first in firsts]
                late = [f for f, too_early in zip(firsts, early, strict=True) if not too_early]
                delays = [np.inf if first is None else first - BEFORE for first in late]
                record |= {
                    "too early": _share(early),
                    "missed": _share([first is None for first in late]),
                    "median": _quantile(delays, 0.5),
                    "95%": _quantile(delays, 0.95),
                }
            found.setdefault(name, {})[kind] = record
    return found


def _share(flags: list[bool]) -> float | None:
    return float(np.mean(flags)) if flags else None


def _quantile(delays: list[float], share: float) -> int | None:
    if not delays:
        return None
    value = float(np.quantile(delays, share, method="higher"))
    return int(value) if np.isfinite(value) else None


def to_lines(results: dict[str, Any]) -> list[str]:
    """A Markdown table for each scene."""
    lines: list[str] = []
    for scene in results["scenes"]:
        kinds = [kind for kind in scene["kinds"] if kind != NO_CHANGE]
        header = ["detector", "false alarms", *kinds]
        rows = [
            [name, _percent(cells[NO_CHANGE]["rang"]), *(_delay(cells[kind]) for kind in kinds)]
            for name, cells in scene["detectors"].items()
        ]
        lines += [
            "",
            f"**{scene['name']}** ({scene['about']})",
            "",
            *table_lines(header, rows, words=(0,)),
        ]
    return lines[1:]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.3g}%"


def _delay(cell: dict[str, Any]) -> str:
    median, most = (cell[key] if cell[key] is not None else "never" for key in ("median", "95%"))
    early = f", {_percent(cell['too early'])} too early" if cell["too early"] else ""
    return "always too early" if cell["missed"] is None else f"{median} / {most}{early}"
