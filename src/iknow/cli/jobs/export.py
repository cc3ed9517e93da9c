"""Exporting: a bundle and its model's file to a bundle that holds the model; and warming up."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from iknow.classifier.epistemic import EpistemicClassifier
from iknow.cli.jobs.assess import inputs_of, load_classifier
from iknow.cli.jobs.forms import takes_text
from iknow.cli.jobs.outputs import check_output, paths_read
from iknow.cli.jobs.source import Source, trained_names
from iknow.models.precomputed import PrecomputedModel
from iknow.models.probe import Probe
from iknow.search.layer import warm_up


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
    before = classifier.bundled_["about"]["version"]
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


__all__ = ["export_job", "warm_up", "warm_up_job"]
