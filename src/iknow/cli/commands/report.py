"""`iknow report`: from a bundle and a file to one page that anyone can open."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from iknow.classifier.estimator import EpistemicClassifier
from iknow.cli import options
from iknow.cli.jobs.assess import assert_at, assess_table, load_classifier
from iknow.cli.jobs.forms import takes_text
from iknow.cli.jobs.outputs import check_page, paths_read, write_page
from iknow.cli.jobs.source import Source, take_inputs, trained_names
from iknow.core.arrays import Labels
from iknow.core.rule import promise_of
from iknow.errors import InputError
from iknow.explain.assessment import Assessment
from iknow.explain.picture import Renderer, as_features, as_image, as_series
from iknow.report import USUAL_NEIGHBORS, make_report
from iknow.tables import Table

PAGE = Path("report.html")
SHOWN_AS = "--show must be image:HxW, image:CxHxW, series, series:CHANNELS or features"


def report(
    bundle: options.BundleArgument,
    data: options.DataArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = PAGE,
    model: options.ModelOption = None,
    level: options.LevelOption = None,
    label: options.LabelOption = None,
    labels: options.LabelsOption = None,
    identifier: options.IdOption = None,
    drop: options.DropOption = None,
    features: options.FeaturesOption = None,
    text: options.TextOption = None,
    input_format: options.InputFormatOption = None,
    training: Annotated[
        Path | None,
        options.option("The file given to `iknow fit`, to show the exemplars.", options.DATA),
    ] = None,
    training_label: Annotated[
        str | None, options.option("Its column of labels, if it has another name.", options.DATA)
    ] = None,
    layer: Annotated[
        list[str] | None, options.option("A layer that decides; repeatable.", options.SEARCH)
    ] = None,
    show: Annotated[
        str | None,
        typer.Option(help="What samples look like: image:8x8, image:3x32x32, series, features."),
    ] = None,
    device: options.DeviceOption = None,
    no_check_model: options.NoCheckOption = False,
    config: options.ConfigOption = None,
) -> None:
    """Write what is known, and why, as one HTML page that opens anywhere.

    For example, of images of 28 by 28 pixels:

    iknow report b.iknow test.npz --model m.pt --show image:28x28 -o page.html
    """
    from iknow.cli.console import show_figures, show_report

    roles = options.roles_of(label, identifier, drop, features, text)
    trained = options.roles_of(training_label or label, identifier, drop, features, text)
    assessment, y_true = report_job(
        bundle,
        Source(data, roles, labels, input_format),
        output,
        model=model,
        training=None if training is None else Source(training, trained),
        layers=layer,
        renderer=renderer_by_name(show),
        level=level,
        device=device,
        check_model=not no_check_model,
    )
    show_figures(assessment, y_true, options.console_for(output))
    show_report(output, options.console_for(output))


def report_job(
    bundle: Path,
    data: Source,
    output: Path,
    *,
    model: str | None,
    training: Source | None = None,
    layers: Sequence[str] | None = None,
    renderer: Renderer | None = None,
    level: float | None = None,
    device: str | None = None,
    check_model: bool = True,
) -> tuple[Assessment, Labels | None]:
    """Assess the samples of a file and write the result as one HTML page.

    training: the samples given to `fit_job`, to show as exemplars; by default those of the layer
    "input", if the bundle has it. layers: the ones that decide; all by default.
    """
    check_page(output, [bundle, *paths_read(data, training, model=model)])
    classifier = load_classifier(bundle, model, device, check_model=check_model)
    if level is not None:
        assert_at(classifier, level)
    table = data.read(mixed=takes_text(classifier.model))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        assessment = assess_table(classifier, table, k=USUAL_NEIGHBORS)
    assessment = assessment.only(layers) if layers else assessment
    names = trained_names(classifier) or table.feature_names
    if renderer is None and names is not None:
        renderer = as_features(names)
    exemplars = _stored_inputs(classifier)
    if training is not None:
        exemplars = _features(training.read(mixed=takes_text(classifier.model)), names)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no layer has a known Lipschitz constant")
        page = make_report(
            assessment,
            table.labels,
            samples=_features(table, names),
            training=exemplars,
            renderer=renderer,
            title=f"{bundle.stem} on {Path(data.name).name}",
            selection=getattr(classifier, "selection_", None),
        )
    write_page(output, page)
    return assessment, table.labels


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


def _features(table: Table, names: tuple[str, ...] | None) -> Any:
    """All inputs of a table, to show them; None if it holds a model's outputs instead."""
    return None if table.features is None else take_inputs(table, names)


def _stored_inputs(classifier: EpistemicClassifier) -> Mapping[int, Any] | None:
    """The training inputs by row, if the input itself is one of the layers."""
    index = classifier.indexes_.get("input")
    inputs = (
        None if index is None else promise_of(index.metric, "restore", "transform")(index.points)
    )
    if index is None or inputs is None:
        return None
    return dict(zip(index.rows.tolist(), inputs, strict=True))
