"""Golden answers: what a commit answers, and whether this tree answers the same, to the last bit.

    python tools/golden.py make COMMIT     # run COMMIT's code on all problems, keep the answers
    python tools/golden.py check COMMIT    # run this tree's code on them, and compare

The answers are those of about 130 classifiers (every rule, metric, kind of model, quorum and index,
rows that change, bundles, streams), of 10,000 random problems of the core for each rule, and of
random indexes. They are kept outside the repository, by commit and processor: another processor
may round a model's scores otherwise. `check --quick` asks some of the problems, `--only NAME` those
whose names begin so; `--without-numba` must find the same bits as with it.

Code that moves keeps its answers, so the problems speak to the public face. What may get another
name or another shape is asked for in the section "the face" alone, under the old and the new name.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import importlib
import inspect
import json
import os
import pkgutil
import platform
import re
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
Answers = dict[str, Any]  # arrays by name, such as "evidence/input/distances"
PROBLEMS, CHUNK, QUERIES = 10_000, 1_000, 20  # for each rule; in a chunk; in one evidence
INDEXES, LARGE, TOGETHER = 600, 480, 20  # random indexes; the first large one; in a case
RULES = "Ball", "Nearest", "BallElseNearest", "BallWithNearest", "RelativeBall"
QUORUMS = (1, 1), (1, 3), (2, 2), (3, 1)

# ---- the face: what may get another name, or another shape


@cache
def find(name: str, *rooms: str) -> Any:
    """What bears a name in one of the rooms, in whichever of a room's files it lies."""
    for room in rooms:
        try:
            package = importlib.import_module(f"iknow.{room}")
        except ModuleNotFoundError:
            continue
        if hasattr(package, name):
            return getattr(package, name)
        for each in pkgutil.iter_modules(getattr(package, "__path__", ())):
            if not each.ispkg:
                module = importlib.import_module(f"iknow.{room}.{each.name}")
                if hasattr(module, name):
                    return getattr(module, name)
    raise LookupError(f"no {name} in {rooms}: tell tools/golden.py its new name, in `the face`")


def first_of(thing: Any, *names: str) -> Any:
    """The first of these attributes that there is."""
    return next(getattr(thing, name) for name in names if hasattr(thing, name))


def core(name: str) -> Any:
    return find(name, "core")


def metric_named(name: str) -> Any:
    return find(name, "geometry", "metrics")


def make_rule(name: str, **parameters: Any) -> Any:
    import iknow

    return getattr(iknow, name)(**parameters)


def make_classifier(model: Any, **options: Any) -> Any:
    """A classifier, by the parameters that it takes now."""
    from iknow import EpistemicClassifier

    taken = inspect.signature(EpistemicClassifier).parameters
    if "neighborhoods" in options and "neighborhoods" not in taken:
        options["rule"] = options.pop("neighborhoods")
    if isinstance(options.get("rule"), str):
        options["rule"] = find(options["rule"], "rules")
    for old in ("index", "device"):
        if old in options and old not in taken:
            options["search"] = options.pop(old)
    if "embed" in options and "embed" not in taken:
        model = find("as_model", "models")(model, embed=options.pop("embed"))
    return EpistemicClassifier(model, progress=False, **options)


def as_before(found: Any) -> Any:
    """Answers in which layers have the names that they had."""
    if isinstance(found, dict):
        return {as_before(key): as_before(value) for key, value in found.items()}
    if type(found) in (list, tuple):
        return type(found)(map(as_before, found))
    if isinstance(found, np.ndarray) and found.dtype.kind in "OU":  # of voices, such as
        return np.array([as_before(each) for each in found.tolist()], dtype=found.dtype)
    if not isinstance(found, str):
        return found
    return "numbers" if found == "table" else re.sub(r"(?<= in )table$", "numbers", found)


def change(classifier: Any, what: str, *arguments: Any) -> None:
    getattr(classifier if hasattr(classifier, what) else classifier.memory, what)(*arguments)


def rules_of(thing: Any) -> Any:
    return first_of(thing, "neighborhoods", "rules")


def make_evidence(distances: Any, neighbors: Any, rows: Any) -> Any:
    """Evidence from the nearest of each class, both (n, n_classes, per_class)."""
    try:
        return core("from_ranked")(distances, neighbors, rows)
    except LookupError:
        return core("Evidence")(distances, neighbors, rows)


def read_evidence(found: Any) -> Answers:
    is_earlier = hasattr(found, "ranked_distances")
    return {
        "distances": found.ranked_distances() if is_earlier else found.distances,
        "rows": found.ranked_exemplars() if is_earlier else found.rows,
        "neighbors": found.neighbor_distances,
    }


def read_decision(found: Any) -> Answers:
    contrast = getattr(found, "contrast", found)
    whole = {"own": contrast.own, "other": contrast.other}
    return whole | {"rows": found.exemplars, "support": found.support}


def make_index(kind: str, *arrays: Any, rows: Any = None) -> Any:
    """An index of the library: points, labels, n_classes."""
    if kind in ("DiskIndex", "RayIndex"):
        made = find(kind, f"search.{kind[:-5].lower()}", "search")
        options: Answers = {"shards": 2} if kind == "RayIndex" else {"block": 16, "memory": 1 << 20}
        return made(*arrays, rows=rows, **options)
    metrics = {"l1": 1.0, "l3": 3.0, "l40": 40.0, "linf": np.inf}
    if kind in metrics:
        metric = metric_named("Minkowski")(metrics[kind])
    else:
        metric = metric_named("Hamming")() if kind == "hamming" else metric_named("Euclidean")
    try:
        kind_of = find("find_index_type", "search")
    except LookupError:
        kind_of = find("index_type", "search")
    return kind_of(metric, "cpu" if kind == "torch" else None)(*arrays, rows=rows)


