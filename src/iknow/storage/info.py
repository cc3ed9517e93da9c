"""What a bundle is: a summary of its manifest, for people who find one and for programs.

The arrays stay on disk: only their headers, the manifest and the small arrays of metrics and probe
are read, so a bundle of any size is described at once. The checksum of the manifest is compared;
those of the arrays are left to `load`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import msgspec

from iknow.cards import COLORS, LINE, card, heading, paragraphs, table, text
from iknow.core.assertion import Assertion
from iknow.core.quorum import Quorum
from iknow.core.text import name as short
from iknow.core.text import names
from iknow.models.adapt import OPTIONS
from iknow.selection import Selection
from iknow.storage.bundle import Bundle, read_bundle
from iknow.storage.changes import Folding, Logged, stale
from iknow.storage.manifest import FORMAT

IN_LAYERS = ("levels", "neighborhoods")
"""Parts of a selection that are large, or that the layers tell."""
MAKERS = ("name", "version", "note", "created", "model")
"""What its maker said, or is said about its making."""
CLASSES_SHOWN = 10
NUMBER = re.compile(r"[0-9]+\.[0-9]{4,17}(e-?[0-9]+)?")  # of more digits than people read


@dataclass(frozen=True)
class LayerInfo:
    """One layer of a bundle.

    Attributes:
        name: Its name in the model.
        n_features: Number of features of its activations.
        metric: Its metric, such as "Cosine".
        rule: Its rule, such as "Ball(radius=0.5)"; None before tuning.
        quorum: How many samples the belief needs, and another class to contradict it.
    """

    name: str
    n_features: int
    metric: str
    rule: str | None
    quorum: Quorum | None


@dataclass(frozen=True)
class BundleInfo:
    """What a bundle is, and what it promises.

    Attributes:
        path: The file.
        n_bytes: Its size.
        format: The version of its format.
        iknow: The version of iknow that wrote it.
        sha256: The checksum that seals all of it: the same content, the same sum.
        name: What its maker calls it, if anything.
        version: The version that its maker gave it, if any.
        note: What its maker says about it; "" for nothing.
        created: When it was written, such as "2026-01-31T12:00:00Z".
        model: The kind of model it was made with.
        exported: If the bundle holds that model as ONNX: on how many samples it was compared, and
            how far scores and activations differed, where which tolerance was allowed; else None.
        reading: The options with which the model is read; see `EpistemicClassifier`.
        needs: The options to pass to `load` again, as they were functions.
        recognizes_model: Whether `load` can tell the right model from another.
        classes: The labels.
        n_samples: Number of training samples kept as evidence.
        per_class: Their number by class.
        inputs: The shape of one sample, by the names of the model's inputs; None if unknown.
        feature_names: The names of the features, if they have any.
        rule: The kind of rule that was tuned; None if it was fixed.
        layers: The layers.
        selection: How the neighborhoods were chosen, on how many validation samples, how they
            perform there, and what is promised; None if nothing was tuned.
        changes: What happened to the evidence since it was collected: who changed which samples,
            when and why, the first change first.
        n_segments: How many of these changes are appended to the file, not folded in yet. Until
            `iknow compact`, removed samples are still in the file.
        n_torn: Bytes at the end of the file that an interrupted writer left; nobody reads them.
    """

    path: str
    n_bytes: int
    format: int
    iknow: str
    sha256: str
    name: str | None
    version: str | None
    note: str
    created: str
    model: str
    exported: Mapping[str, Any] | None
    reading: Mapping[str, Any]
    needs: tuple[str, ...]
    recognizes_model: bool
    classes: tuple[Any, ...]
    n_samples: int
    per_class: tuple[int, ...]
    inputs: Mapping[str, tuple[int, ...]] | None
    feature_names: tuple[str, ...] | None
    rule: str | None
    layers: tuple[LayerInfo, ...]
    selection: Selection | None
    changes: tuple[Logged, ...] = ()
    n_segments: int = 0
    n_torn: int = 0

    @property
    def is_portable(self) -> bool:
        """Whether it holds its model, so that `load` needs no other."""
        return self.exported is not None

    @property
    def title(self) -> str:
        """Its name, or that of its file."""
        return self.name or short(os.path.basename(self.path))

    @property
    def promises(self) -> list[str]:
        """What is promised, and how it performed when it was tuned, in sentences."""
        if self.selection is not None:
            return self.selection.sentences()
        if any(layer.rule is not None for layer in self.layers):
            return ["Nothing is guaranteed: its neighborhoods were given, not tuned"]
        return ["It is not tuned yet: call tune before assess"]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON, but for the path of levels."""
        record = {each.name: getattr(self, each.name) for each in fields(self)}
        record["layers"] = [asdict(layer) for layer in self.layers]
        if self.selection is not None:
            chosen = self.selection.to_dict()
            record["selection"] = {k: v for k, v in chosen.items() if k not in IN_LAYERS}
        record["changes"] = [each.to_dict() for each in self.changes]
        return record

    def __str__(self) -> str:
        lines = [self.title, *self.note.splitlines(), ""]
        lines += [f"{title:<10}{value}" for title, value in list_facts(self).items()]
        lines += [f"{'layer':<10}{short(each.name)}: {_in_words(each)}" for each in self.layers]
        return "\n".join([*lines, "", *map(short_line, self.promises)])

    def _repr_html_(self) -> str:
        certified = self.selection is not None and self.selection.is_certified
        facts = [(text(title), text(value)) for title, value in list_facts(self).items()]
        layers = [(text(each.name), text(each.metric), text(rule_of(each))) for each in self.layers]
        return card(
            heading(self.title, "a bundle of iknow"),
            paragraphs(self.note.splitlines()),
            table((), facts, margin="12px 0 0"),
            table(("layer", "metric", "rule"), layers, margin="4px 0 0"),
            paragraphs(map(short_line, self.promises)),
            color=COLORS[Assertion.IK] if certified else LINE,  # green
        )


