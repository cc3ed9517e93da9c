"""Served models: bundles with their classifiers, warm, and what they are called."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.codes import for_json
from iknow.core.text import names, shown
from iknow.errors import InputError
from iknow.explain.picture import Renderer
from iknow.models import PrecomputedModel
from iknow.serve.answers import Portrayer
from iknow.serve.batching import Batcher
from iknow.serve.schema import ModelInfo, Refusal
from iknow.serve.watcher import Watcher
from iknow.storage.info import describe_bundle

FIRST_VERSION = "1"
SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
"""What may stand in a URL between two slashes as it is."""


@dataclass(frozen=True)
class BundleSource:
    """Where a served model comes from.

    name: what to serve it as; None takes the name in the bundle, or of its file. picture: how to
    draw a sample for the page.
    """

    path: Path
    name: str | None = None
    picture: Renderer | None = None

    @classmethod
    def parse(cls, text: str) -> BundleSource:
        """A path, or NAME=path.

        Examples:
            >>> BundleSource.parse("signs=bundles/2026.iknow").name
            'signs'
        """
        name, _, path = text.partition("=")
        return cls(Path(path), name) if path and SEGMENT.fullmatch(name) else cls(Path(text))


@dataclass(eq=False)
class ServedModel:
    """One served model with its batching queue, activity counts and drift alarm.

    Attributes:
        classifier: It, loaded and warm.
        sha256: The content of its bundle.
        portrayer: Makes what the page shows of IDKs.
        source: Where it came from; None for a classifier that was given as such.
        labels: Its classes as JSON has them.
        batcher, watcher: A process that only computes has neither.
    """

    name: str
    version: str
    classifier: EpistemicClassifier
    portrayer: Portrayer
    source: BundleSource | None = None
    created: str | None = None
    note: str = ""
    sha256: str = field(init=False)
    labels: list[Any] = field(init=False)
    batcher: Batcher = field(init=False)
    watcher: Watcher = field(init=False)

    def __post_init__(self) -> None:
        self.labels = for_json(self.classifier.classes_)
        self.sha256 = str(self.classifier.plan_.bundled.get("sha256", ""))

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def selection(self) -> Any:
        """How it was tuned; None if it was not."""
        return getattr(self.classifier, "selection_", None)

    @property
    def promises(self) -> tuple[str, ...]:
        """What is promised, in sentences."""
        return () if self.selection is None else tuple(self.selection.sentences())

    def inputs(self) -> list[dict[str, Any]]:
        """The tensors that the model takes, as the Open Inference Protocol describes them."""
        probe = getattr(self.classifier.probe_, "inputs", None)
        if isinstance(probe, list) or (probe is not None and np.ndim(probe) == 1):
            return [{"name": "rows", "datatype": "BYTES", "shape": [-1]}]
        arrays = getattr(probe, "arrays", None) or {"rows": probe}
        return [
            {"name": name, "datatype": "FP32", "shape": [-1, *np.shape(values)[1:]]}
            for name, values in arrays.items()
        ]

    def about(self) -> ModelInfo:
        """What `GET /v1/models/NAME` tells."""
        classifier, shapes = self.classifier, [each["shape"] for each in self.inputs()]
        known = getattr(classifier, "feature_names_in_", None)
        return ModelInfo(
            name=self.name,
            version=self.version,
            bundle=self.sha256,
            created=self.created,
            note=self.note,
            classes=tuple(self.labels),
            features=None if known is None else tuple(map(str, known)),
            n_features=int(shapes[0][1]) if len(shapes) == 1 and len(shapes[0]) == 2 else None,
            layers=tuple(map(str, classifier.neighborhoods_)),
            promises=self.promises,
            stale=getattr(self.selection, "stale", ""),
            changes=len(classifier.memory.log),
        )

    def status(self) -> dict[str, Any]:
        """What the page shows about this model."""
        about = {"name": self.name, "version": self.version, "bundle": self.sha256}
        return {**about, "promises": self.promises, **self.watcher.status()}


def load_model(source: BundleSource, at: str | None = None) -> ServedModel:
    """Load a portable bundle, and warm it up; at: as it was when its sha256 was this one.

    Raises:
        BundleError: The bundle is damaged, or carries no model.
        InputError: It cannot be served, and why.
    """
    info = describe_bundle(source.path)
    classifier = EpistemicClassifier.load(source.path, at=at)
    if isinstance(classifier.model_, PrecomputedModel):
        raise InputError(
            f"{source.path} holds no model: make it portable with iknow export "
            f"{source.path} --model FILE -o OUT, or ec.save(path, onnx=True)"
        )
    name = name_source(source)
    model = ServedModel(
        name, info.version or FIRST_VERSION, classifier, Portrayer(source.picture),
        replace(source, name=name), info.created, info.note,
    )  # fmt: skip
    return _warm(model)


def name_source(source: BundleSource) -> str:
    """What a bundle is served as: as asked for, or as it is called, or as its file is."""
    if source.name is not None:
        return source.name
    called = describe_bundle(source.path).name or source.path.stem
    return re.sub(r"[^A-Za-z0-9._-]+", "-", called).strip("-._")[:100] or "model"


def serve_classifier(
    name: str,
    classifier: EpistemicClassifier,
    version: str = FIRST_VERSION,
    picture: Renderer | None = None,
) -> ServedModel:
    """Serve a classifier that exists in this process, whatever its model."""
    if not SEGMENT.fullmatch(name) or not SEGMENT.fullmatch(version):
        raise InputError(
            f"a name and a version have letters, digits and . _ -; got {shown(name)} and "
            f"{shown(version)}"
        )
    return _warm(ServedModel(name, version, classifier, Portrayer(picture)))


def _warm(model: ServedModel) -> ServedModel:
    model.classifier.warm_up()
    probe = getattr(model.classifier.probe_, "inputs", None)
    if probe is not None:
        model.classifier.assess(probe)  # every part of an answer was made once
    return model


class Models:
    """All models that are served. The last one added under a name is its default version."""

    def __init__(self) -> None:
        self._all: dict[str, dict[str, ServedModel]] = {}

    def __iter__(self) -> Iterator[ServedModel]:
        return iter([model for versions in self._all.values() for model in versions.values()])

    def find(self, name: str, version: str | None = None) -> ServedModel:
        """A model by its name. Raises a `Refusal`, 404, if there is none."""
        versions = self._all.get(name)
        if versions is None:
            raise Refusal(404, f"there is no model {shown(name, 80)}: there is {names(self._all)}")
        if version is None:
            return next(reversed(versions.values()))
        if version not in versions:
            raise Refusal(
                404, f"{name} has no version {shown(version, 80)}: it has {names(versions)}"
            )
        return versions[version]

    def versions(self, name: str) -> list[str]:
        """The versions under a name."""
        return list(self._all[name])

    def put(self, new: ServedModel, old: ServedModel | None = None) -> None:
        """Serve a model, in the place of an old one if there is one, whatever the versions."""
        versions = self._all.setdefault(new.name, {})
        if versions.get(new.version, old) is not old:
            raise InputError(
                f"{new.title} is given twice: serve one of them as NAME=BUNDLE, or save it with a "
                "version of its own"
            )
        kept = [new if each is old else each for each in versions.values()]
        kept += [new] if old is None else []
        self._all[new.name] = {each.version: each for each in kept}
