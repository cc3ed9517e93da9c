"""Saving: a fitted classifier to a bundle, and back."""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from typing import Any
from warnings import warn

import numpy as np

from iknow.core.text import as_flag
from iknow.errors import BundleError
from iknow.models import PrecomputedModel
from iknow.models.adapt import as_model
from iknow.models.model import Model
from iknow.models.probe import Probe, restore_probe
from iknow.search.layer import LayerIndex, Search
from iknow.selection import Selection
from iknow.storage.about_record import make_about
from iknow.storage.bundle import Bundle, read_bundle, write_bundle
from iknow.storage.exporting import check_exported_model, find_exported, load_exported
from iknow.storage.parameter_record import CHOSEN, parameters_from_dict, parameters_to_dict
from iknow.storage.reading_record import make_reading, read_again
from iknow.storage.saved_settings import check_layers, read_settings
from iknow.version import __version__


def save_classifier(
    classifier: Any,
    path: str | os.PathLike[str],
    probe: bool,
    name: str | None,
    note: str | None,
    version: str | None,
    onnx: bool,
    samples: Any,
) -> None:
    """Write a bundle; see `EpistemicClassifier.save`."""
    classifier = copy.copy(classifier)  # a change meanwhile must not mix old and new evidence
    plan = classifier.plan_
    about = make_about(classifier, name, note, version)
    as_onnx = find_exported(classifier, wanted=as_flag(onnx, "onnx"), samples=samples)
    known_by = plan.probe if as_flag(probe, "probe") else "it was saved with probe=False"
    record, arrays = (known_by, {}) if isinstance(known_by, str) else known_by.store()
    selection = plan.selection or plan.given
    if selection is not None:  # one of another classifier may leave out layers unknown here
        kept = {name: why for name, why in selection.left_out.items() if name in plan.layers}
        selection = replace(selection, left_out=kept)
    rules = plan.rules or {}
    check_layers(plan.layers, rules, selection)  # somebody may have changed them
    names = getattr(classifier, "feature_names_in_", None)
    bundle = Bundle(
        classes=plan.classes,
        labels=plan.index.labels,
        rows=plan.index.rows,
        activations={layer: index.points for layer, index in plan.indexes.items()},
        metrics={layer: index.metric for layer, index in plan.indexes.items()},
        neighborhoods=rules,
        probe=arrays,
        settings={
            **parameters_to_dict(classifier),
            "selection": None if selection is None else selection.to_dict(),
            "n_features_in": getattr(classifier, "n_features_in_", None),
            "feature_names_in": None if names is None else [str(name) for name in names],
            "probe": record,
            "about": about,
            "reading": make_reading(classifier),
        },
        log=plan.log,
        model=None if as_onnx is None else lambda: as_onnx.content,
        exported=None if as_onnx is None else as_onnx.compared,
    )
    write_bundle(path, bundle, __version__)


def load_classifier(
    kind: type,
    make_plan: Any,
    path: str | os.PathLike[str],
    model: Any,
    verify: Any,
    search: Search,
    check_model: bool,
    at: str | None,
) -> tuple[Any, list[Any]]:
    """A classifier as it was saved, and the changes that came after; see `load`.

    kind, make_plan: what makes the classifier, and its plan.
    """
    checks = as_flag(check_model, "check_model")
    bundle = read_bundle(path, verify=verify, at=at)
    settings = read_settings(path, bundle)
    device = search if isinstance(search, str) else None
    own = load_exported(path, bundle, settings, device) if model is None else None
    adapter: Model = own or PrecomputedModel()
    if isinstance(model, Model):
        adapter = model
    elif model is not None:
        adapter = as_model(model, device=device, **read_again(settings["reading"], path))
    known_by = _restore_probe(path, bundle)
    if checks and own is not None:
        check_exported_model(path, known_by, own, settings["batch_size"])
    elif checks and model is not None:
        _check_model(path, known_by, adapter, settings["batch_size"])
    wrapped = adapter if model is None or adapter.options else model
    classifier = kind(wrapped, search=search, **parameters_from_dict(settings, bundle))
    # These describe inputs to the model, not precomputed outputs.
    if not isinstance(adapter, PrecomputedModel):
        if settings["n_features_in"] is not None:
            classifier.n_features_in_ = settings["n_features_in"]
        if settings["feature_names_in"] is not None:
            classifier.feature_names_in_ = np.array(settings["feature_names_in"], dtype=object)
    chosen = settings["selection"] if settings["fixed"] != CHOSEN else None
    indexes = {
        layer: LayerIndex(
            points, bundle.labels, len(bundle.classes), bundle.rows, bundle.metrics[layer], search,
            bundle.check,
        )
        for layer, points in bundle.activations.items()
    }  # fmt: skip
    classifier.plan_ = make_plan(
        adapter,
        tuple(bundle.activations),
        bundle.classes,
        indexes,
        known_by,
        rules=dict(bundle.neighborhoods) or None,
        selection=None if chosen is None else Selection.from_dict(chosen),
        given=classifier.rule if isinstance(classifier.rule, Selection) else None,
        log=bundle.log,
        bundled={
            "about": settings["about"],
            "reading": settings["reading"],
            "sha256": bundle.sha256,
            "exported": bundle.exported,
            "path": os.path.abspath(path),
        },
    )
    return classifier, list(bundle.changes)


def _restore_probe(path: str | os.PathLike[str], bundle: Bundle) -> Probe | str:
    """What identifies the bundle's model, or why nothing does."""
    record = bundle.settings["probe"]
    if isinstance(record, str):
        return record
    try:
        return restore_probe(record, bundle.probe, list(bundle.activations))
    except BundleError as error:
        raise BundleError(f"{path} is damaged: {error}") from error
    except ImportError as error:
        return f"the inputs stored with it cannot be read here ({error})"


def _check_model(
    path: str | os.PathLike[str], known_by: Probe | str, model: Model, batch_size: int | None
) -> None:
    """Refuse a model whose answers differ from those stored in the bundle."""
    if isinstance(known_by, str):
        warn(
            f"{path} cannot tell whether this is the model it was made with: {known_by}. If you "
            "know that it is, pass check_model=False, or --no-check-model to a command",
            stacklevel=3,
        )
    elif (difference := known_by.find_difference(model, batch_size)) is not None:
        raise BundleError(
            f"{path} was made with another model: {difference}. Load it with that model or, if you "
            "know better, pass check_model=False, or --no-check-model to a command"
        )
