"""The comparison page: the paper's numbers next to ours, as Markdown.

How much agrees, which of the paper's claims hold, the networks, then every cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from iknow.storage.files import write_bytes
from reproduction.agreement import Comparison, compare, count_agreeing
from reproduction.claims import CLAIMS, Claim, DatasetNumbers, list_numbers
from reproduction.entries import (
    HEADINGS,
    LAYERS,
    NAMES,
    Experiment,
    group_outcomes,
    lists,
    shares_of,
    table,
    tables,
)
from reproduction.protocol import Outcome
from reproduction.tables import ACCURACIES, Key, load_published
from reproduction.uncertainty import HOW, Resamples, resample_seeds, show_interval

BANNER = "**A quick run on few samples: it shows that all runs, the numbers mean nothing.**"
LEGEND = (
    "Each cell: the published value, then our mean ± standard deviation over the seeds. ✓: they "
    "agree (within 0.05, or within two standard deviations); ✗: they do not; in brackets: not "
    "counted, as the group holds fewer than 1% of the samples. The last row of a table is not the "
    "paper's: `EpistemicClassifier(network)` as it comes, which reads layers of its own, tuned on "
    "validation data to the coverage of the ε-ball in the table's layers."
)
CLAIMS_LEGEND = (
    "Each claim in the paper's words, what we check, and in how many of our seeds that is true. "
    "✓: in every seed; ✗: in half of them or fewer; ~: between; paper ✗: the paper's own numbers "
    "do not bear it out. Strongest: the last condition, large noise or the attack. Known and "
    "wrong: the share of the samples that are IK and answered wrongly."
)
GROUPINGS: dict[str, Callable[[Key], str]] = {
    "dataset": lambda key: key.dataset,
    "layers": lambda key: LAYERS[key.layers],
    "method": lambda key: NAMES[key.method],
    "condition": lambda key: key.perturbation,
    "metric": lambda key: HEADINGS[key.metric],
}


def write_comparison(path: Path, outcomes: Sequence[Outcome], *, quick: bool = False) -> Path:
    """Write the page about some outcomes, in one step."""
    page = "\n".join(_page(group_outcomes(outcomes), quick)).rstrip()
    return write_bytes(path, f"{page}\n".encode())


def _page(experiments: Sequence[Experiment], quick: bool) -> Iterator[str]:
    yield from ["# The paper beside ours", ""]
    if quick:
        yield from [BANNER, ""]
    yield from [LEGEND, ""]
    # Variants and other readings have tables too, but only the paper's own experiments score.
    main = [each for each in experiments if each.setup.name == each.setup.published]
    if main:
        yield from _agreement(main)
        yield from _claims(main)
    yield from _base_classifiers(experiments)
    for experiment in experiments:
        yield from tables(experiment)
    yield from lists([each for experiment in main for each in experiment.comparisons])


def _agreement(experiments: Sequence[Experiment]) -> Iterator[str]:
    comparisons = [each for experiment in experiments for each in experiment.comparisons]
    code = [each for e in experiments for each in compare(e.measured, code_hybrids=True)]
    close, counted = _count_close(comparisons), count_agreeing(comparisons)[1]
    resamples = resample_seeds((each.setup.published, each.outcomes) for each in experiments)
    sure = show_interval(resamples.find_interval())
    yield from ["## Agreement", "", f"**{_score(comparisons)}**", ""]
    yield (
        f"{close} ({_percent(close, counted)}; 95% interval: {sure}) are within 0.05; the others "
        f"agree because our seeds differ as much. With H-1 as the authors' code has it: "
        f"{_score(code)}"
    )
    yield from ["", HOW, ""]
    for title, group in GROUPINGS.items():
        parts: dict[str, list[Comparison]] = {}
        for each in comparisons:
            parts.setdefault(group(each.key), []).append(each)
        headings = [f"by {title}", "counted", "agree", "share", "within 0.05 alone", "95% interval"]
        rows = [_shares(name, part, resamples) for name, part in parts.items()]
        yield from table(headings, rows, n_words=1)


def _shares(name: str, comparisons: Sequence[Comparison], resamples: Resamples) -> list[str]:
    sure = show_interval(resamples.find_interval({each.key for each in comparisons}))
    return [name, *shares_of(comparisons), sure]


def _claims(experiments: Sequence[Experiment]) -> Iterator[str]:
    yield from ["## The paper's claims", "", CLAIMS_LEGEND, ""]
    datasets = [each.setup.published for each in experiments]
    rows = [
        [f"“{claim.words}”", claim.text, *(_claim_cell(claim, each) for each in experiments)]
        for claim in CLAIMS
        if set(claim.datasets) & set(datasets)
    ]
    headings = ["the paper's words", "checked", *datasets]
    yield from table(headings, rows, n_words=2 + len(datasets))


def _claim_cell(claim: Claim, experiment: Experiment) -> str:
    dataset, n = experiment.setup.published, len(experiment.outcomes)
    if dataset not in claim.datasets:
        return ""
    true = sum(
        claim.holds(DatasetNumbers(list_numbers(dataset, outcome), dataset))
        for outcome in experiment.outcomes
    )
    mark = "✓" if true == n else "~" if true > n / 2 else "✗"
    borne_out = claim.holds(DatasetNumbers(load_published(), dataset))
    return f"{mark} {true} of {n}{'' if borne_out else ', paper ✗'}"


def _base_classifiers(experiments: Sequence[Experiment]) -> Iterator[str]:
    yield from ["## Base classifiers", ""]
    headings = [
        "experiment",
        "seeds",
        "published accuracy",
        "test accuracy",
        "epochs",
        "k, two layers",
        "coverage on validation data",
    ]
    rows = [_base_row(each) for each in experiments if all(one.facts for one in each.outcomes)]
    yield from table(headings, rows, n_words=1)


def _base_row(experiment: Experiment) -> list[str]:
    facts = [outcome.facts for outcome in experiment.outcomes]
    return [
        experiment.setup.name,
        str(len(facts)),
        f"{ACCURACIES[experiment.setup.published]:.4f}",
        _span([each["accuracy"]["nominal"] for each in facts], ".4f"),
        _span([each["epochs"] for each in facts], "d"),
        _span([each["chosen"]["two"]["k"] for each in facts], "d"),
        _span([each["chosen"]["two"]["coverage"] for each in facts], ".3f"),
    ]


def _span(values: Sequence[float], form: str) -> str:
    low, high = min(values), max(values)
    return format(low, form) if low == high else f"{low:{form}} to {high:{form}}"


def _score(comparisons: Sequence[Comparison]) -> str:
    agreeing, counted = count_agreeing(comparisons)
    return f"{agreeing} of {counted} counted cells agree ({_percent(agreeing, counted)})."


def _count_close(comparisons: Sequence[Comparison]) -> int:
    return sum(each.is_close for each in comparisons if each.counted)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "–"
