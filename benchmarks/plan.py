"""How much to measure: sizes and rounds of a full run, and of a quick one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.synthetic import Shape
from iknow.errors import InputError

SECTIONS = ("mnist", "synthetic", "pixels", "scaling", "selection", "memory", "startup")
PAUSE = 0.1
FAMILY_ROWS, FAMILY_FEATURES = "rows", "features"


@dataclass(frozen=True)
class Effort:
    """Rounds of a race, the approximate time limit of a contestant in one, and latencies."""

    repeats: int
    seconds_per_call: float
    single_queries: int
    latency_seconds: float
    pause: float = 0.0


@dataclass(frozen=True)
class Plan:
    """What a run measures.

    mnist_rows: training samples, with a fifth as many validation and test samples; None for all.
    scaling: sizes, by the quantity that grows. memory: cases to measure the peak of, each with k.
    """

    sections: tuple[str, ...]
    quick: bool
    effort: Effort
    scaling_effort: Effort
    mnist_rows: int | None
    synthetic: dict[str, Shape]
    pixels: dict[str, Shape]
    scaling: dict[str, dict[str, Shape]]
    memory: tuple[tuple[Shape, int], ...]
    bundle: Shape
    selection_sizes: tuple[int, ...]
    import_repeats: int


def make_plan(sections: str | None, quick: bool, repeats: int | None) -> Plan:
    """The plan for the options of the command line.

    sections: names separated by commas; None for all.
    """
    chosen = _choose(sections)
    if repeats is not None and repeats < 1:
        raise InputError(f"a race needs at least one round; got {repeats} repeats")
    plan = _quick(chosen) if quick else _full(chosen)
    if repeats is None:
        return plan
    return replace(
        plan,
        effort=replace(plan.effort, repeats=repeats),
        scaling_effort=replace(plan.scaling_effort, repeats=repeats),
    )


def _choose(sections: str | None) -> tuple[str, ...]:
    if sections is None:
        return SECTIONS
    asked = [name.strip() for name in sections.split(",") if name.strip()]
    unknown = [name for name in asked if name not in SECTIONS]
    if unknown or not asked:
        raise InputError(
            f"no section is named {', '.join(unknown) or 'nothing'}: choose from "
            f"{', '.join(SECTIONS)}, separated by commas"
        )
    return tuple(name for name in SECTIONS if name in asked)


def _full(sections: tuple[str, ...]) -> Plan:
    million = Shape(1_000_000, 64, 10, 1_000)
    return Plan(
        sections=sections,
        quick=False,
        effort=Effort(
            5, seconds_per_call=0.8, single_queries=1_000, latency_seconds=5.0, pause=PAUSE
        ),
        scaling_effort=Effort(
            3, seconds_per_call=0.4, single_queries=0, latency_seconds=0.0, pause=PAUSE
        ),
        mnist_rows=None,
        synthetic={
            "synthetic, 10 classes": million,
            "synthetic, 1,000 classes": replace(million, n_classes=1_000),
            "isotropic": replace(million, isotropic=True),
        },
        pixels={"pixels": Shape(100_000, 784, 10, 2_000)},
        scaling={
            FAMILY_ROWS: {
                f"rows {n:,}": Shape(n, 64, 10, 1_000)
                for n in (10_000, 30_000, 100_000, 300_000, 1_000_000)
            },
            FAMILY_FEATURES: {
                f"features {d}": Shape(50_000, d, 10, 2_000) for d in (2, 10, 32, 64, 128, 784)
            },
        },
        memory=(
            (Shape(50_000, 32, 10, 10_000), 10),
            (million, 10),
            (replace(million, n_classes=1_000), 0),
            (Shape(100_000, 784, 10, 2_000), 0),
        ),
        bundle=million,
        selection_sizes=(10_000, 30_000, 100_000),
        import_repeats=5,
    )


def _quick(sections: tuple[str, ...]) -> Plan:
    small = Shape(10_000, 64, 10, 200)
    return Plan(
        sections=sections,
        quick=True,
        effort=Effort(2, seconds_per_call=0.05, single_queries=100, latency_seconds=0.5),
        scaling_effort=Effort(1, seconds_per_call=0.02, single_queries=0, latency_seconds=0.0),
        mnist_rows=2_500,
        synthetic={
            "synthetic, 10 classes": small,
            "synthetic, 30 classes": replace(small, n_classes=30),
            "isotropic": replace(small, isotropic=True),
        },
        pixels={"pixels": Shape(2_000, 784, 10, 200)},
        scaling={
            FAMILY_ROWS: {f"rows {n:,}": Shape(n, 64, 10, 200) for n in (1_000, 4_000, 16_000)},
            FAMILY_FEATURES: {f"features {d}": Shape(4_000, d, 10, 200) for d in (2, 10, 32, 128)},
        },
        memory=((small, 10),),
        bundle=small,
        selection_sizes=(1_000, 3_000),
        import_repeats=1,
    )
