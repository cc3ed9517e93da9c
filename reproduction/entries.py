"""Cells as Markdown: the tables of one experiment, and lists of the cells that stand out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from reproduction.agreement import (
    CODE_HYBRIDS,
    Comparison,
    Measured,
    compare,
    count_agreeing,
    measure,
)
from reproduction.markdown import table_lines
from reproduction.protocol import Outcome
from reproduction.setups import Setup, find_setup
from reproduction.tables import METRICS, Key

NAMES = {
    "softmax": "softmax",
    "knn": "k-NN",
    "ball": "ε-ball",
    "h1": "H-1",
    "h1_code": "H-1, as in the code",
    "h2": "H-2",
    "default": "iknow's default",
}
CONDITIONS = ("nominal", "gaussian", "uniform", "large", "adversarial")
LAYERS = {"two": "two layers", "logit": "logit layer alone"}
HEADINGS = {"F_IK": "F_IK", "A_IK": "A_IK", "A_notIK": "A_¬IK"}
PLACE = ("dataset", "layers", "method", "condition", "metric")


class Experiment(NamedTuple):
    """An experiment, its outcomes, and their comparison with the paper."""

    setup: Setup
    outcomes: list[Outcome]
    measured: dict[Key, Measured]
    comparisons: list[Comparison]


def group_outcomes(outcomes: Iterable[Outcome]) -> list[Experiment]:
    """The outcomes by experiment, in their original order."""
    by_name: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_name.setdefault(outcome.name, []).append(outcome)
    experiments = []
    for name, found in by_name.items():
        setup = find_setup(name)
        measured = measure(found, setup.published)
        experiments.append(Experiment(setup, found, measured, compare(measured)))
    return experiments


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], n_words: int) -> Iterator[str]:
    """A table whose first `n_words` columns hold words and whose others hold numbers."""
    yield from table_lines(headings, rows, range(n_words))
    yield ""


def tables(experiment: Experiment) -> Iterator[str]:
    """A table for each set of layers and each condition that the paper has."""
    setup = experiment.setup
    agreeing, counted = count_agreeing(experiment.comparisons)
    beside = "" if setup.name == setup.published else f", beside the values of {setup.published}"
    yield f"## {setup.name}"
    yield ""
    yield f"{agreeing} of {counted} counted cells agree{beside}."
    yield ""
    texts = _texts(experiment)
    published = {(each.key.layers, each.key.perturbation) for each in experiment.comparisons}
    for layers, title in LAYERS.items():
        for condition in CONDITIONS:
            if (layers, condition) in published:
                yield f"**{title}, {condition}**"
                yield ""
                keys = {
                    name: [
                        Key(setup.published, layers, method, condition, each) for each in METRICS
                    ]
                    for method, name in NAMES.items()
                }
                rows = [[name, *(texts[key] for key in found)] for name, found in keys.items()]
                yield from table(["method", *HEADINGS.values()], rows, n_words=4)


def lists(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """The cells that do not agree, the farthest first, and those that are not counted."""
    apart = [each for each in comparisons if each.counted and not each.agrees]
    apart.sort(key=lambda each: -abs(each.ours.mean - each.published))
    yield f"## The {len(apart)} cells that do not agree"
    yield ""
    rows = [[*_row(each), f"{each.ours.mean - each.published:+.3f}"] for each in apart]
    yield from table([*PLACE, "published", "ours", "difference"], rows, n_words=5)
    uncounted = [each for each in comparisons if not each.counted]
    yield f"## The {len(uncounted)} cells that are not counted"
    yield ""
    yield from table([*PLACE, "published", "ours"], map(_row, uncounted), n_words=5)


def _texts(experiment: Experiment) -> dict[Key, str]:
    """The text of each cell; one that the paper does not have holds our value alone."""
    texts = {key: number(ours) for key, ours in experiment.measured.items()}
    texts |= {each.key: beside(each) for each in experiment.comparisons}
    for each in compare(experiment.measured, code_hybrids=True):
        if each.key.method in CODE_HYBRIDS:
            texts[each.key._replace(method=CODE_HYBRIDS[each.key.method])] = beside(each)
    return texts


def shares_of(comparisons: Sequence[Comparison]) -> list[str]:
    """How many cells are counted and agree, the share, and that of those within 0.05."""
    agreeing, counted = count_agreeing(comparisons)
    close = sum(each.is_close for each in comparisons if each.counted)
    shares = (f"{part / counted:.1%}" if counted else "–" for part in (agreeing, close))
    return [str(counted), str(agreeing), *shares]


def beside(comparison: Comparison) -> str:
    """The published value, then ours, and whether they agree; in brackets if it does not count."""
    text = f"{comparison.published:.3f} → {number(comparison.ours)}"
    if not comparison.counted:
        return f"({text})"
    return f"{text} {'✓' if comparison.agrees else '✗'}"


def _row(comparison: Comparison) -> list[str]:
    key = comparison.key
    place = [key.dataset, key.layers, NAMES[key.method], key.perturbation, HEADINGS[key.metric]]
    return [*place, f"{comparison.published:.3f}", number(comparison.ours)]


def number(ours: Measured) -> str:
    """The mean and the standard deviation of our seeds."""
    return f"{ours.mean:.3f} ± {ours.deviation:.3f}" if ours.n_seeds else "–"
