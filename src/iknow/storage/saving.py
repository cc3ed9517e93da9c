"""Saving: a fitted classifier to a bundle, and back.

Every parameter comes back, but for the model and `search`. Metrics and rules are stored with the
layers; of how the user passed them we only record whether one for all layers, one for each, or a
`Selection`. Of the options by which a model is read, those that are plain values are stored. A
function is not, as nothing in a bundle may run: the record names the option, and `load` asks for it
again.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from numbers import Integral
from typing import Any

import msgspec
import numpy as np

from iknow.core.quorum import check_quorum
from iknow.core.rule import Rule
from iknow.core.text import NO_NUMBERS, as_flag
from iknow.core.text import name as short
from iknow.errors import BundleError, InputError, warn
from iknow.models import PrecomputedModel
from iknow.models.adapt import OPTIONS, as_model
from iknow.models.inputs import Fields
from iknow.models.model import Model
from iknow.models.probe import Probe
from iknow.models.views import names_to_store, with_views
from iknow.rules.registry import name_of, rule_named
from iknow.search.layer import LayerIndex, Search
from iknow.selection import Selection
from iknow.storage.archive import prefixed
from iknow.storage.bundle import (
    MODEL,
    Bundle,
    append_changes,
    check_layers,
    read_bundle,
    rewrite_bundle,
    write_bundle,
)
from iknow.storage.changes import REMOVE, now, probe_of, store_probe
from iknow.storage.exporting import find_exported, load_exported
from iknow.storage.info import name_model
from iknow.storage.manifest import (
    About,
    ClassifierRecord,
    ProbeRecord,
    Reading,
    check_name,
    check_note,
    check_version,
)

PLAIN = ("k", "batch_size", "validation_fraction", "random_state", "progress")
"""Parameters that are plain values."""
MOST_INPUTS = 1_000
NOT_THE_ORIGINAL = ("PrecomputedModel", "PortableModel")
"""Adapters of a loaded classifier that say nothing about the model it was made with."""
SINGLE = "X"
"""The name of a model's inputs if they have no names of their own."""


# To a bundle


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
    about = _make_about(classifier, name, note, version)
    as_onnx = find_exported(classifier, wanted=as_flag(onnx, "onnx"), samples=samples)
    record, arrays = store_probe(
        plan.probe if as_flag(probe, "probe") else "it was saved with probe=False"
    )
    evidence = _evidence_of(plan)
    check_layers(plan.layers, evidence["neighborhoods"], evidence["selection"])
    bundle = Bundle(
        **evidence,
        metrics={layer: index.metric for layer, index in plan.indexes.items()},
        settings=_make_settings(classifier, record, about),
        probe=arrays,
        model=None if as_onnx is None else lambda: as_onnx.content,
        exported=None if as_onnx is None else as_onnx.compared,
    )
    write_bundle(path, bundle)


def commit_changes(
    plan: Any,
    path: str | os.PathLike[str] | None,
    announce: Callable[[str], None] | None = None,
) -> Any:
    """The plan of a loaded classifier after its changes were written; see `Memory.commit`.

    Changes of the evidence are appended, in time that depends on them alone. If something was
    chosen anew, as by `recertify`, or the changes were folded, the bundle is written anew.
    announce: see `append_changes`.
    """
    if not plan.bundled:
        raise InputError("commit writes to the bundle of a loaded classifier: save this one")
    target = plan.bundled["path"] if path is None else path
    told: dict[str, Any] = {"after": plan.bundled["sha256"], "announce": announce}
    selection = plan.selection or plan.given
    if plan.uncommitted is None or not _are_same(plan.bundled["selection"], selection):
        sha256 = rewrite_bundle(target, lambda bundle: _with_evidence(bundle, plan), **told)
    elif plan.uncommitted:
        sha256 = append_changes(target, plan.uncommitted, **told)
    else:
        return plan
    bundled = {**plan.bundled, "sha256": sha256, "selection": selection}
    return replace(plan, bundled=bundled, uncommitted=())


def _with_evidence(bundle: Bundle, plan: Any) -> Bundle:
    """A bundle with the evidence of a plan that was loaded from it."""
    evidence, known_by = _evidence_of(plan), plan.probe
    record, arrays = bundle.settings.probe, bundle.probe
    if not isinstance(known_by, str) or any(each.what == REMOVE for each in plan.log):
        record, arrays = store_probe(known_by)
    counts = np.bincount(evidence["labels"], minlength=len(plan.classes)).tolist()
    settings = msgspec.structs.replace(
        bundle.settings,
        about=msgspec.structs.replace(bundle.settings.about, per_class=counts),
        probe=record,
    )
    return replace(bundle, **evidence, settings=settings, probe=arrays, changes=(), check=None)