def describe_bundle(path: str | os.PathLike[str]) -> BundleInfo:
    """Say what a bundle is, without loading it.

    Args:
        path: The file.

    Raises:
        BundleError: The file is no bundle, or its manifest is damaged.

    Examples:
        >>> ec = EpistemicClassifier(FrozenEstimator(trained)).fit(X_train, y_train)
        >>> ec.tune(X_val, y_val).save("iris.iknow", name="irises", note="A first try.")
        >>> from iknow.storage.info import describe_bundle
        >>> describe_bundle("iris.iknow").name, describe_bundle("iris.iknow").model
        ('irises', 'LogisticRegression')
    """
    bundle = read_bundle(path, verify=False, copied_up_to=0)
    settings, about, selection = bundle.settings, bundle.settings.about, bundle.selection
    log = (*bundle.log, *(each.logged() for each in bundle.changes))
    classes, per_class = bundle.classes, about.per_class
    if bundle.changes:
        now = Folding(bundle, bundle.changes)
        classes, per_class = now.classes, now.counts()
        selection = stale(selection, log[len(bundle.log) :])
    columns, shapes, exported = settings.feature_names_in, about.inputs, None
    if bundle.exported is not None:
        exported = msgspec.to_builtins(bundle.exported)
        del exported["sha256"]
    return BundleInfo(
        path=os.fspath(path),
        n_bytes=bundle.n_bytes,
        format=FORMAT,
        iknow=bundle.version,
        sha256=bundle.sha256,
        **{name: getattr(about, name) for name in MAKERS},
        exported=exported,
        reading={option: getattr(settings.reading, option) for option in OPTIONS},
        needs=tuple(settings.reading.functions),
        recognizes_model=not isinstance(settings.probe, str),
        classes=tuple(classes.tolist()),
        n_samples=sum(per_class),
        per_class=tuple(per_class),
        inputs=None if shapes is None else {name: tuple(each) for name, each in shapes.items()},
        feature_names=None if columns is None else tuple(columns),
        rule=settings.rule,
        layers=tuple(_describe_layers(bundle)),
        selection=selection,
        changes=log,
        n_segments=len(bundle.changes),
        n_torn=bundle.n_torn,
    )


def _describe_layers(bundle: Bundle) -> Iterator[LayerInfo]:
    for layer, points in bundle.activations.items():
        rule = bundle.neighborhoods.get(layer)
        yield LayerInfo(
            name=layer,
            n_features=points.shape[1],
            metric=name_metric(bundle.metrics[layer].to_dict()),
            rule=None if rule is None else repr(rule),
            quorum=None if rule is None else rule.quorum,
        )


