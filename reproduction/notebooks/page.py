"""The page: the notebooks' figures next to ours, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from iknow.storage.files import write_bytes
from reproduction.agreement import Comparison, Measured, count_agreeing
from reproduction.entries import table
from reproduction.notebooks.compare import compare_printed, measure_all
from reproduction.notebooks.conventions import CONVENTIONS
from reproduction.notebooks.printed import METRICS, STRETCHES, key_of
from reproduction.notebooks.settings import NOTEBOOKS, Notebook
from reproduction.notebooks.words import (
    ABOUT,
    BANNER,
    HEADINGS,
    INTRODUCTION,
    KINDS,
    LEGEND,
    STRETCHED,
    describe,
)
from reproduction.protocol import Outcome
from reproduction.tables import Key


def write_page(path: Path, outcomes: Sequence[Outcome], *, quick: bool = False) -> Path:
    """Write the page about some outcomes, in one step."""
    page = "\n".join(_page(outcomes, quick)).rstrip()
    return write_bytes(path, f"{page}\n".encode())


def _page(outcomes: Sequence[Outcome], quick: bool) -> Iterator[str]:
    measured = measure_all(outcomes)
    compared = compare_printed(measured)
    n_seeds = len({outcome.seed for outcome in outcomes})
    yield from ["# The authors' notebooks", "", INTRODUCTION, ""]
    if quick:
        yield from [BANNER, ""]
    yield from [LEGEND.format(n_seeds=n_seeds), "", "## Agreement", ""]
    yield from _agreement(list(compared.values()))
    for notebook in NOTEBOOKS:
        if notebook.trials:
            yield from _tables(notebook, measured, compared)
    yield from _stretches(outcomes)
    yield from _planes(measured, compared)
    yield from ["## What they show about the paper's experiments", ""]
    rows = [list(each) for each in CONVENTIONS]
    yield from table(["question", "notebook, cell", "what it does"], rows, n_words=3)


def _agreement(comparisons: Sequence[Comparison]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[Comparison]] = {
        (name, kind): [] for name in ("series", "blobs", "plane") for kind in KINDS
    }
    for each in comparisons:
        groups[each.key.dataset.split()[0], each.key.method.split()[0]].append(each)
    rows = [[name, KINDS[kind], *_shares(some)] for (name, kind), some in groups.items() if some]
    rows.append(["**all**", "", *_shares(comparisons)])
    headings = ["notebook", "", "counted", "agree", "share", "within 0.05 alone"]
    yield from table(headings, rows, n_words=2)


def _shares(comparisons: Sequence[Comparison]) -> list[str]:
    agreeing, counted = count_agreeing(comparisons)
    close = sum(each.is_close for each in comparisons if each.counted)
    shares = [f"{part / counted:.1%}" if counted else "–" for part in (agreeing, close)]
    return [str(counted), str(agreeing), *shares]


def _tables(
    notebook: Notebook, measured: Mapping[Key, Measured], compared: Mapping[Key, Comparison]
) -> Iterator[str]:
    """A table for each kind of rule."""

    def row(trial: str, label: str) -> list[str]:
        keys = [key_of(notebook.name, trial, metric) for metric in METRICS]
        return [label, *(_text(key, measured, compared) for key in keys)]

    accuracy = _text(key_of(notebook.name, "network", "accuracy"), measured, compared)
    yield from [f"## {notebook.name}: {notebook.file}", "", ABOUT[notebook.name], ""]
    yield from [f"Accuracy of the network: {accuracy}.", ""]
    if notebook.watched:
        metrics = [f"after {epochs} epochs" for epochs in notebook.watched]
        keys = [key_of(notebook.name, "network", metric) for metric in metrics]
        cells = [_text(key, measured, compared) for key in keys]
        yield from table(["on validation data", *metrics], [["accuracy", *cells]], len(metrics) + 1)
    for kind in dict.fromkeys(trial.kind for trial in notebook.trials):
        rows = [row(each.name, describe(each)) for each in notebook.trials if each.kind == kind]
        yield from [f"### {notebook.name}, {KINDS[kind]}", ""]
        yield from table([KINDS[kind], *HEADINGS], rows, n_words=1 + len(METRICS))
    if notebook.chooses:
        best = _text(key_of(notebook.name, "chosen", "F_IK on validation"), measured, compared)
        yield from [f"### {notebook.name}, {KINDS['chosen']}", ""]
        yield from [f"Largest F_IK on validation data: {best}.", ""]
        rows = [row("chosen", "ε-ball"), row("relative", "RelativeBall (ours)")]
        yield from table(["on test data", *HEADINGS], rows, n_words=1 + len(METRICS))


def _stretches(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """By how much a radius of the input grows up to each layer: theirs, ours, and the bound."""
    facts = [outcome.facts for outcome in outcomes if outcome.name == "blobs"]
    if not facts:
        return
    layers = list(facts[0]["product_norms"])
    rows = [[file, *(f"{each:.2f}" for each in values)] for file, values in STRETCHES.items()]
    for name, key in (("ours", "product_norms"), ("ours, a true bound", "norm_products")):
        grown = np.array([[each[key][layer] for layer in layers] for each in facts])
        deviations = grown.std(axis=0, ddof=1) if len(grown) > 1 else np.zeros(len(layers))
        pairs = zip(grown.mean(axis=0), deviations, strict=True)
        rows.append([name, *(f"{mean:.2f} ± {deviation:.2f}" for mean, deviation in pairs)])
    yield from ["### blobs, how much the weights stretch a radius", "", STRETCHED, ""]
    yield from table(["", *layers], rows, n_words=1)


def _planes(measured: Mapping[Key, Measured], compared: Mapping[Key, Comparison]) -> Iterator[str]:
    planes = [each for each in NOTEBOOKS if each.curve]
    yield from [f"## plane: {planes[0].file}", "", ABOUT["plane"], ""]
    rows = [
        [
            each.name.removeprefix("plane "),
            _text(key_of(each.name, "network", "accuracy"), measured, compared),
            _text(key_of(each.name, "curve", "largest F_IK"), measured, compared),
        ]
        for each in planes
    ]
    yield from table(["noise", "accuracy of the network", "largest F_IK"], rows, n_words=3)


def _text(key: Key, measured: Mapping[Key, Measured], compared: Mapping[Key, Comparison]) -> str:
    """The printed figure, then ours; ours alone where the notebook has none."""
    if key not in measured or not measured[key].n_seeds:
        return f"({compared[key].published:.3f} → –)" if key in compared else "–"
    ours = f"{measured[key].mean:.3f} ± {measured[key].deviation:.3f}"
    if key not in compared:
        return ours
    comparison = compared[key]
    text = f"{comparison.published:.3f} → {ours}"
    if not comparison.counted:
        return f"({text})"
    return f"{text} {'✓' if comparison.agrees else '✗'}"
