"""`iknow compare`: from a model and files to a table of methods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from iknow.cli import options
from iknow.cli.data import (
    DataFile,
    check_output,
    check_page,
    console_for,
    inputs_of,
    paths_read,
    show_written,
    trained_names,
)
from iknow.cli.model_files import MODEL_HELP, load_model
from iknow.cli.options import argument, option
from iknow.errors import InputError
from iknow.evaluation.compare import compare as compare_methods
from iknow.evaluation.comparison import OURS
from iknow.report import USUAL_NEIGHBORS, make_report
from iknow.storage.files import write_bytes
from iknow.tables import Roles


@options.command
def compare(
    *,
    model: str = argument(MODEL_HELP),
    training: Path = argument("The samples that the model was trained on."),
    validation: Path = argument("Labeled samples that it was not."),
    test: Path = argument("Further labeled samples, as clean."),
    training_labels: Path | None = options.LABELS,
    validation_labels: Path | None = options.LABELS,
    test_labels: Path | None = options.LABELS,
    set_: list[str] | None = option(
        "Further labeled data, NAME=FILE; repeatable.", options.DATA, "--set"
    ),
    foreign: list[str] | None = option(
        "Data on which no answer is right, NAME=FILE; repeatable.", options.DATA
    ),
    columns: options.ColumnOptions,
    reading: options.ModelOptions,
    coverage: list[float] = option(
        "Share of clean data to assert; repeatable.", default=[0.6, 0.75, 0.9]
    ),
    accuracy: float = option("The accuracy to certify.", default=0.99),
    confidence: float = option("Of certificates and intervals.", default=0.95),
    random_state: int = options.SEED,
    json: Path | None = option("Write all figures as JSON."),
    html: Path | None = option("Write the report of the test data, with the comparison."),
) -> None:
    """Compare iknow with other methods on your model and data, at equal coverage.

    For example, with data of another kind, on which no answer is right:

    iknow compare m.joblib train.csv val.csv test.csv --label y --foreign odd=odd.csv
    """
    reading.check()
    with Console(stderr=True).status("Comparing ..."):
        roles = columns.roles
        trained = DataFile(training, roles, training_labels)
        held = DataFile(validation, roles, validation_labels)
        clean = DataFile(test, roles, test_labels)
        sets = _sources(set_ or (), "--set", roles)
        strange = _sources(foreign or (), "--foreign", replace(roles, label=None))
        reads = paths_read(trained, held, clean, *sets.values(), *strange.values(), model=model)
        if json is not None:
            check_output(json, reads)
        if html is not None:
            check_page(html, reads if json is None else [*reads, json])

        loaded = load_model(model)
        names = trained_names(loaded)

        def read(source: DataFile, *, labeled: bool = True) -> tuple[Any, Any]:
            nonlocal names
            table, y = source.read_labeled(loaded) if labeled else (source.read(loaded), None)
            if table.features is None:
                raise InputError(
                    f"{source.name} holds a model's outputs, but a comparison perturbs inputs: "
                    "give those"
                )
            names = names or table.feature_names  # those of the training samples, read first
            return inputs_of(loaded, table, names), y

        fitted, tuned, tested = map(read, (trained, held, clean))
        classifier = reading.make(loaded, fitted[1], random_state=random_state)
        classifier.fit(*fitted).tune(tuned[0], coverage=coverage[len(coverage) // 2])
        others = {name: read(source) for name, source in sets.items()}
        others |= {name: read(source, labeled=False) for name, source in strange.items()}
        comparison = compare_methods(
            classifier,
            fitted,
            tuned,
            tested,
            sets=others,
            coverages=coverage,
            accuracy=accuracy,
            confidence=confidence,
            random_state=random_state,
        )
        if json is not None:
            write_bytes(json, dumps(comparison.to_dict(), indent=1).encode())
        if html is not None:
            title = f"{Path(model).stem} and its peers on {test.name}"
            page = make_report(
                classifier.assess(tested[0], k=USUAL_NEIGHBORS),
                tested[1],
                samples=tested[0],
                title=title,
                selection=classifier.selection_,
                comparison=comparison,
            )
            write_bytes(html, page.encode())
    console = console_for(json, html)
    for line in str(comparison).splitlines():
        own = line.startswith(f"{OURS} ") and "%" in line and ":" not in line
        console.print(Text(line, style="bold" if own else ""), soft_wrap=True)
    for output in (json, html):
        if output is not None:
            show_written(output, console)


def _sources(given: Iterable[str], option: str, roles: Roles) -> dict[str, DataFile]:
    """The files behind options of the form NAME=FILE, with the same columns."""
    found: dict[str, DataFile] = {}
    for each in given:
        name, equals, path = each.partition("=")
        if not (name and equals and path):
            raise InputError(f"{option} must be NAME=FILE; got {each!r}")
        if name in found:
            raise InputError(f"{option} names {name!r} twice: give each set its own name")
        found[name] = DataFile(Path(path), roles)
    return found
