"""Saving: a fitted classifier to a bundle, and back."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, Self
from warnings import warn

import numpy as np
from sklearn.utils.validation import check_is_fitted

from iknow.core.arrays import Labels
from iknow.core.rule import Rule
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
from iknow.storage.change import Change, Logged
from iknow.storage.exporting import check_exported_model, find_exported, load_exported
from iknow.storage.parameter_record import CHOSEN, parameters_from_dict, parameters_to_dict
from iknow.storage.reading_record import make_reading, read_again
from iknow.storage.saved_settings import check_layers, read_settings
from iknow.version import __version__


class SavingMixin:
    """`save` and `load`, for a classifier with these parameters and learned values."""

    rule: type[Rule] | Rule | Mapping[str, Rule] | Selection
    search: Search
    model_: Model
    classes_: Labels
    layers_: tuple[str, ...]
    indexes_: dict[str, LayerIndex]
    neighborhoods_: dict[str, Rule]
    selection_: Selection
    probe_: Probe | str
    n_features_in_: int
    feature_names_in_: Labels
    changes_: tuple[Logged, ...]
    bundled_: Mapping[str, Any]
    """Of a loaded classifier: what its bundle says about itself, and the bundle's sha256."""
    _uncommitted: tuple[Change, ...]
    """Of a loaded classifier: the changes since it was loaded, or since `commit`."""
    _apply: Callable[[Change], Any]
    _view: Callable[[], Any]

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        probe: bool = True,
        name: str | None = None,
        note: str | None = None,
        version: str | None = None,
        onnx: bool = False,
        samples: Any = None,
    ) -> None:
        """Write a bundle: evidence, neighborhoods and selection, and on request the model as ONNX.

        Changes of the evidence are folded in: nothing of a removed sample is in the bundle. To
        append changes to the bundle that a classifier was loaded from, use `commit`.

        It records the time, and with the environment variable SOURCE_DATE_EPOCH that time instead,
        so that the same classifier makes the same file.

        Args:
            path: The file to write.
            probe: Keep up to 32 training inputs, 1 MiB at most, with the model's answers, so that
                `load` can recognize the model. False keeps no inputs, and `load` accepts any model.
            name: What to call it, in one line. Default: as it was called when it was loaded.
            note: Anything else that those who find the bundle should know. Default: likewise.
            version: Its version, such as "1.3" or "2026-11-01": letters, digits, dots, hyphens and
                underscores, up to 64. Default: none.
            onnx: Put the model with its layers into the bundle as ONNX, so that `load` needs no
                model, only onnxruntime. On the inputs that the probe keeps, and on `samples`,
                belief, assertion and level must be the same, and scores and activations within the
                probe's tolerance; else nothing is written. A classifier that was loaded with the
                model of its bundle keeps it.
            samples: Further samples to compare on, in any form the model takes.

        Raises:
            ExportError: The model cannot become ONNX, or a sample is answered differently.

        Examples:
            >>> ec = EpistemicClassifier(FrozenEstimator(trained)).fit(X_train, y_train)
            >>> ec.tune(X_val, y_val).save("iris.iknow")
            >>> EpistemicClassifier.load("iris.iknow", FrozenEstimator(trained)).layers_
            ('input',)
        """
        check_is_fitted(self, "indexes_")
        self = self._view()  # a change meanwhile must not mix old and new evidence
        about = make_about(self, name, note, version)
        as_onnx = find_exported(self, wanted=as_flag(onnx, "onnx"), samples=samples)
        known_by = self.probe_ if as_flag(probe, "probe") else "it was saved with probe=False"
        record, arrays = (known_by, {}) if isinstance(known_by, str) else known_by.store()
        any_index = self.indexes_[self.layers_[0]]
        given = self.rule if isinstance(self.rule, Selection) else None
        selection: Selection | None = getattr(self, "selection_", given)
        if selection is not None:  # one of another classifier may leave out layers unknown here
            kept = {name: why for name, why in selection.left_out.items() if name in self.layers_}
            selection = replace(selection, left_out=kept)
        rules: dict[str, Rule] = getattr(self, "neighborhoods_", {})
        check_layers(self.layers_, rules, selection)  # somebody may have changed them
        names = getattr(self, "feature_names_in_", None)
        bundle = Bundle(
            classes=self.classes_,
            labels=any_index.labels,
            rows=any_index.rows,
            activations={layer: index.points for layer, index in self.indexes_.items()},
            metrics={layer: index.metric for layer, index in self.indexes_.items()},
            neighborhoods=rules,
            probe=arrays,
            settings={
                **parameters_to_dict(self),
                "selection": None if selection is None else selection.to_dict(),
                "n_features_in": getattr(self, "n_features_in_", None),
                "feature_names_in": None if names is None else [str(name) for name in names],
                "probe": record,
                "about": about,
                "reading": make_reading(self),
            },
            log=self.changes_,
            model=None if as_onnx is None else lambda: as_onnx.content,
            exported=None if as_onnx is None else as_onnx.compared,
        )
        write_bundle(path, bundle, __version__)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        model: Any = None,
        *,
        verify: bool | Literal["now"] = True,
        search: Search = None,
        check_model: bool = True,
        at: str | None = None,
    ) -> Self:
        """Read a bundle back, for the same trained model.

        Every parameter comes back, except `search`, which belongs to the machine, and a
        RandomState, which keeps changing: None takes its place.

        Args:
            path: The file to read.
            model: The model. It is read as it was saved; if that took a function, which a bundle
                cannot hold, pass it again: as_model(model, embed=...). Default: the one in the
                bundle, run by onnxruntime; if the bundle
                holds none, the classifier takes precomputed outputs, (scores, {layer:
                activations}).
            verify: Compare the arrays with their checksums before the first answer that depends on
                them, and again if a mapped file changes; "now" also compares at once, False never.
                Bundles larger than 256 MiB are mapped, others copied into memory.
            search: As for a new classifier, whatever was saved.
            check_model: Ask the model about the inputs in the bundle, and refuse one whose answers
                differ; False accepts any model.
            at: The sha256 that the bundle had at some time since it was compacted, such as an audit
                records it: load it without later changes.

        Raises:
            BundleError: The bundle is damaged, or was made with another model.

        If the evidence of the bundle was changed, it is loaded as it is now; see `changes_`.
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
        parameters = parameters_from_dict(settings, bundle)
        classifier = cls(wrapped, search=search, **parameters)  # type: ignore[call-arg]
        classifier.model_, classifier.probe_ = adapter, known_by
        kept = {name: settings[name] for name in ("about", "reading")}
        facts = {
            "sha256": bundle.sha256,
            "exported": bundle.exported,
            "path": os.path.abspath(path),
        }
        classifier.bundled_ = kept | facts
        classifier._restore(bundle, settings)
        # These describe inputs to the model, not precomputed outputs.
        runs = not isinstance(adapter, PrecomputedModel)
        if runs and settings["n_features_in"] is not None:
            classifier.n_features_in_ = settings["n_features_in"]
        if runs and settings["feature_names_in"] is not None:
            classifier.feature_names_in_ = np.array(settings["feature_names_in"], dtype=object)
        return classifier

    def _restore(self, bundle: Bundle, settings: Mapping[str, Any]) -> None:
        """Set what was learned from data."""
        self.classes_ = bundle.classes
        self.layers_ = tuple(bundle.activations)
        self.indexes_ = {}
        for layer, points in bundle.activations.items():
            arrays = points, bundle.labels, len(bundle.classes), bundle.rows
            metric = bundle.metrics[layer]
            self.indexes_[layer] = LayerIndex(*arrays, metric, self.search, bundle.check)
        if bundle.neighborhoods:
            self.neighborhoods_ = dict(bundle.neighborhoods)
        if settings["selection"] is not None and settings["fixed"] != CHOSEN:
            self.selection_ = Selection.from_dict(settings["selection"])
        self.changes_ = bundle.log
        for change in bundle.changes:
            self._apply(change)
        selection = getattr(self, "selection_", self.rule)
        chosen = selection if isinstance(selection, Selection) else None
        self.bundled_ = {**self.bundled_, "selection": chosen}
        self._uncommitted = ()


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