class OwnIndex:
    """A user's own index, which gathers and does nothing else."""

    def __init__(self, activations: Any, labels: Any, n_classes: int, rows: Any = None) -> None:
        self.index = make_index("l2", activations, labels, n_classes, rows=rows)
        self.n_rows, self.n_features = np.shape(activations)
        self.n_classes = n_classes

    def gather(self, queries: Any, k: int = 0, per_class: int = 1) -> Any:
        return self.index.gather(queries, k, per_class)

    def find_support(self, queries: Any, rule: Any, belief: Any = None) -> Any:
        evidence = self.gather(queries, rule.n_neighbors, max(rule.quorum))
        return core("find_support")(evidence, rule, belief)


# ---- answers: what is asked of a classifier


def flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A value as arrays by name; what is not an array becomes text, with every digit."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from flat(f"{name}/{key}", part)
    elif isinstance(value, np.ndarray) and value.dtype.kind != "O":
        yield name, np.array(value.view(np.ndarray))
    else:
        plain = value.tolist() if isinstance(value, np.ndarray) else value
        yield name, np.array(json.dumps(plain, default=plainly))


def plainly(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return astuple(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def read_levels(levels: Any) -> Answers:
    """What reference samples say, ascending, by layer and voice."""
    if not hasattr(levels, "hears_model"):
        sides = ("own", "ratio") if levels.clarity else ("own",)
        layers = {k: {side: getattr(v, side) for side in sides} for k, v in levels.layers.items()}
        return layers | {"confidence": levels.confidence, "nearness": levels.nearness}
    found: Answers = {layer: {} for layer in levels.layers} | {"confidence": None}
    for voice in levels.voices:
        if voice.name == "nearness":
            found[voice.layer]["own"] = -voice.reference[::-1]
            found["nearness"] = voice.budget
        elif voice.name == "clarity":
            found[voice.layer]["ratio"] = voice.reference
        else:
            found["confidence"] = voice.reference
    return found


def read_selection(classifier: Any) -> Answers:
    chosen = getattr(classifier, "selection_", None)
    if chosen is None:
        return {}
    names = "coverage accuracy accuracy_outside method optimal best_possible n_samples certificate"
    names += " knowable level least_confidence false_alarm"
    found = {name: getattr(chosen, name) for name in names.split()}
    rules = rules_of(chosen).items()
    found["rules"] = {layer: [type(rule).__name__, vars(rule)] for layer, rule in rules}
    found["left_out"] = sorted(chosen.left_out)
    if (levels := chosen.levels) is not None:
        found["levels"] = read_levels(levels) | {"quorum": levels.quorum}
    found["watch"] = None if chosen.watch is None else vars(chosen.watch)
    return found


def read_report(assessment: Any, y: Any, selection: Any) -> Answers:
    """What a report's page holds: its facts, and its arrays."""
    import iknow

    page = first_of(iknow, "make_html", "make_report")(assessment, y, selection=selection)
    inside = partial(re.compile(r'<script [^>]*id="(facts|arrays)">(.*?)</script>', re.S).findall)
    parts = dict(inside(page))
    facts, data = json.loads(parts["facts"]), gzip.decompress(base64.b64decode(parts["arrays"]))
    n = len(assessment)  # which the page's script never read, but the first pages held
    facts = {"nSamples": n, "sampled": facts["n"] < n} | facts
    layers = {str(place): each for place, each in enumerate(facts.pop("layers"))}
    arrays: Answers = {}
    for name, each in facts.pop("arrays").items():
        kind = each["type"].removesuffix("Array").removeprefix("Big").lower()
        arrays[name] = np.frombuffer(data, kind, each["length"], each["offset"])
    return {"facts": facts | {"layers": layers}, "arrays": arrays}


def read_short(found: Any) -> Answers:
    """What is known without the evidence."""
    names = ["belief_codes", "assertion", "reason", "justification", "supports", "own_exemplars"]
    names += ["level", "layer_levels", "weakest"] if found.levels is not None else []
    return {name: getattr(found, name) for name in names}


def read_whole(found: Any) -> Answers:
    """What is known with it."""
    evidence = {layer: read_evidence(each) for layer, each in found.evidence.items()}
    answers = {"evidence": evidence, "margin": found.margin, "layer_margins": found.layer_margins}
    answers["stability"] = {
        n: getattr(found.stability, n) for n in ("at_least", "exact", "changes")
    }
    for i in np.linspace(0, len(found) - 1, min(4, len(found))).astype(int).tolist():
        explained = found.explain(i)
        answers[f"explained {i}"] = [
            [
                [
                    (each.row, each.distance)
                    for each in (*layer.samples_for, *layer.samples_against)
                ],
                [layer.reach, layer.reach_against, layer.support, layer.margin],
                None if layer.slack is None else (*astuple(layer.slack), layer.slack.smallest),
            ]
            for layer in explained.layers
        ]
    return answers


def ask(classifier: Any, X: Any, y: Any = None, report: bool = True, repeat: int = 1) -> Answers:
    """All that a classifier answers about some samples."""
    lazy = classifier.assess(X)
    answers = {"scores": lazy.scores, "lazy": read_short(lazy), "then": read_whole(lazy)}
    answers["robust_radius"] = lazy.robust_radius
    for _ in range(repeat):  # a clock chooses the way
        answers["again"] = read_short(classifier.assess(X))
    answers |= {f"alone {i}": read_short(classifier.assess(X[i : i + 1])) for i in range(5)}
    full = classifier.assess(X, k=7)
    answers["full"] = read_short(full) | read_whole(full)
    answers["eager"] = read_short(classifier.assess(X, evidence=True))
    answers["selection"] = read_selection(classifier)
    if report:
        answers["report"] = read_report(full, y, getattr(classifier, "selection_", None))
    renamed: Answers = as_before(answers)
    return renamed


# ---- data and models


def draw(kind: str, n: int, d: int, n_classes: int = 3) -> tuple[Any, Any]:
    """Points of shape (n, d), float32, and their labels."""
    rng = np.random.default_rng([n, d, n_classes])
    y = rng.integers(n_classes, size=n)
    if kind == "mnist":
        if not (folder := os.environ.get("IKNOW_DATA")):
            raise ImportError("IKNOW_DATA must name the folder of the datasets")
        images, labels = (
            gzip.decompress((Path(folder) / f"mnist/train-{each}-ubyte.gz").read_bytes())
            for each in ("images-idx3", "labels-idx1")
        )
        pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 784)[:n]
        return pixels.astype(np.float32), np.frombuffer(labels, np.uint8, offset=8)[:n].astype(int)
    if kind == "uniform":
        X = rng.random((n, d))
        y = (X[:, : min(3, d)].sum(axis=1) * n_classes / min(3, d)).astype(int) % n_classes
    elif kind == "lattice":  # ties and duplicates
        X = rng.integers(0, 4, size=(n, d)) + 2.0 * (np.arange(d) < 2) * y[:, None]
    else:
        X = 3.0 * rng.standard_normal((n_classes, d))[y] + rng.standard_normal((n, d))
    wrong = rng.random(n) < 0.05
    return X.astype(np.float32), np.where(wrong, rng.integers(n_classes, size=n), y)


class Centers:
    """A plain function: scores by the distance to the classes' means, without matrix products."""

    def __init__(self, X: Any, y: Any) -> None:
        self.centers = np.stack([X[y == c].mean(axis=0, dtype=np.float64) for c in np.unique(y)])

    def __call__(self, X: Any) -> Any:
        return np.stack([-((np.asarray(X) - c) ** 2).sum(axis=1) for c in self.centers], axis=1)


def train(kind: str, X: Any, y: Any) -> Any:
    """A trained model, by one thread, so that it is the same every time."""
    import threadpoolctl

    with threadpoolctl.threadpool_limits(1):
        if kind == "torch":
            return train_torch(X, y)
        return estimator(kind).fit(X, y) if kind in ESTIMATORS else Centers(X, y)


def train_torch(X: Any, y: Any) -> Any:
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    flat = nn.Sequential(nn.Linear(X.shape[1], 16), nn.ReLU(), nn.Linear(16, 3))
    convolved = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 8), nn.ReLU(),
        nn.Linear(8, 3),
    )  # fmt: skip
    net: Any = convolved if X.ndim == 4 else flat
    steps = torch.optim.Adam(net.parameters(), 0.02)
    for _ in range(60):
        steps.zero_grad()
        loss = nn.functional.cross_entropy(net(torch.from_numpy(X)), torch.from_numpy(y))
        loss.backward()  # type: ignore[no-untyped-call]
        steps.step()
    return net.eval()


