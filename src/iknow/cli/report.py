"""`iknow report`: from a bundle and a file to one page that anyone can open."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from iknow.classifier.estimator import EpistemicClassifier
from iknow.cli import options
from iknow.cli.assess import assert_at, assess_table, show_counts
from iknow.cli.data import (
    DataFile,
    check_page,
    console_for,
    in_order,
    paths_read,
    show_page,
    trained_names,
    write_page,
)
from iknow.cli.options import option
from iknow.core.arrays import Labels
from iknow.core.assertion import Assertion
from iknow.core.rule import promise_of
from iknow.errors import InputError
from iknow.evaluation import evaluate
from iknow.explain.assessment import Assessment
from iknow.explain.picture import Renderer, as_features, as_image, as_series
from iknow.report import USUAL_NEIGHBORS, make_report

SHOWN_AS = "--show must be image:HxW, image:CxHxW, series, series:CHANNELS or features"


@options.command
def report(
    *,
    bundle: Path = options.BUNDLE,
    data: Path = options.SAMPLES,
    output: Path = option(
        "The page to write.", None, "--output", "-o", default=Path("report.html")
    ),
    model: options.BundledModel,
    level: float | None = options.LEVEL,
    samples: options.SampleOptions,
    training: Path | None = option(
        "The file given to `iknow fit`, to show the exemplars.", options.DATA
    ),
    training_label: str | None = option(
        "Its column of labels, if it has another name.", options.DATA
    ),
    layer: list[str] | None = option("A layer that decides; repeatable.", options.SEARCH),
    show: str | None = option(
        "What samples look like: image:8x8, image:3x32x32, series, features."
    ),
    device: str | None = options.DEVICE,
) -> None:
    """Write what is known, and why, as one HTML page that opens anywhere.

    For example, of images of 28 by 28 pixels:

    iknow report b.iknow test.npz --model m.pt --show image:28x28 -o page.html
    """
    source = samples.source(data)
    trained = None
    if training is not None:
        label = training_label or samples.label
        trained = DataFile(training, replace(source.roles, label=label))
    renderer = renderer_by_name(show)
    check_page(output, [bundle, *paths_read(source, trained, model=model.model)])
    classifier = model.load(bundle, device)
    if level is not None:
        assert_at(classifier, level)
    table = source.read(classifier.model)
    assessment = assess_table(classifier, table, k=USUAL_NEIGHBORS)
    assessment = assessment.only(layer) if layer else assessment
    names = trained_names(classifier) or table.feature_names
    if renderer is None and names is not None:
        renderer = as_features(names)
    exemplars: Any = _stored_inputs(classifier)
    if trained is not None:
        exemplars = in_order(trained.read(classifier.model), names)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no layer has a known Lipschitz constant")
        page = make_report(
            assessment,
            table.labels,
            samples=in_order(table, names),  # None if the file holds a model's outputs
            training=exemplars,
            renderer=renderer,
            title=f"{bundle.stem} on {Path(source.name).name}",
            selection=getattr(classifier, "selection_", None),
        )
    write_page(output, page)
    show_figures(assessment, table.labels, console_for(output))
    show_page(output, console_for(output))


def renderer_by_name(show: str | None) -> Renderer | None:
    """The renderer for "image:8x8", "image:3x32x32", "series", "series:3" or "features"."""
    if show is None:
        return None
    kind, _, numbers = show.partition(":")
    try:
        sizes = [int(size) for size in numbers.split("x")] if numbers else []
        if kind == "features" and not sizes:
            return as_features()
        makers: dict[str, Callable[..., Renderer]] = {"image": as_image, "series": as_series}
        return makers[kind](*sizes)
    except (KeyError, TypeError, ValueError) as error:  # an InputError is a ValueError
        raise InputError(f"{SHOWN_AS}; got {show!r}") from error


def _stored_inputs(classifier: EpistemicClassifier) -> Mapping[int, Any] | None:
    """The training inputs by row, if the input itself is one of the layers."""
    index = classifier.indexes_.get("input")
    if index is None:
        return None
    inputs = promise_of(index.metric, "restore", "transform")(index.points)
    return None if inputs is None else dict(zip(index.rows.tolist(), inputs, strict=True))


def show_figures(assessment: Assessment, y_true: Labels | None, console: Console) -> None:
    """Print the figures, compared with the truth if it is known."""
    if y_true is not None:
        console.print(Text(str(evaluate(assessment, y_true))))
    else:
        show_counts(np.bincount(assessment.assertion, minlength=len(Assertion)), console)
