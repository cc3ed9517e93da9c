"""Makers of the blocks on the page about scale, from the results in docs/figures/scale."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "figures" / "scale"
GIGABYTE = 1e9


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return found


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], n_words: int = 1) -> str:
    """A table whose first columns are words and whose others are numbers."""
    rules = ["---" if i < n_words else "---:" for i in range(len(headings))]
    lines = [headings, rules, *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("| --- |", "|---|") for line in lines)


def _on(machine: dict[str, str], command: str) -> str:
    processor, cores = machine["processor"], machine["cores"]
    return f"\nBy `python -m {command}` on {processor}, {cores} cores, {machine['memory']}."


def deciding_table() -> str:
    """Decisions by bounds beside bare products."""
    parts = [_read("deciding"), _read("embeddings")]
    rows = []
    for layer in (each for part in parts for each in part["layers"]):
        times = dict(layer["us"])
        products, _ = times.pop("products"), times.pop("dense index")
        shape = " × ".join(f"{size:,}" for size in layer["shape"])
        for rule, took in times.items():
            name, quorum = rule.partition("(")[0], rule.partition("quorum=")[2]
            name += f", quorum {quorum[:-1]}" if quorum else ""
            rows.append([layer["layer"], shape, name, f"{products / took:.1f}"])
    headings = ("layer", "rows × features", "rule", "times faster than products")
    told = dict.fromkeys(_on(part["machine"], "benchmarks.deciding") for part in parts)
    return "\n".join([_table(headings, rows, 3), *told, "", "Processor time, best of several."])


def disk_table() -> str:
    """An index larger than memory."""
    rows = []
    for name in ("disk",):
        found = _read(name)["figures"]
        batch, alone, bare = (
            found[key]["cpu_ms"] for key in ("decide_batch", "decide_alone", "products_batch")
        )
        rows.append(
            [
                f"{found['rows']:,} × {found['features']}",
                f"{4 * found['rows'] * found['features'] / GIGABYTE:.1f} GB",
                f"{found['peak_bytes'] / GIGABYTE:.2f} GB",
                f"{found['building_cpu_s']:.0f} s",
                f"{batch:.1f} ms",
                f"{alone:.0f} ms",
                f"{bare / batch:.1f}",
            ]
        )
    headings = (
        "rows × features",
        "rows on disk",
        "peak memory",
        "building",
        "a query in batches of 1,000",
        "a query alone",
        "faster than products from disk",
    )
    machine = _on(_read("disk")["machine"], "benchmarks.larger_than_memory")
    return f"{_table(headings, rows)}\n{machine} Times are of processors."


def sharding_table() -> str:
    """What shards cost on one machine."""
    results = _read("sharding")
    found = {name: each for name, each in results["found"].items() if isinstance(each, dict)}
    one = found["one index"]
    rows = [
        [name, *(f"{each[key] / one[key]:.2f}" for key in ("decide, µs", "gather, µs"))]
        for name, each in found.items()
    ]
    asked = results["arguments"]
    machine = _on(results["machine"], "benchmarks.sharding")
    headings = ("", "decide, relative to one index", "gather the 3 nearest of each class, relative")
    size = f"{asked['rows']:,} × {asked['features']}, {asked['queries']:,} queries at once."
    return f"{_table(headings, rows)}\n{machine} {size}"


def growth_table() -> str:
    """What a query costs as rows grow."""
    found = _read("growth")
    rows = [
        [
            f"{each['rows']:,}",
            f"{each['build_s']:.1f} s",
            f"{each['batch_us']:,.0f} µs",
            f"{each['alone_p50_us'] / 1000:.1f} ms",
            f"{each['products_us']:,.0f} µs" if "products_us" in each else "–",
        ]
        for each in found["sizes"]
    ]
    headings = ("rows", "building", "a query in batches", "alone, median", "bare products")
    told = (
        f"{found['features']} features, {found['classes']} classes, clustered; `{found['rule']}`."
    )
    machine = _on(found["machine"], "benchmarks.growth")
    return f"{_table(headings, rows, 0)}\n{machine} {told}"


def plan_text() -> str:
    """What a billion rows would take."""
    plan = _read("growth")["plan"]
    memory = plan["memory_each"] / 2**30
    per_million = plan["seconds_per_million"] / 3600, plan["core_hours_per_million"]
    parts = (
        f"**A plan for {plan['rows']:,} rows**, carried on from the last line, and so an estimate:",
        f"{plan['bytes_per_row']:,.0f} bytes for each row in memory,",
        f"{plan['bytes'] / 1e12:.2f} TB in all, on {plan['machines']} machines of {memory:.0f} GiB",
        f"with {plan['cores_each']} cores as here, a shard on each. Between the last two sizes the",
        f"time of a query grows as rows to the power of {plan['power']:.2f}; with that, a million",
        f"assertions take {per_million[0]:.1f} hours of all machines at once,",
        f"{per_million[1]:,.0f} core-hours: multiply by what a core costs you.",
    )
    return " ".join(parts)


SCALE: dict[str, Callable[[], str]] = {
    maker.__name__: maker
    for maker in (
        deciding_table, disk_table, sharding_table, growth_table, plan_text,
    )
}  # fmt: skip