def name_model(model: Any) -> str:
    """What kind of model it is, in a few words."""
    if (source := getattr(model, "source", None)) is not None:  # of an adapter
        return name_model(source)
    if isinstance(model, (str, os.PathLike)):
        return short(f"ONNX file {os.path.basename(os.fspath(model))}")
    kind = type(model).__name__
    if kind == "FrozenEstimator":
        return name_model(model.estimator)
    steps = getattr(model, "steps", None)
    if isinstance(steps, list) and all(
        isinstance(each, tuple) and len(each) == 2 for each in steps
    ):
        return short(f"{kind}({', '.join(type(step).__name__ for _, step in steps)})")
    is_function = not hasattr(model, "predict") and hasattr(model, "__qualname__")
    return short(f"function {model.__qualname__}" if is_function else kind)


def name_metric(record: Mapping[str, Any]) -> str:
    """The name of a metric with its parameters, without its arrays."""
    others = {name: value for name, value in record.items() if name != "metric"}
    if record["metric"] == "Minkowski" and others == {"p": 2.0}:
        return "Euclidean"
    given = ", ".join(f"{name}={value!r}" for name, value in others.items())
    return short(f"{record['metric']}({given})" if given else record["metric"])


def list_facts(info: BundleInfo) -> dict[str, str]:
    """What a bundle is made of, as short texts by their headings."""
    samples = f"{info.n_samples:,} of training"
    if info.selection is not None:
        samples += f", {info.selection.n_samples:,} of validation"
    version = {} if info.version is None else {"version": info.version}
    found = version | {
        "made": short(f"{info.created} by iknow {info.iknow}, format {info.format}"),
        "model": f"{info.model}, {_where_model_is(info)}",
        "samples": samples,
        "classes": _list_classes(info),
    }
    if info.inputs:
        shapes = (" × ".join(map(str, shape)) or "one value" for shape in info.inputs.values())
        pairs = zip(info.inputs, shapes, strict=True)
        found["inputs"] = short(", ".join(f"{name}: {shape}" for name, shape in pairs))
    if info.feature_names:
        found["features"] = short(names(info.feature_names))
    if info.changes:
        found["changes"] = _count_changes(info)
    if info.n_torn:
        found["torn"] = f"{info.n_torn:,} bytes that an interrupted writer left: not read"
    if info.selection is not None and info.selection.level is not None:
        found["level"] = f"IK begins at {info.selection.level:.3f}"
    given = [f"{option}={value!r}" for option, value in info.reading.items() if value is not None]
    given += [f"{option}=..., a function: pass it to load" for option in info.needs]
    return found | ({"read with": short(", ".join(given))} if given else {})


def _count_changes(info: BundleInfo) -> str:
    folded = len(info.changes) - info.n_segments
    parts = [f"{folded:,} folded in"] * bool(folded)
    parts += [f"{info.n_segments:,} appended"] * bool(info.n_segments)
    return f"{' and '.join(parts)}, the last at {info.changes[-1].when}"


def _where_model_is(info: BundleInfo) -> str:
    if info.exported is None:
        return "not in the bundle"
    return f"in the bundle as ONNX, compared on {info.exported['samples']:,} samples"


def short_line(sentence: str) -> str:
    """A sentence that may quote names from outside, ready to show."""
    return short(sentence, 1_000)


def _list_classes(info: BundleInfo) -> str:
    pairs = list(zip(info.classes, info.per_class, strict=True))[:CLASSES_SHOWN]
    shown = [f"{short(label, 40)} ({count:,})" for label, count in pairs]
    n = len(info.classes)
    return ", ".join(shown) + (f", … ({n:,} in all)" if n > CLASSES_SHOWN else "")


def _in_words(layer: LayerInfo) -> str:
    rule = NUMBER.sub(lambda number: f"{float(number[0]):.4g}", rule_of(layer))
    return f"{layer.n_features:,} features, {layer.metric}, {rule}"


def rule_of(layer: LayerInfo) -> str:
    return "not tuned" if layer.rule is None else short(layer.rule)