def _evidence_of(plan: Any) -> dict[str, Any]:
    """What a plan has learned, as a bundle holds it."""
    return {
        "classes": plan.classes,
        "labels": plan.index.labels,
        "rows": plan.index.rows,
        "activations": {layer: index.points for layer, index in plan.indexes.items()},
        "neighborhoods": plan.rules or {},
        "selection": plan.selection or plan.given,
        "log": plan.log,
    }


def _are_same(one: Selection | None, other: Selection | None) -> bool:
    """Whether nothing was chosen between two selections; a change of the evidence marks them."""
    if one is None or other is None:
        return one is other
    for each in fields(Selection):
        mine, theirs = getattr(one, each.name), getattr(other, each.name)
        equal = mine is theirs or (isinstance(mine, (int, float, str)) and mine == theirs)
        if each.name != "stale" and not equal:
            return False
    return not (one.stale and not other.stale)


def _make_about(classifier: Any, name: str | None, note: str | None, version: str | None) -> About:
    """What a bundle is about; None keeps what it was loaded with.

    A version is not kept: what is saved again is another bundle.
    """
    before: About | None = classifier.plan_.bundled.get("about")
    labels = classifier.indexes_[classifier.layers_[0]].labels
    inputs, model = _shapes_of_inputs(classifier), name_model(classifier.model)
    if before is not None and type(classifier.model_).__name__ in NOT_THE_ORIGINAL:
        inputs, model = before.inputs if inputs is None else inputs, before.model
    if before is not None:
        name, note = before.name if name is None else name, before.note if note is None else note
    return About(
        name=check_name(name),
        version=check_version(version),
        note=check_note("" if note is None else note),
        created=now(),
        model=model,
        per_class=np.bincount(labels, minlength=len(classifier.classes_)).tolist(),
        inputs=inputs,
    )


def _shapes_of_inputs(classifier: Any) -> dict[str, list[int]] | None:
    """The shape of one sample, by the names of the model's inputs; None if unknown."""
    probe, n_features = classifier.probe_, getattr(classifier, "n_features_in_", None)
    if isinstance(probe, Probe):
        inputs = probe.inputs
        arrays = inputs.arrays if isinstance(inputs, Fields) else {SINGLE: inputs}
        if len(arrays) <= MOST_INPUTS and all(hasattr(each, "shape") for each in arrays.values()):
            return {short(name): [int(n) for n in each.shape[1:]] for name, each in arrays.items()}
    return None if n_features is None else {SINGLE: [int(n_features)]}


def _make_settings(classifier: Any, probe: ProbeRecord | str, about: About) -> ClassifierRecord:
    rule, metric, quorum = classifier.rule, classifier.metric, classifier.quorum
    kinds: dict[Any, Any] = {Rule: "one", Selection: "selection", Mapping: "each"}
    if isinstance(metric, Mapping):
        metric = [name for name in classifier.layers_ if name in metric]
    elif metric is not None:
        metric = "one"
    if quorum is not None:
        pair = check_quorum(quorum)
        quorum = pair[0] if isinstance(quorum, Integral) else list(pair)
    columns = getattr(classifier, "feature_names_in_", None)
    plain = {name: getattr(classifier, name) for name in PLAIN}
    if not isinstance(classifier.random_state, Integral):
        plain["random_state"] = None
    return ClassifierRecord(
        **plain,
        rule=name_of(rule) if isinstance(rule, type) else None,
        fixed=next((kinds[kind] for kind in kinds if isinstance(rule, kind)), None),
        layers=classifier.layers is not None,
        metric=metric,
        classes=classifier.classes is not None,
        quorum=quorum,
        n_features_in=getattr(classifier, "n_features_in_", None),
        feature_names_in=None if columns is None else [str(name) for name in columns],
        probe=probe,
        about=about,
        reading=_make_reading(classifier),
    )


def _make_reading(classifier: Any) -> Reading:
    """How a classifier's model is read: the options that are plain values, the names of others."""
    options = classifier.model_.options
    if not options and "reading" in classifier.plan_.bundled:  # without its model it has none
        return classifier.plan_.bundled["reading"]  # type: ignore[no-any-return]
    plain = {option: _as_plain(options.get(option)) for option in OPTIONS}
    if "views" in options:
        plain["views"] = names_to_store(classifier.model_.views)
    return Reading(**plain, functions=[name for name in options if plain[name] is None])


