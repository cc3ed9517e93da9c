"""The comparison page: the paper beside ours, as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from iknow.paper.agreement import (
    CODE_HYBRIDS,
    Comparison,
    Measured,
    compare,
    count_agreeing,
    measure,
)
from iknow.paper.claims import Claim, list_claims
from iknow.paper.protocol import Outcome
from iknow.paper.setups import SETUPS, Setup, find_setup
from iknow.paper.tables import ACCURACIES, METRICS, Key, load_published
from iknow.paper.writing import write_bytes

NAMES = {
    "softmax": "softmax",
    "knn": "k-NN",
    "ball": "ε-ball",
    "h1": "H-1",
    "h1_code": "H-1, as in the code",
    "h2": "H-2",
    "h2_code": "H-2, as in the code",
    "relative": "RelativeBall (ours)",
}
CONDITIONS = ("nominal", "gaussian", "uniform", "large", "adversarial")
LAYERS = {"two": "two layers", "logit": "logit layer alone"}
HEADINGS = {"F_IK": "F_IK", "A_IK": "A_IK", "A_notIK": "A_¬IK"}


class Experiment(NamedTuple):
    """An experiment, its outcomes, and what they are beside the paper."""

    setup: Setup
    outcomes: list[Outcome]
    measured: dict[Key, Measured]
    comparisons: list[Comparison]


def write_comparison(path: Path, outcomes: Sequence[Outcome], *, quick: bool = False) -> Path:
    """Write the page about some outcomes, in one step."""
    by_name: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_name.setdefault(outcome.name, []).append(outcome)
    experiments = []
    for name, found in by_name.items():
        setup = find_setup(name)
        measured = measure(found, setup.published)
        experiments.append(Experiment(setup, found, measured, compare(measured)))
    lines = list(_page(experiments, quick))
    return write_bytes(path, ("\n".join(lines) + "\n").encode())


def _page(experiments: Sequence[Experiment], quick: bool) -> Iterator[str]:
    yield "# The paper beside ours"
    yield ""
    if quick:
        yield "**A quick run on few samples: it shows that all runs, the numbers mean nothing.**"
        yield ""
    yield (
        "Each cell: the published value, then our mean ± standard deviation over the seeds. ✓: "
        "they agree (within 0.05, or within two standard deviations); ✗: they do not; in brackets: "
        "not counted, as the group holds fewer than 1% of the samples."
    )
    yield ""
    # Variants and other readings have pages' worth of tables, but the score is of the paper's own.
    main = [each for each in experiments if each.setup.name == each.setup.published]
    if main:
        yield from _agreement(main)
        yield from _claims(main)
    yield from _base_classifiers(experiments)
    for experiment in experiments:
        yield from _tables(experiment)
    yield from _lists(main)


def _agreement(experiments: Sequence[Experiment]) -> Iterator[str]:
    comparisons = [each for experiment in experiments for each in experiment.comparisons]
    code = [each for e in experiments for each in compare(e.measured, code_hybrids=True)]
    yield "## Agreement"
    yield ""
    yield f"**{_score(comparisons)}**"
    yield ""
    yield f"With the hybrids as the authors' code combines them: {_score(code)}"
    yield ""
    groupings: dict[str, Callable[[Key], str]] = {
        "dataset": lambda key: key.dataset,
        "layers": lambda key: LAYERS[key.layers],
        "method": lambda key: NAMES[key.method],
        "condition": lambda key: key.perturbation,
        "metric": lambda key: HEADINGS[key.metric],
    }
    for title, group in groupings.items():
        parts: dict[str, list[Comparison]] = {}
        for each in comparisons:
            parts.setdefault(group(each.key), []).append(each)
        yield f"| by {title} | agree | counted | share |"
        yield "|---|---:|---:|---:|"
        for name, part in parts.items():
            agreeing, counted = count_agreeing(part)
            yield f"| {name} | {agreeing} | {counted} | {_percent(agreeing, counted)} |"
        yield ""


def _claims(experiments: Sequence[Experiment]) -> Iterator[str]:
    yield "## The paper's claims"
    yield ""
    yield (
        "In how many of our seeds each claim is true, and whether the paper's own numbers bear it "
        "out. ✓: true in every seed; ✗: false in half of them or more; ~: between."
    )
    yield ""
    yield "| claim | dataset | paper's numbers | our seeds | |"
    yield "|---|---|---|---:|---|"
    rows = [row for experiment in experiments for row in _claim_rows(experiment)]
    for _, row in sorted(rows, key=lambda each: each[0]):
        yield row
    yield ""


def _claim_rows(experiment: Experiment) -> Iterator[tuple[int, str]]:
    setup = experiment.setup
    last = "large" if setup.attack is None else "adversarial"
    published = load_published()
    logit = Key(setup.published, "logit", "ball", last, "F_IK") in published
    for i, claim in enumerate(list_claims(setup.published, last=last, logit=logit)):
        true = sum(_is_true(claim, outcome) for outcome in experiment.outcomes)
        n = len(experiment.outcomes)
        mark = "✓" if true == n else "~" if true > n / 2 else "✗"
        paper = "true" if claim.holds(published) else "false"
        # The one claim about a single dataset has the highest number and comes last.
        yield i, f"| {claim.text} | {claim.dataset} | {paper} | {true} of {n} | {mark} |"


def _is_true(claim: Claim, outcome: Outcome) -> bool:
    return claim.holds(
        {
            Key(claim.dataset, cell.layers, cell.method, cell.perturbation, cell.metric): (
                float("nan") if cell.value is None else cell.value
            )
            for cell in outcome.cells
        }
    )


def _base_classifiers(experiments: Sequence[Experiment]) -> Iterator[str]:
    yield "## Base classifiers"
    yield ""
    yield (
        "| experiment | seeds | published accuracy | test accuracy | epochs | k, two layers "
        "| coverage on validation data |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for experiment in experiments:
        facts = [outcome.facts for outcome in experiment.outcomes if outcome.facts]
        if not facts:
            continue
        accuracies = [each["accuracy"]["nominal"] for each in facts]
        yield (
            f"| {experiment.setup.name} | {len(facts)} "
            f"| {ACCURACIES[experiment.setup.published]:.4f} | {_span(accuracies, '.4f')} "
            f"| {_span([each['epochs'] for each in facts], 'd')} "
            f"| {_span([each['chosen']['two']['k'] for each in facts], 'd')} "
            f"| {_span([each['chosen']['two']['coverage'] for each in facts], '.3f')} |"
        )
    yield ""


def _tables(experiment: Experiment) -> Iterator[str]:
    setup = experiment.setup
    agreeing = count_agreeing(experiment.comparisons)
    yield f"## {setup.name}"
    yield ""
    if setup.name in SETUPS and setup.name == setup.published:
        yield f"{agreeing[0]} of {agreeing[1]} counted cells agree."
    else:
        yield (
            f"Beside the published values of {setup.published}: {agreeing[0]} of {agreeing[1]} "
            "counted cells agree."
        )
    yield ""
    compared = {each.key: each for each in experiment.comparisons}
    code = {each.key: each for each in compare(experiment.measured, code_hybrids=True)}
    for layers, title in LAYERS.items():
        if not any(key.layers == layers for key in compared):
            continue
        for condition in CONDITIONS:
            if not any(key.perturbation == condition for key in compared):
                continue
            yield f"**{title}, {condition}**"
            yield ""
            yield "| method | " + " | ".join(HEADINGS[each] for each in METRICS) + " |"
            yield "|---|---|---|---|"
            for method, name in NAMES.items():
                yield (
                    f"| {name} | "
                    + " | ".join(
                        _cell(
                            experiment,
                            compared,
                            code,
                            Key(setup.published, layers, method, condition, metric),
                        )
                        for metric in METRICS
                    )
                    + " |"
                )
            yield ""


def _cell(
    experiment: Experiment,
    compared: dict[Key, Comparison],
    code: dict[Key, Comparison],
    key: Key,
) -> str:
    originals = {ours: paper for paper, ours in CODE_HYBRIDS.items()}
    if key.method in originals:
        found = code.get(key._replace(method=originals[key.method]))
    else:
        found = compared.get(key)
    if found is None:
        return _number(experiment.measured[key])
    text = f"{found.published:.3f} → {_number(found.ours)}"
    if not found.counted:
        return f"({text})"
    return f"{text} {'✓' if found.agrees else '✗'}"


def _lists(experiments: Sequence[Experiment]) -> Iterator[str]:
    comparisons = [each for experiment in experiments for each in experiment.comparisons]
    apart = [each for each in comparisons if each.counted and not each.agrees]
    apart.sort(key=lambda each: -abs(each.ours.mean - each.published))
    yield f"## The {len(apart)} cells that do not agree"
    yield ""
    yield "| dataset | layers | method | condition | metric | published | ours | difference |"
    yield "|---|---|---|---|---|---:|---:|---:|"
    for each in apart:
        difference = each.ours.mean - each.published
        numbers = f"{each.published:.3f} | {_number(each.ours)} | {difference:+.3f}"
        yield f"| {_place(each.key)} | {numbers} |"
    yield ""
    out = [each for each in comparisons if not each.counted]
    yield f"## The {len(out)} cells that are not counted"
    yield ""
    yield "| dataset | layers | method | condition | metric | published | ours |"
    yield "|---|---|---|---|---|---:|---:|"
    for each in out:
        yield f"| {_place(each.key)} | {each.published:.3f} | {_number(each.ours)} |"


def _place(key: Key) -> str:
    metric = HEADINGS[key.metric]
    return " | ".join([key.dataset, key.layers, NAMES[key.method], key.perturbation, metric])


def _number(ours: Measured) -> str:
    return f"{ours.mean:.3f} ± {ours.deviation:.3f}" if ours.n_seeds else "–"


def _span(values: Sequence[float], form: str) -> str:
    low, high = min(values), max(values)
    return format(low, form) if low == high else f"{low:{form}} to {high:{form}}"


def _score(comparisons: Sequence[Comparison]) -> str:
    agreeing, counted = count_agreeing(comparisons)
    return f"{agreeing} of {counted} counted cells agree ({_percent(agreeing, counted)})."


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "–"