def estimator(kind: str) -> Any:
    """An untrained estimator, perhaps behind the steps of a pipeline."""
    from sklearn.pipeline import make_pipeline

    *paths, options = ESTIMATORS[kind]
    types = []
    for path in paths:
        room, name = path.rsplit(".", 1)
        room = room if room in ESTIMATORS else f"sklearn.{room}"
        types.append(getattr(importlib.import_module(room), name))
    last = types[-1](**options)
    return make_pipeline(*(each() for each in types[:-1]), last) if types[1:] else last


SCALER, LOGISTIC = "preprocessing.StandardScaler", "linear_model.LogisticRegression"
TFIDF, NETWORK = "feature_extraction.text.TfidfVectorizer", "neural_network.MLPClassifier"
GRADIENT, SEED = "ensemble.HistGradientBoostingClassifier", {"random_state": 0}
ESTIMATORS: dict[str, tuple[Any, ...]] = {
    "logistic": (SCALER, LOGISTIC, {"max_iter": 300}),
    "imputed": ("impute.SimpleImputer", SCALER, LOGISTIC, {"max_iter": 300}),
    "text": (TFIDF, LOGISTIC, {"max_iter": 300}),
    "mlp": (NETWORK, SEED | {"hidden_layer_sizes": (16,), "max_iter": 60}),
    "forest": ("ensemble.RandomForestClassifier", SEED | {"n_estimators": 15}),
    "gradient": (GRADIENT, SEED | {"max_iter": 12}),
    "xgboost": ("xgboost.XGBClassifier", {"n_estimators": 8, "n_jobs": 1}),
    "lightgbm": ("lightgbm.LGBMClassifier", {"n_estimators": 8, "n_jobs": 1, "verbose": -1}),
    "catboost": ("catboost.CatBoostClassifier", {"n_estimators": 8, "thread_count": 1, "verbose": 0,
                                                 "allow_writing_files": False}),
}  # fmt: skip