def _as_plain(value: Any) -> Any:
    """Text, a whole number or a mapping of text to these, in JSON's types; None for others."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Integral) and not isinstance(value, NO_NUMBERS):
        return int(value)
    if isinstance(value, Mapping):
        plain = {key: _as_plain(each) for key, each in value.items()}
        fits = all(
            isinstance(key, str) and isinstance(each, (str, int)) for key, each in plain.items()
        )
        return plain if fits and plain else None
    return None


# And back


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
    settings = bundle.settings
    device = search if isinstance(search, str) else None
    own = load_exported(path, bundle, device) if model is None else None
    adapter: Model = own or PrecomputedModel()
    if isinstance(model, Model):
        adapter = model
    elif model is not None:
        adapter = as_model(model, device=device, **_read_again(settings.reading, path))
    with prefixed(f"{path} is damaged: "):
        known_by = probe_of(bundle)
    if settings.reading.views and not adapter.views and not isinstance(adapter, PrecomputedModel):
        adapter = with_views(adapter, settings.reading.views)
    if checks and (own is not None or model is not None):
        _check_model(path, known_by, adapter, bundle, own=own is not None)
    wrapped = adapter if model is None or adapter.options or adapter.views else model
    classifier = kind(wrapped, search=search, **_parameters_of(bundle))
    # These describe inputs to the model, not precomputed outputs.
    if not isinstance(adapter, PrecomputedModel):
        if settings.n_features_in is not None:
            classifier.n_features_in_ = settings.n_features_in
        if settings.feature_names_in is not None:
            classifier.feature_names_in_ = np.array(settings.feature_names_in, dtype=object)
    is_given = settings.fixed == "selection"
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
        selection=None if is_given else bundle.selection,
        given=bundle.selection if is_given else None,
        log=bundle.log,
        bundled={
            "about": settings.about,
            "reading": settings.reading,
            "sha256": bundle.sha256,
            "exported": bundle.exported,
            "path": os.path.abspath(path),
        },
    )
    return classifier, list(bundle.changes)


def _parameters_of(bundle: Bundle) -> dict[str, Any]:
    """The arguments that `_make_settings` described."""
    settings, rules, metrics = bundle.settings, bundle.neighborhoods, bundle.metrics
    rule: Any = bundle.selection
    if settings.fixed == "one":
        rule = next(iter(rules.values()))
    elif settings.fixed != "selection":
        rule = dict(rules) if settings.fixed == "each" else rule_named(settings.rule)
    metric: Any = settings.metric
    if metric == "one":
        metric = next(iter(metrics.values()))
    elif metric is not None:
        metric = {layer: metrics[layer] for layer in metric}
    quorum = settings.quorum
    return {
        **{name: getattr(settings, name) for name in PLAIN},
        "rule": rule,
        "quorum": tuple(quorum) if isinstance(quorum, list) else quorum,
        "layers": list(bundle.activations) if settings.layers else None,
        "metric": metric,
        "classes": bundle.model_classes if settings.classes else None,
    }


def _read_again(reading: Reading, path: object) -> dict[str, Any]:
    """The options to read a model by, as they were stored."""
    if missing := reading.functions:
        listed = ", ".join(f"{name}=..." for name in missing)
        raise BundleError(
            f"{path} was made with {' and '.join(missing)} given as a function, which a bundle "
            f"cannot hold: pass it again, load(path, as_model(model, {listed}))"
        )
    return {name: getattr(reading, name) for name in OPTIONS}


def _check_model(
    path: str | os.PathLike[str], known_by: Probe | str, model: Model, bundle: Bundle, *, own: bool
) -> None:
    """Refuse a model whose answers differ from those in the bundle. own: whether it holds it."""
    if isinstance(known_by, str):
        if not own:  # its seal is what identifies the bundle's own
            warn(
                f"{path} cannot tell whether this is the model it was made with: {known_by}. If "
                "you know that it is, pass check_model=False, or --no-check-model to a command"
            )
        return
    asked = replace(known_by, inputs=model.prepare(known_by.inputs)) if own else known_by
    if (difference := asked.find_difference(model, bundle.settings.batch_size)) is None:
        return
    if own:
        advice = (
            f"cannot be used: {MODEL} answers differently here: {difference}. Update onnxruntime"
        )
    else:
        advice = f"was made with another model: {difference}. Load it with that model"
    raise BundleError(
        f"{path} {advice} or, if you know better, pass check_model=False, or --no-check-model to a "
        "command"
    )
