"""The page: the notebooks' figures next to ours, as Markdown, and its words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from iknow.storage.files import write_bytes
from reproduction.agreement import Comparison, Measured
from reproduction.entries import beside, number, shares_of, table
from reproduction.notebooks.printed import METRICS, STRETCHES, compare_printed, key_of, measure_all
from reproduction.notebooks.settings import NOTEBOOKS, Notebook, Trial
from reproduction.protocol import Outcome
from reproduction.tables import Key

INTRODUCTION = (
    "The authors of the paper publish [notebooks]"
    "(https://github.com/GE-Research-Machine-Learning/Epistemic-Classifier) that print the figures "
    "of other experiments than the paper's. `python -m reproduction notebooks` rebuilds their "
    "settings with our own code: the data, the network, its training, the layers and the rules. "
    "Nothing is tuned to fit."
)
BANNER = "**A quick run with two seeds.**"
LEGEND = (
    "Each cell: the printed figure, which is that of one network, then our mean ± standard "
    "deviation over {n_seeds} networks. ✓: they agree (within 0.05, or within two standard "
    "deviations); ✗: they do not; in brackets: not counted, as the group holds fewer than 1% of "
    "the samples. F_IMK, F_IDK and A_IMK are the fractions of IMK and IDK, and the accuracy of IMK."
)
ABOUT = {
    "series": (
        "SyntheticControl, 240 charts to train and 60 to validate, then cut into all windows of 55 "
        "values: 1,440, 360 and 1,800 for the test. Three convolutions and pooling, He-normal "
        "weights, Adam at 0.0005, batches of 128, 32 epochs; support in the third convolution and "
        "in the pooling. The paper's own fractions are all multiples of 1/300: it did not cut.\n\n"
        "The printed network learned more slowly than ours and reaches its largest F_IK at smaller "
        "radii. The scale of a layer differs from network to network, so a radius chosen for one "
        "says little about another: at fixed radii many figures disagree, while those of k-NN and "
        "of radii chosen for the network itself agree."
    ),
    "blobs": (
        "Five blobs of scikit-learn's in 15 dimensions, 6,700 samples to train and 3,300 to test. "
        "Dense layers of 10, 8, 6 and 5, He-normal weights, Adam at 0.001, batches of 2,048, 50 "
        "epochs; support in all four. That is 200 steps, after which networks still differ much: "
        "one that is right on less than 0.95 starts again. Above each figure the notebook prints "
        "other numbers than it uses: these are the ones it uses. `Sample_code_ball_tree` is the "
        "same setting with another network; its accuracy is 0.999, and its figures are pictures."
    ),
    "plane": (
        "Two blobs of scikit-learn's in the plane, the same network, support in the logits. The "
        "notebook prints the accuracy alone, and plots F_IK against the radius, with noise 0.5. It "
        "seems to be the paper's figure: it draws augmented confusion matrices at the paper's four "
        "radii and one more. The paper's text gives the largest F_IK with noise 0.5 and 1.5; ours "
        "is the largest at the notebook's 30 radii, on the test part."
    ),
}
STRETCHED = (
    "Theirs is the largest singular value of the product of the matrices, as in the paper's "
    "supplement. With ReLUs between the matrices it is no bound; the product of their largest "
    "singular values is one."
)
HEADINGS = ("F_IK", "A_IK", "F_IMK", "A_IMK", "F_IDK")
KINDS = {
    "network": "the network",
    "k": "k of each layer",
    "radii": "radius of each layer",
    "stretched": "radius of the input, stretched by the weights",
    "chosen": "radii chosen on validation data",
    "curve": "the curve's maximum",
}


def describe(trial: Trial) -> str:
    """The parameters of a trial."""
    return ", ".join(f"{number:.4g}" for number in trial.numbers)


# The question, the notebook and its cell (from 0), and what the code there does.
CONVENTIONS = (
    ("initial weights", "all, 3 (series: 14)", "He-normal in every layer, biases 0"),
    (
        "optimizer",
        "blobs, 3; series, 14",
        "Adam at 0.001 with dense layers, at 0.0005 with convolutions",
    ),
    (
        "batch, epochs",
        "blobs, 3; series, 15",
        "2,048 and 50 with dense layers, 128 and 32 with convolutions",
    ),
    (
        "end of training",
        "blobs, 3; series, 15",
        "after the epochs; nothing stops it earlier, and the last weights are kept",
    ),
    ("padding", "series, 14", 'none: "valid"'),
    (
        "position of the ReLU",
        "blobs, 5; series, 17",
        "a layer of support is the output of the Keras layer, after its ReLU; "
        "the logits are before the softmax",
    ),
    (
        "support in a convolution",
        "`EC_Classifier_Ball_Tree.py`",
        "all positions and filters as one vector; the pooling is a layer of its own",
    ),
    (
        "scaling",
        "blobs, 2; series, 7",
        "of each feature; of a series, by one mean and one deviation over all training values",
    ),
    (
        "split",
        "series, 5",
        "40 of the 50 training charts of each class to train, 10 to validate, drawn without a seed",
    ),
    (
        "choice of ε",
        "series, 1 and 21",
        "the largest F_IK on validation data, by 55 evaluations of GPyOpt within bounds",
    ),
    (
        "labels in the support",
        "blobs, 5; series, 17",
        "the true labels of the training samples",
    ),
    (
        "data of the paper's figures",
        "plane, 1, 4 and 5",
        "two blobs in the plane, 10,000 samples, seed 0; support in the logits; "
        "four of the five radii of cell 5 are those of the paper's figure",
    ),
)


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
    rows = [[name, KINDS[kind], *shares_of(some)] for (name, kind), some in groups.items() if some]
    rows.append(["**all**", "", *shares_of(comparisons)])
    headings = ["notebook", "", "counted", "agree", "share", "within 0.05 alone"]
    yield from table(headings, rows, n_words=2)


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
    if key in compared:
        return beside(compared[key])
    return number(measured[key]) if key in measured else "–"
