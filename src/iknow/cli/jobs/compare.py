"""Comparing: from a model and files to a table of methods."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator

from iknow.classifier.epistemic import EpistemicClassifier
from iknow.cli.jobs.outputs import check_output, check_page, paths_read
from iknow.cli.jobs.source import Source, check_width, take_inputs, trained_names
from iknow.cli.model_file import load_model
from iknow.cli.tables import Table
from iknow.errors import InputError
from iknow.evaluation.compare import compare
from iknow.evaluation.comparison import Comparison
from iknow.models.adapt import is_estimator
from iknow.report.comparison import make_comparison_html
from iknow.storage.atomic import write_bytes


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
    json_output: Path | None = None,
    page: Path | None = None,
) -> Comparison:
    """Fit and tune a classifier around a model, compare it with its peers, write the result.

    sets: labeled. foreign: without labels, as no answer can be right.
    """
    every = [training, validation, test, *sets.values(), *foreign.values()]
    reads = paths_read(*every, model=model)
    if json_output is not None:
        check_output(json_output, reads)
    if page is not None:
        check_page(page, reads if json_output is None else [*reads, json_output])
    loaded = load_model(model)
    names = trained_names(loaded)

    def labeled(source: Source) -> tuple[Any, Any]:
        table, y = source.read_labelled()
        return _inputs(table, source, loaded, names), y

    with warnings.catch_warnings():
        # `take_inputs` compares the column names and restores their order.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        fitted, held = labeled(training), labeled(validation)
        wrapped = FrozenEstimator(loaded) if is_estimator(loaded) else loaded
        classifier = EpistemicClassifier(wrapped, layers or None, random_state=random_state)
        classifier.fit(*fitted).tune(held[0], coverage=coverages[len(coverages) // 2])
        others: dict[str, Any] = {name: labeled(source) for name, source in sets.items()}
        for name, source in foreign.items():
            others[name] = _inputs(source.read(), source, loaded, names), None
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
        title = f"{Path(model).stem} and its peers on {test.path.name}"
        write_bytes(page, make_comparison_html(comparison, title=title).encode())
    return comparison


def sources_by_name(given: Iterable[str], option: str, label: str | None) -> dict[str, Source]:
    """The files behind options of the form NAME=FILE."""
    found: dict[str, Source] = {}
    for each in given:
        name, equals, path = each.partition("=")
        if not (name and equals and path):
            raise InputError(f"{option} must be NAME=FILE; got {each!r}")
        if name in found:
            raise InputError(f"{option} names {name!r} twice: give each set its own name")
        found[name] = Source(Path(path), label)
    return found


def _inputs(table: Table, source: Source, model: Any, names: tuple[str, ...] | None) -> Any:
    if table.features is None:
        raise InputError(
            f"{source.path} holds a model's outputs, but a comparison perturbs inputs: give those"
        )
    check_width(table, model)
    return take_inputs(table, names, np.arange(len(table)))
