"""A served model: a bundle with its classifier, warm, and what it is called."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.text import shown
from iknow.errors import InputError
from iknow.explain.picture import Renderer
from iknow.models import PrecomputedModel
from iknow.serve.said import labels_of
from iknow.serve.seen import Looker
from iknow.storage.info import BundleInfo, describe_bundle

FIRST_VERSION = "1"
SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
"""What may stand in a URL between two slashes as it is."""


@dataclass(frozen=True)
class Source:
    """Where a served model comes from.

    name: what to serve it as; None takes the name in the bundle, or of its file. picture: how to
    draw a sample for the page.
    """

    path: Path
    name: str | None = None
    picture: Renderer | None = None

    @classmethod
    def parse(cls, text: str) -> Source:
        """A path, or NAME=path.

        Examples:
            >>> Source.parse("signs=bundles/2026.iknow").name
            'signs'
        """
        name, separator, path = text.partition("=")
        if separator and SEGMENT.fullmatch(name):
            return cls(Path(path), name)
        return cls(Path(text))


@dataclass(frozen=True, eq=False)
class Served:
    """A model that answers.

    Attributes:
        name, version: What it is called.
        classifier: It, loaded and warm.
        sha256: The content of its bundle.
        labels: Its classes as JSON has them.
        looker: Sees what the page shows.
        promises: What is promised, in sentences.
        source: Where it came from; None for a classifier that was given as such.
    """

    name: str
    version: str
    classifier: EpistemicClassifier
    sha256: str
    labels: list[Any]
    promises: tuple[str, ...]
    looker: Looker
    source: Source | None = None
    created: str | None = None
    note: str = ""

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}"

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

    def _n_features(self) -> int | None:
        """The number of features, if a row is a list of them."""
        inputs = self.inputs()
        shape = inputs[0]["shape"]
        return int(shape[1]) if len(inputs) == 1 and len(shape) == 2 else None

    def about(self) -> dict[str, Any]:
        """What `GET /v1/models/NAME` tells."""
        classifier = self.classifier
        known = getattr(classifier, "feature_names_in_", None)
        return {
            "name": self.name,
            "version": self.version,
            "bundle": self.sha256,
            "created": self.created,
            "note": self.note,
            "classes": self.labels,
            "features": None if known is None else [str(name) for name in known],
            "n_features": self._n_features(),
            "layers": [str(layer) for layer in classifier.neighborhoods_],
            "promises": list(self.promises),
            "stale": getattr(getattr(classifier, "selection_", None), "stale", ""),
            "changes": len(classifier.memory.log),
        }


def load_served(source: Source, at: str | None = None) -> Served:
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
    name = name_source(source, info)
    version = info.version or FIRST_VERSION
    return _warm(
        Served(
            name=name,
            version=version,
            classifier=classifier,
            sha256=str(classifier.plan_.bundled["sha256"]),
            labels=labels_of(classifier),
            promises=promises_of(classifier) or tuple(info.promises),
            looker=Looker(source.picture),
            source=replace(source, name=name),
            created=info.created,
            note=info.note,
        )
    )


def name_source(source: Source, info: BundleInfo | None = None) -> str:
    """What a bundle is served as: as asked for, or as it is called, or as its file is."""
    if source.name is not None:
        return source.name
    about = describe_bundle(source.path) if info is None else info
    return _as_segment(about.name or source.path.stem)


def serve_classifier(
    name: str,
    classifier: EpistemicClassifier,
    version: str = FIRST_VERSION,
    picture: Renderer | None = None,
) -> Served:
    """Serve a classifier that exists in this process, whatever its model."""
    if not SEGMENT.fullmatch(name) or not SEGMENT.fullmatch(version):
        raise InputError(
            f"a name and a version have letters, digits and . _ -; got {shown(name)} and "
            f"{shown(version)}"
        )
    bundled = classifier.plan_.bundled
    return _warm(
        Served(
            name=name,
            version=version,
            classifier=classifier,
            sha256=str(bundled.get("sha256", "")),
            labels=labels_of(classifier),
            promises=promises_of(classifier),
            looker=Looker(picture),
        )
    )


def promises_of(classifier: EpistemicClassifier) -> tuple[str, ...]:
    """What is promised of a tuned classifier, in sentences."""
    selection = getattr(classifier, "selection_", None)
    return () if selection is None else tuple(selection.sentences())


def _warm(served: Served) -> Served:
    served.classifier.warm_up()
    probe = getattr(served.classifier.probe_, "inputs", None)
    if probe is not None:
        served.classifier.assess(probe)  # every part of an answer was made once
    return served


def _as_segment(name: str) -> str:
    """A name as a URL can hold it."""
    kept = re.sub(r"[^A-Za-z0-9._-]+", "-", os.fspath(name)).strip("-._")
    return kept[:100] or "model"
