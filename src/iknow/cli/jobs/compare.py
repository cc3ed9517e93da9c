"""Comparing: from a model and files to a table of methods."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sklearn.frozen import FrozenEstimator

from iknow.classifier.epistemic import EpistemicClassifier
from iknow.cli.jobs.assess import inputs_of
from iknow.cli.jobs.fit import named_like
from iknow.cli.jobs.forms import takes_text
from iknow.cli.jobs.outputs import check_output, check_page, paths_read
from iknow.cli.jobs.source import Source, trained_names
from iknow.cli.model_files import load_model
from iknow.errors import InputError
from iknow.evaluation.compare import compare
from iknow.evaluation.comparison import Comparison
from iknow.models.adapt import is_estimator
from iknow.report.comparison import make_comparison_html
from iknow.storage.atomic import write_bytes
from iknow.tables import Roles, Table


def compare_job(
    model: str,
    training: Source,
    validation: Source,
    test: Source,
    *,
    sets: Mapping[str, Source],
    foreign: Mapping[str, Source],
    layers: Sequence[str] | None,
    coverages: Sequence[float],
    accuracy: float,
    confidence: float,
    random_state: int,
    parameters: Mapping[str, Any] | None = None,
    json_output: Path | None = None,
    page: Path | None = None,
) -> Comparison:
    """Fit and tune a classifier around a model, compare it with its peers, write the result.

    sets: labeled. foreign: without labels, as no answer can be right. parameters: others of the
    classifier, such as how to read the model.
    """
    every = [training, validation, test, *sets.values(), *foreign.values()]
    reads = paths_read(*every, model=model)
    if json_output is not None:
        check_output(json_output, reads)
    if page is not None:
        check_page(page, reads if json_output is None else [*reads, json_output])
    loaded = load_model(model)
    mixed = takes_text(loaded)
    first, first_labels = training.read_labelled(mixed=mixed)
    names = trained_names(loaded) or first.feature_names

    def labeled(source: Source) -> tuple[Any, Any]:
        table, y = source.read_labelled(mixed=mixed)
        return _inputs(table, source, loaded, names), y

    with warnings.catch_warnings():
        # `take_inputs` compares the column names and restores their order.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        fitted = _inputs(first, training, loaded, names), first_labels
        held = labeled(validation)
        wrapped = FrozenEstimator(loaded) if is_estimator(loaded) else loaded
        more = {"random_state": random_state, **named_like(first_labels, parameters)}
        classifier = EpistemicClassifier(wrapped, layers or None, **more)
        classifier.fit(*fitted).tune(held[0], coverage=coverages[len(coverages) // 2])
        others: dict[str, Any] = {name: labeled(source) for name, source in sets.items()}
        for name, source in foreign.items():
            table = source.read(mixed=mixed)
            others[name] = _inputs(table, source, loaded, names), None
        comparison = compare(
            classifier,
            fitted,
            held,
            labeled(test),
            sets=others,
            coverages=coverages,
            accuracy=accuracy,
            confidence=confidence,
            random_state=random_state,
        )
    if json_output is not None:
        write_bytes(json_output, json.dumps(comparison.to_dict(), indent=1).encode())
    if page is not None:
        title = f"{Path(model).stem} and its peers on {Path(test.name).name}"
        write_bytes(page, make_comparison_html(comparison, title=title).encode())
    return comparison


def sources_by_name(given: Iterable[str], option: str, roles: Roles) -> dict[str, Source]:
    """The files behind options of the form NAME=FILE, with the same columns."""
    found: dict[str, Source] = {}
    for each in given:
        name, equals, path = each.partition("=")
        if not (name and equals and path):
            raise InputError(f"{option} must be NAME=FILE; got {each!r}")
        if name in found:
            raise InputError(f"{option} names {name!r} twice: give each set its own name")
        found[name] = Source(Path(path), roles)
    return found


def _inputs(table: Table, source: Source, model: Any, names: tuple[str, ...] | None) -> Any:
    if table.features is None:
        raise InputError(
            f"{source.name} holds a model's outputs, but a comparison perturbs inputs: give those"
        )
    return inputs_of(model, table, names)
