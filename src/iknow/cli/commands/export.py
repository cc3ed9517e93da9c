"""`iknow export`: a bundle that holds its model; and `iknow warm-up`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from iknow.classifier.estimator import EpistemicClassifier
from iknow.cli import options
from iknow.cli.jobs.assess import inputs_of, load_classifier
from iknow.cli.jobs.forms import takes_text
from iknow.cli.jobs.outputs import check_output, paths_read
from iknow.cli.jobs.source import Source, trained_names
from iknow.core.text import name
from iknow.models import PrecomputedModel
from iknow.models.probe import Probe
from iknow.search.layer import warm_up as compile_search


def export(
    bundle: options.BundleArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="The bundle to write.")],
    model: options.ModelOption = None,
    samples: Annotated[
        Path | None,
        options.option(f"Compare on these too: {options.FILES}, or - for a pipe.", options.DATA),
    ] = None,
    input_format: options.InputFormatOption = None,
    label: options.LabelOption = None,
    identifier: options.IdOption = None,
    drop: options.DropOption = None,
    features: options.FeaturesOption = None,
    text: options.TextOption = None,
    name: options.NameOption = None,
    version: options.VersionOption = None,
    note: options.NoteOption = None,
    no_check_model: options.NoCheckOption = False,
    config: options.ConfigOption = None,
) -> None:
    """Write a bundle that holds its model as ONNX, so that it runs without the model's code.

    Both must answer alike on the training inputs in the bundle, and on
    --samples: the same belief, assertion and level. For example:

    iknow export b.iknow --model m.pt --samples test.csv -o portable.iknow

    iknow assess portable.iknow new.csv
    """
    from iknow.cli.console import show_exported
    from iknow.storage.info import describe_bundle

    roles = options.roles_of(label, identifier, drop, features, text)
    with Console(stderr=True).status("Exporting ..."):
        export_job(
            bundle,
            model,
            output,
            samples=None if samples is None else Source(samples, roles, None, input_format),
            about=options.given(name=name, version=version, note=note),
            check_model=not no_check_model,
        )
    show_exported(describe_bundle(output), options.console_for(output))


def warm_up(
    bundles: Annotated[
        list[Path] | None, typer.Argument(help="Bundles to check, prepare and ask once.")
    ] = None,
    config: options.ConfigOption = None,
) -> None:
    """Compile the search, so that nobody waits for it later.

    Run it once where iknow is installed, such as in a Dockerfile: processes
    started later find the compiled code. For example:

    iknow warm-up signs.iknow
    """
    console = Console()
    compile_search()
    console.print("The search is compiled")
    for bundle in bundles or ():
        asked = warm_up_job(bundle)
        said = "answers" if asked else "is whole; its model is not in it"
        console.print(Text(f"{name(bundle)} {said}"))


def export_job(
    bundle: Path,
    model: str | None,
    output: Path,
    *,
    samples: Source | None = None,
    about: Mapping[str, Any] | None = None,
    check_model: bool = True,
) -> None:
    """Write a bundle with its model inside, after comparing both on real samples.

    samples: to compare on, besides those in the bundle. about: a name, a note and a version, if
    there are any; by default they are those of the bundle.
    """
    check_output(output, [bundle, *paths_read(samples, model=model)])
    classifier = load_classifier(bundle, model, None, check_model=check_model)
    classifier.progress = False
    before = classifier.plan_.bundled["about"].version
    with warnings.catch_warnings():
        # `take_inputs` compares the column names and restores their order.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        inputs = None
        if samples is not None:
            table = samples.read(mixed=takes_text(classifier.model))
            inputs = inputs_of(classifier.model, table, trained_names(classifier))
        said = {"version": before, **(about or {})}
        classifier.save(output, onnx=True, samples=inputs, **said)


def warm_up_job(bundle: Path) -> bool:
    """Check a bundle, prepare its search and ask it once; return whether its model was asked."""
    classifier = EpistemicClassifier.load(bundle, verify="now")
    classifier.progress = False
    classifier.warm_up()
    has_model = not isinstance(classifier.model_, PrecomputedModel)
    asks = has_model and isinstance(classifier.probe_, Probe)
    if asks and hasattr(classifier, "neighborhoods_"):
        classifier.assess(classifier.probe_.inputs)  # type: ignore[union-attr]
    return asks