# ---- classifiers


def radius_of(X: Any, queries: Any, share: float = 0.6) -> float:
    """A radius within which about this share of queries has a sample."""
    some = X[:2000].reshape(min(len(X), 2000), -1).astype(np.float64)
    points = queries[:60].reshape(min(len(queries), 60), -1)
    near = [np.sqrt(((some - point) ** 2).sum(axis=1).min()) for point in points]
    return float(np.float32(np.quantile(near, share)))


def fixed(name: str, radius: float, **more: Any) -> Any:
    """A rule with a radius, where it has one."""
    given: Answers = {} if name == "Nearest" else {"radius": radius}
    given |= {"k": 4} if "Nearest" in name else {}
    given |= {"ratio": 1.3} if name == "RelativeBall" else {}
    return make_rule(name, **given | more)


def tell(
    model: str = "centers",
    data: tuple[Any, ...] = ("clusters", 640, 4),
    rule: str | None = None,
    tune: Answers | None = None,
    rule_options: Answers | None = None,
    kind: str | None = None,
    finish: Callable[..., Answers] | None = None,
    fit: str | None = None,
    repeat: int = 1,
    **options: Any,
) -> Answers:
    """The answers of one classifier, with a fixed rule, or tuned.

    kind: of rule, to tune. fit: "stream", or "disk". options: the classifier's; a function is asked
    for the option when there is a folder for files.
    """
    X, y = make_data(*data)
    n = len(y) * 5 // 8
    parts = slice(n), slice(n, n + (len(y) - n) // 2), slice(n + (len(y) - n) // 2, None)
    Xs, ys = [X[part] for part in parts], [y[part] for part in parts]
    queries, truth = Xs[2][:400], ys[2][:400]
    if isinstance(queries, np.ndarray) and queries.dtype.kind == "f":
        # A stored row, one far away, and one that is no number.
        queries = np.concatenate([Xs[0][:3], queries, 1e4 + queries[:2], np.nan * queries[:1]])
        truth = np.concatenate([ys[0][:3], truth, truth[:2], truth[:1]])
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        options = {key: each(folder) if callable(each) else each for key, each in options.items()}
        if kind is not None:
            options["rule"] = kind
        if rule is not None:
            radius = radius_of(Xs[0], Xs[1]) if "radius" not in options else options.pop("radius")
            options["neighborhoods"] = fixed(rule, radius, **(rule_options or {}))
        trained = estimator(model[2:]) if model.startswith("a ") else train(model, Xs[0], ys[0])
        if options.pop("onnx", False):
            trained = to_onnx(trained, Xs[0], folder)
        from iknow import EpistemicClassifier

        if "confidence" in options and "confidence" not in vars(EpistemicClassifier(None)):
            tune = {**(tune or {}), "doubt": options.pop("confidence")}
        classifier = make_classifier(trained, **options)
        if fit is None:
            classifier.fit(Xs[0], ys[0])
        else:
            stored = f"{folder}/rows" if fit == "disk" else None
            classifier.fit(batches(Xs[0], ys[0]), folder=stored)
        if tune is not None:
            classifier.tune(Xs[1], ys[1], **tune)
        if finish is not None:
            return finish(classifier, trained, Xs, ys, queries, folder)
        return ask(classifier, queries, truth, repeat=repeat)


def make_data(kind: str, n: int, d: int, n_classes: int = 3) -> tuple[Any, Any]:
    if kind == "words":
        rng = np.random.default_rng(0)
        y = rng.integers(3, size=n)
        words = rng.integers(0, 40, size=(n, d)) + 25 * y[:, None]
        return [" ".join(f"word{w}" for w in row) for row in words.tolist()], y
    X, y = draw("clusters" if kind in ("gaps", "images") else kind, n, d, n_classes)
    if kind == "gaps":
        X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    return (X.reshape(n, 1, 8, 8), y) if kind == "images" else (X, y)


def batches(X: Any, y: Any = None, size: int = 97) -> Iterator[Any]:
    for start in range(0, len(X), size):
        part = X[start : start + size]
        yield part if y is None else (part, y[start : start + size])


def changed(ec: Any, model: Any, Xs: Any, ys: Any, queries: Any, folder: Any) -> Answers:
    """Rows come, go and get other labels, then a new class; folded, saved and loaded."""
    answers, n = {}, len(ys[0])
    steps: list[tuple[str, tuple[Any, ...]]] = [
        ("add", (Xs[1][:60], ys[1][:60])),
        ("remove", (np.r_[1:40:2, n : n + 5],)),
        ("relabel", (np.arange(50, 70), (ys[0][50:70] + 1) % 3)),
        ("add", (Xs[1][60:75], np.full(15, 7))),
        ("remove", (np.setdiff1d(np.flatnonzero(ys[0] == 2), np.r_[1:40:2, 50:70]),)),
        ("compact", ()),
    ]
    for place, (what, arguments) in enumerate(steps):
        change(ec, what, *arguments)
        answers[f"{place} {what}"] = ask(ec, queries, report=False)
        if place == 3:
            answers["loaded"] = loaded(ec, model, Xs, ys, queries, folder, report=False)
    return answers


def loaded(
    ec: Any, model: Any, Xs: Any, ys: Any, queries: Any, folder: Any, report: bool = True
) -> Answers:
    ec.save(f"{folder}/saved.iknow")
    return ask(type(ec).load(f"{folder}/saved.iknow", model), queries, report=report)


def streamed(ec: Any, model: Any, Xs: Any, ys: Any, queries: Any, folder: Any) -> Answers:
    found = ec.assess(batches(queries, size=33))
    return {"stream": read_short(found) | read_whole(found), "then": ask(ec, queries)}


def to_onnx(model: Any, X: Any, folder: str) -> str:
    from skl2onnx import to_onnx as convert

    options = {id(model): {"zipmap": False}}
    Path(f"{folder}/m.onnx").write_bytes(convert(model, X[:1], options=options).SerializeToString())
    return f"{folder}/m.onnx"


def two_layers(X: Any) -> Any:
    return {"whole": X, "part": np.sin(np.asarray(X)[:, :2])}


def ray_index(folder: str) -> Any:
    ray: Any = importlib.import_module("ray")
    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    if not ray.is_initialized():
        options = {"object_store_memory": 100 << 20, "include_dashboard": False}
        ray.init("local", num_cpus=2, logging_level="ERROR", log_to_driver=False, **options)
    return partial(find("RayIndex", "search.ray", "search"), shards=2)


def classifiers() -> dict[str, Callable[[], Answers]]:
    """All classifiers by name."""
    said: dict[str, Callable[[], Answers]] = {}
    lattice, gaps, words = ("lattice", 640, 4), ("gaps", 640, 5), ("words", 500, 12)
    coverage, sure = {"coverage": 0.6}, {"accuracy": 0.7, "confidence": 0.8}
    for rule in RULES:
        said[f"rule {rule}"] = partial(tell, rule=rule)
        said[f"rule {rule} lattice"] = partial(tell, rule=rule, data=lattice, radius=2.0)
        said[f"torch index {rule}"] = partial(tell, rule=rule, device="cpu")
        for quorum in QUORUMS[1:]:
            given = {"quorum": quorum, **({"k": 9} if "Nearest" in rule else {})}
            each = partial(tell, rule=rule, rule_options=given, data=lattice, radius=2.0)
            said[f"quorum {quorum[0]},{quorum[1]} {rule}"] = each
        if rule not in ("Nearest", "RelativeBall"):
            said[f"tuned {rule}"] = partial(tell, "mlp", tune={}, kind=rule)
            said[f"certified {rule}"] = partial(tell, "mlp", tune=sure, kind=rule)
    goals: dict[str, Answers] = {
        "default": {}, "accuracy": sure, "coverage": coverage, "false alarm": {"false_alarm": 0.2},
        "each class": sure | {"each_class": True},
    }  # fmt: skip
    for name, goal in goals.items():
        said[f"tuned RelativeBall {name}"] = partial(tell, "logistic", tune=goal)
    said["tuned Nearest"] = partial(tell, "mlp", tune=coverage, kind="Nearest")
    said["tuned confidence"] = partial(tell, "logistic", tune=sure, confidence=True)
    said["tuned by fit"] = partial(tell, "a logistic")
    for quorum in QUORUMS:
        name = f"tuned quorum {quorum[0]},{quorum[1]}"
        said[name] = partial(tell, tune=coverage, quorum=quorum, data=lattice)
    for name in ("euclidean", "cosine", "hamming", "scaled", "whitened"):
        said[f"metric {name}"] = partial(tell, tune=coverage, metric=name, data=lattice)
    for p in (1.0, 3.0, np.inf):
        made = partial(lambda p, _: metric_named("Minkowski")(p), p)
        said[f"metric l{p:g}"] = partial(tell, tune=coverage, metric=made)
    weights = np.random.default_rng(3).standard_normal((6, 4))
    weighted = partial(lambda w, _: metric_named("weighted_metric")([w]), weights)
    said["metric weighted"] = partial(tell, tune=coverage, metric=weighted)
    for model in ("logistic", "mlp", "forest", "gradient", "xgboost", "lightgbm", "catboost"):
        said[f"model {model}"] = partial(tell, model, tune=coverage)
    for model in ("gradient", "imputed", "xgboost", "lightgbm", "catboost"):
        said[f"gaps {model}"] = partial(tell, model, gaps, tune=coverage)
    said["model text"] = partial(tell, "text", words, tune=coverage)
    said["model torch"] = partial(tell, "torch", tune=coverage)
    said["model torch paper"] = partial(tell, "torch", tune={}, kind="Ball")
    said["model convolutions"] = partial(tell, "torch", ("images", 640, 64), tune=coverage)
    said["model onnx"] = partial(tell, "mlp", tune=coverage, onnx=True)
    said["model function"] = partial(tell, tune=coverage, embed=lambda _: two_layers)
    said["index own"] = partial(tell, tune=coverage, index=lambda _: OwnIndex)
    said["index torch"] = partial(tell, tune=coverage, device="cpu", data=("lattice", 6000, 6))
    for data in (("lattice", 640, 4), ("clusters", 9000, 16)):
        said[f"index disk {data[1]}"] = partial(tell, data=data, tune=coverage, fit="disk")
        each = partial(tell, data=data, tune=coverage, finish=changed)
        said[f"changed disk {data[1]}"] = partial(each, fit="disk")
        said[f"changed {data[1]}"] = each
        said[f"index ray {data[1]}"] = partial(tell, data=data, tune=coverage, index=ray_index)
    said["changed Ball"] = partial(tell, data=lattice, rule="Ball", radius=2.0, finish=changed)
    said["changed forest"] = partial(tell, "forest", tune=coverage, finish=changed)
    said["changed torch"] = partial(tell, device="cpu", tune=coverage, finish=changed)
    for model in ("logistic", "forest", "torch"):
        said[f"loaded {model}"] = partial(tell, model, tune=coverage, finish=loaded)
    said["stream"] = partial(tell, tune=coverage, finish=streamed, fit="stream")
    large = ("clusters", 20_000, 2), ("uniform", 12_000, 10), ("clusters", 9_000, 32)
    for data in (*large, ("lattice", 8_000, 64), ("mnist", 9_000, 784)):
        for rule in RULES:
            name = f"large {data[0]} {data[2]} {rule}"
            said[name] = partial(tell, data=data, rule=rule, repeat=4)
        said[f"large {data[0]} {data[2]} tuned"] = partial(tell, data=data, tune=coverage, repeat=4)
    for rule, quorum in zip(RULES, (*QUORUMS[1:], QUORUMS[2], QUORUMS[1]), strict=True):
        given = {"quorum": quorum, **({"k": 9} if "Nearest" in rule else {})}
        each = partial(tell, rule=rule, rule_options=given, data=lattice, radius=2.0)
        said[f"changed quorum {rule}"] = partial(each, finish=changed)
        said[f"disk quorum {rule}"] = partial(each, fit="disk")
    return said


# ---- random problems


def core_problems(name: str, chunk: int) -> Answers:
    """A thousand random queries, with ties, infinities and empty classes, by the core alone."""
    rng = np.random.default_rng([7, RULES.index(name), chunk])
    found: dict[str, list[Any]] = {}
    for _ in range(CHUNK // QUERIES):
        for key, values in core_problem(name, rng).items():
            found.setdefault(key, []).extend(np.ravel(each) for each in values)
    return {key: np.concatenate(parts) for key, parts in found.items()}


def core_problem(name: str, rng: np.random.Generator) -> dict[str, list[Any]]:
    layers = [str(each) for each in range(rng.integers(1, 3))]
    n_classes, held = int(rng.integers(1, 6)), int(rng.integers(1, 6))
    belief = rng.integers(-1, n_classes, size=QUERIES)
    evidence, rules, movements = {}, {}, {}
    quorums = [each for each in QUORUMS if sum(each) - 1 <= held]
    for layer in layers:
        shape = QUERIES, n_classes, held
        distances = rng.integers(0, 6, size=shape) / 2 if rng.random() < 0.6 else rng.random(shape)
        distances[rng.random(shape) < 0.1] = np.inf
        distances[:, rng.random(n_classes) < 0.1] = np.inf
        nearer = rng.random(shape[:2]) < 0.3 * (np.arange(n_classes) == belief[:, None])
        distances = np.sort(np.where(nearer[:, :, None], 0.4 * distances, distances), axis=2)
        rows = np.sort(
            rng.permuted(np.tile(np.arange(99), (QUERIES, n_classes, 1)), axis=2)[:, :, :held]
        )
        rows[np.isinf(distances)] = -1
        k = int(rng.integers(1, n_classes * held + 1))
        neighbors = np.sort(distances.reshape(QUERIES, -1), axis=1)[:, :k]
        evidence[layer] = make_evidence(distances, neighbors, rows)
        finite = distances[np.isfinite(distances)]
        radius = rng.choice(finite) if len(finite) and rng.random() < 0.7 else 2 * rng.random()
        given: Answers = {"quorum": quorums[rng.integers(len(quorums))]}
        given |= {"k": int(rng.integers(1, k + 1))} if "Nearest" in name else {}
        given |= {"ratio": rng.choice([0.5, 1.0, 1.5, 2.0])} if name == "RelativeBall" else {}
        rules[layer] = fixed(name, float(radius), **given)
        rounding, crossing = 0.1 * rng.random(QUERIES), rng.random(QUERIES) - 0.5
        movements[layer] = core("Movement")(float(rng.integers(0, 3)), rounding, crossing)
    absent, pairs = belief < 0, [(evidence[layer], rules[layer]) for layer in layers]
    supports = [core("find_support")(*pair, belief) for pair in pairs]
    justified = core("justify")(supports)
    knowable = None if rng.random() < 0.7 else np.flatnonzero(rng.random(n_classes) < 0.7).tolist()
    assertion = core("make_assertions")(belief, justified, knowable)
    decisions = [read_decision(core("decide")(*pair, belief)) for pair in pairs]
    margins = [core("find_margins")(*pair, belief) for pair in pairs]
    known = assertion == core("Assertion").IK
    stability = core("find_stability")(*zip(*pairs, strict=True), belief, known)
    radii = core("find_robust_radii")(evidence, rules, belief, movements)
    slack = []
    for i in np.flatnonzero(~absent)[:3].tolist():
        for place, (about, rule) in enumerate(pairs):
            others = [each[i : i + 1] for at, each in enumerate(supports) if at != place]
            one = core("find_slack")(about[i : i + 1], rule, others, int(belief[i]), knowable)
            turns = [] if one is None else [one.shrink, one.grow]
            slack += [np.nan] if one is None else [one.value, one.smallest]
            slack += [float(x) for turn in turns if turn is not None for x in astuple(turn)]
    return {
        "support": supports, "justification": [justified], "assertion": [np.asarray(assertion)],
        "reason": [np.asarray(core("find_reasons")(belief, supports, absent, knowable))],
        **{f"decided {key}": [each[key] for each in decisions] for key in decisions[0]},
        "margin": [np.where(absent, -np.inf, each) for each in margins],
        "stability": [stability.at_least, stability.exact, stability.changes],
        "radius": [np.where(absent, 0.0, radii)], "slack": [np.array(slack)],
    }  # fmt: skip


def index_problems(first: int) -> Answers:
    """Random rows and queries, gathered and decided."""
    found: Answers = {}
    kinds = "l2", "torch", "l2", "DiskIndex", "l1", "l2", "hamming", "l2", "l3", "linf", "l40"
    for number in range(first, first + TOGETHER):
        rng, kind = np.random.default_rng([8, number]), kinds[number % len(kinds)]
        n, d = int(rng.choice([0, 1, 9, 80, 700, 3000])), int(rng.choice([1, 2, 5, 17, 40, 300]))
        n_classes, style = int(rng.integers(1, 7)), rng.integers(5)
        n, n_classes = (max(n, 700), 40) if number >= LARGE else (n, n_classes)
        X = rng.standard_normal((n + (200 if number >= LARGE else 40), d))
        if style == 0 or kind == "hamming":
            X = rng.integers(0, 3, size=X.shape).astype(float)
        elif style == 1:
            X = 5 * X[rng.integers(max(1, n // 20), size=len(X))] + 0.3 * X
        elif style == 2:  # mostly zeros
            X[rng.random(X.shape) < 0.97] = 0
        elif style == 3:  # far from the origin, with duplicates
            X = (X + 1e3)[rng.integers(len(X), size=len(X))]
        points, queries = X[:n].astype(np.float32), X[n:].astype(np.float32)
        if n:
            queries[:5] = points[rng.integers(n, size=5)]
        if kind != "hamming":
            queries[5:8] *= 1e5
        labels = rng.choice(rng.integers(n_classes, size=n_classes), n)  # some classes are empty
        numbers = rng.choice(10 * n + 1, n, replace=False) if rng.random() < 0.5 else None
        index = make_index(kind, points, labels, n_classes, rows=numbers)
        k, held = int(rng.integers(0, min(n, 8) + 1)), int(rng.integers(1, 5))
        belief = rng.integers(-1, n_classes, size=len(queries))
        radius = radius_of(points, queries, rng.random()) if n else 1.0
        name, quorum = RULES[rng.integers(5)], QUORUMS[rng.integers(4)]
        more = {"k": max(1, k)} if "Nearest" in name else {}
        answers: Answers = {"gathered": read_evidence(index.gather(queries, k, held))}
        if n or not more:
            asked = fixed(name, radius, quorum=quorum, **more)
            answers["decided"] = read_decision(index.decide(queries, asked, belief))
            alone = [
                read_decision(index.decide(queries[i : i + 1], asked, belief[i : i + 1]))
                for i in range(4)
            ]
            answers["alone"] = dict(enumerate(alone))
        found[f"{number} {kind}"] = answers
    return found


# ---- running and comparing


def cases(quick: bool) -> dict[str, Callable[[], Answers]]:
    """All problems by name; a quick check asks some of each kind."""
    chunks = PROBLEMS // CHUNK
    said = {
        f"core {rule} {i}": partial(core_problems, rule, i) for i in range(chunks) for rule in RULES
    }
    said |= {f"search {at}": partial(index_problems, at) for at in range(0, INDEXES, TOGETHER)}
    few = list(said.items())[:10] + list(said.items())[chunks * 5 : chunks * 5 + 5]
    known = classifiers()
    return dict(few) | dict(list(known.items())[::4]) if quick else said | known


def chosen(arguments: argparse.Namespace) -> dict[str, Callable[[], Answers]]:
    """The problems that the arguments ask for."""
    only = tuple(arguments.only)
    found = {
        name: case
        for name, case in cases(arguments.quick).items()
        if not only or name.startswith(only)
    }
    if arguments.without_numba:  # Ray's processes would load it all the same
        found = {name: case for name, case in found.items() if "ray" not in name}
    return found


def answer(arguments: argparse.Namespace) -> int:
    """Run the problems with the code on the path, and write the answers to a file."""
    if arguments.without_numba:
        sys.modules["numba"] = None  # type: ignore[assignment]
    import iknow

    assert Path(iknow.__file__).is_relative_to(arguments.tree), iknow.__file__
    arrays: Answers = {}
    for name, case in chosen(arguments).items():
        start = time.perf_counter()
        try:
            found = case()
        except ImportError as error:
            found = {"skipped": str(error)}
        except Exception:
            found = {"failed": traceback.format_exc()}
        arrays |= flat(name + ":", found)
        print(f"{time.perf_counter() - start:7.2f} s  {name}", flush=True)
    np.savez_compressed(arguments.out, **arrays)
    return 0


def run(tree: Path, out: Path, arguments: argparse.Namespace) -> None:
    """Run the problems with the code of a tree, in a process of its own."""
    flags = ["--quick"] * arguments.quick + ["--without-numba"] * arguments.without_numba
    command = [sys.executable, __file__, "answer", str(out), str(tree), *flags]
    if arguments.only:
        command += ["--only", *arguments.only]
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        command, env=environment, cwd=out.parent, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise SystemExit(f"the problems stopped after:\n{done.stdout[-300:]}")


def git(*arguments: str) -> str:
    found = subprocess.run(
        ["git", "-C", ROOT, *arguments], check=True, capture_output=True, text=True
    )
    return found.stdout.strip()


def store_of(commit: str) -> Path:
    """Where the answers of a commit are kept, for this processor."""
    processor = platform.processor() or platform.machine()
    if (info := Path("/proc/cpuinfo")).exists():
        named = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        processor = named[0] if named else processor
    key = hashlib.sha256(processor.encode()).hexdigest()[:8]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "iknow-golden"
    cache.mkdir(parents=True, exist_ok=True)
    return cache / f"{git('rev-parse', '--verify', commit + '^{commit}')[:12]}-{key}.npz"


def make(arguments: argparse.Namespace) -> int:
    """Store what a commit answers."""
    store = store_of(arguments.commit)
    with tempfile.TemporaryDirectory(dir=store.parent) as folder:  # to be moved at once
        tree = Path(folder) / "tree"
        git("worktree", "add", "--detach", str(tree), arguments.commit)
        try:
            run(tree, Path(folder) / "new.npz", arguments)
            (Path(folder) / "new.npz").replace(store)
        finally:
            git("worktree", "remove", "--force", str(tree))
    with np.load(store) as arrays:
        bad = [key for key in arrays.files if key.endswith((":/failed", ":/skipped"))]
        for key in bad:
            print(f"{key}: {json.loads(str(arrays[key]))}")
        print(f"{len(arrays.files):,} arrays in {store}")
    return int(any(key.endswith("failed") for key in bad))


def kind_of(key: str) -> str:
    """Radii are a kind of their own: a proof may get better."""
    proof = "robust_radius", "radius", "lipschitz", "rounding", "crossing", "stretch"
    return "radii" if re.split(r"[/.]", key)[-1] in proof else "bits"


def difference(old: Any, new: Any) -> str:
    """How two arrays differ, in words; nothing if every bit is the same."""
    if old.dtype != new.dtype or old.shape != new.shape:
        if old.dtype.kind == "U":
            return f"{str(old)[:200]} -> {str(new)[:200]}"
        return f"{old.dtype} {old.shape} -> {new.dtype} {new.shape}"
    if old.tobytes() == new.tobytes():
        return ""
    bits = [np.frombuffer(each.tobytes(), f"V{each.itemsize}") for each in (old, new)]
    places = np.flatnonzero([a.tobytes() != b.tobytes() for a, b in zip(*bits, strict=True)])
    at = int(places[0])
    first = f"{old.flat[at]!r} -> {new.flat[at]!r}"
    return f"{len(places)} of {old.size} entries, the first at {at}: {first[:300]}"


def compare(old: Any, new: Any, names: Iterable[str]) -> int:
    """Print how the answers differ, case by case."""
    by_case: list[dict[str, set[str]]] = [{}, {}]
    for found, source in zip(by_case, (old, new), strict=True):
        for key in source.files:
            found.setdefault(key.split(":/")[0], set()).add(key)
    counts, wrong, problems = {"bits": 0, "radii": 0}, 0, {"core": 0, "search": 0, "": 0}
    sizes = {"core": CHUNK, "search": TOGETHER}
    for name in names:
        keys = [each.get(name, set()) for each in by_case]
        said = dict.fromkeys(keys[0] - keys[1], "only before")
        for key in keys[1] - keys[0]:
            failed = key.endswith((":/failed", ":/skipped"))
            said[key] = json.loads(str(new[key])) if failed else "only now"
        if not keys[0]:
            said = {f"{name}:/": "there is no golden answer: make them again"}
        for key in keys[0] & keys[1]:
            if words := difference(old[key], new[key]):
                said[key] = words
        for key in said:
            counts[kind_of(key)] += 1
        wrong += bool(said)
        kind = name.split()[0] if name.split()[0] in sizes else ""
        problems[kind] += sizes.get(kind, 1)
        skipped = f"{name}:/skipped" in keys[0] & keys[1]
        print(f"{'differs' if said else 'skipped' if skipped else 'ok':8} {name}")
        for key, words in sorted(said.items())[:12]:
            print(f"           {key.split(':/')[1]}: {words}")
    print(
        f"{problems['']} classifiers, {problems['core']:,} problems, {problems['search']} indexes: "
        + ("0 bits differ" if not wrong else f"{wrong} cases differ, in {counts['bits']} arrays ")
        + (f"and {counts['radii']} of robust radii" if wrong else "")
    )
    return int(wrong > 0)


def check(arguments: argparse.Namespace) -> int:
    """Compare what this tree answers with what a commit answered."""
    store = store_of(arguments.commit)
    if not store.exists():
        print(f"there is no {store}: run `golden.py make {arguments.commit}` first")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "new.npz"
        run(ROOT, out, arguments)
        with np.load(store) as old, np.load(out) as new:
            return compare(old, new, chosen(arguments))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(required=True)
    for work, places in ((make, ("commit",)), (check, ("commit",)), (answer, ("out", "tree"))):
        command = commands.add_parser(work.__name__)
        command.set_defaults(work=work)
        for place in places:
            command.add_argument(place)
        command.set_defaults(only=[], quick=False, without_numba=False)
        if work is not make:
            command.add_argument("--only", nargs="+", metavar="NAME")
            command.add_argument("--quick", action="store_true")
            command.add_argument("--without-numba", action="store_true")
    arguments = parser.parse_args()
    status: int = arguments.work(arguments)
    return status


if __name__ == "__main__":
    sys.exit(main())
