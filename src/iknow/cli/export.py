"""`iknow export`: a bundle that holds its model."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from iknow.cli import options
from iknow.cli.data import (
    DataFile,
    check_output,
    console_for,
    inputs_for,
    paths_read,
    show_written,
    shown_table,
)
from iknow.cli.options import option
from iknow.core.text import name as shown
from iknow.storage.info import describe_bundle


@options.command
def export(
    *,
    bundle: Path = options.BUNDLE,
    output: Path = options.NEW_BUNDLE,
    model: options.BundledModel,
    samples: Path | None = option(
        f"Compare on these too: {options.FILES}, or - for a pipe.", options.DATA
    ),
    input_format: str | None = options.INPUT_FORMAT,
    columns: options.ColumnOptions,
    about: options.AboutOptions,
) -> None:
    """Write a bundle that holds its model as ONNX, so that it runs without the model's code.

    Both must answer alike on the training inputs in the bundle, and on
    --samples: the same belief, assertion and level. For example:

    iknow export b.iknow --model m.pt --samples test.csv -o portable.iknow

    iknow assess portable.iknow new.csv
    """
    source = None
    if samples is not None:
        source = DataFile(samples, columns.roles, form=input_format)
    with Console(stderr=True).status("Exporting ..."):
        check_output(output, [bundle, *paths_read(source, model=model.model)])
        classifier = model.load(bundle)
        asked = None if source is None else source.read(classifier.model)
        inputs = None if asked is None else inputs_for(classifier, asked)
        said = {"version": classifier.plan_.bundled["about"].version, **about.given}
        classifier.save(output, onnx=True, samples=inputs, **said)
    console, compared = console_for(output), describe_bundle(output).exported or {}
    numbers = ("largest difference", "tolerance")
    found = shown_table("", *numbers, right=numbers)
    for what, by in {"scores": compared["scores"], **compared["layers"]}.items():
        found.add_row(Text(shown(what)), *(f"{by[key]:.2g}" for key in ("difference", "tolerance")))
    console.print(f"The model in the bundle answers alike on {compared['samples']:,} samples")
    console.print(found)
    show_written(output, console)
