"""Memory: the training samples that evidence comes from, and what was changed in them.

Samples are added, removed and relabeled after `fit`. A changed classifier asserts what one asserts
that was built from the samples that are there now, to the last bit. Metrics stay as they were
fitted, so it is a rebuild by the same metrics.

A change (`iknow.storage.changes`) makes new indexes that share all but the few rows that changed
with those before. Everything is checked first, and the next plan takes the place of this one by one
assignment, so assessments that run meanwhile see all of a change or nothing of it. Changes take
turns. What was promised was about the evidence before: it is marked as stale, and assertions go on.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from iknow.classifier.observe import check_valid, name_labels, observe, read
from iknow.classifier.plan import Plan, is_fixed
from iknow.core.arrays import Ints
from iknow.core.text import as_flag, names
from iknow.errors import IknowError, InputError
from iknow.locking import Lock
from iknow.models.model import join_whole
from iknow.models.probe import Probe
from iknow.models.samples import (
    as_row_numbers,
    as_vector,
    check_count,
    encode,
    encode_all,
    extend_classes,
)
from iknow.storage.archive import open_file
from iknow.storage.bundle import read_changes
from iknow.storage.changes import (
    ADD,
    RELABEL,
    REMOVE,
    Change,
    Logged,
    check_change,
    check_fits,
    check_said,
    check_there,
    now,
    stale,
)
from iknow.storage.saving import commit_changes

if TYPE_CHECKING:
    from iknow.classifier.estimator import EpistemicClassifier

NONE: Ints = np.empty(0, dtype=np.int64)


class Memory:
    """The training samples of a fitted `classifier`: `EpistemicClassifier.memory`.

    Examples:
        >>> ec = EpistemicClassifier(FrozenEstimator(trained)).fit(X_train, y_train)
        >>> ec.tune(X_val, y_val).save("iris.iknow")
        >>> ec = EpistemicClassifier.load("iris.iknow", FrozenEstimator(trained))
        >>> ec.memory.add(X_val[:2], y_val[:2], who="Ada", why="new leaves")
        array([50, 51])
        >>> ec.memory.remove([3, 7], why="blurred").relabel([5], [0], who="Ada", why="a slip")
        Memory of 50 samples in layer 'input', 3 changes since fit
        >>> _ = ec.memory.commit()
        >>> EpistemicClassifier.load("iris.iknow").memory.log[-1].why
        'a slip'
        >>> len(ec.memory.compact())
        50
    """

    def __init__(self, classifier: EpistemicClassifier) -> None:
        self._classifier = classifier

    def __len__(self) -> int:
        return self._classifier.plan_.index.n_rows

    def __repr__(self) -> str:
        plan = self._classifier.plan_
        changes = f", {len(plan.log)} changes since fit" if plan.log else ""
        layers = "layers" if len(plan.layers) > 1 else "layer"
        return f"Memory of {len(self):,} samples in {layers} {names(plan.layers)}{changes}"

    @property
    def log(self) -> tuple[Logged, ...]:
        """What happened to the samples since `fit`, the first change first."""
        return self._classifier.plan_.log

    def add(self, X: Any, y: Any = None, rows: Any = None, who: str = "", why: str = "") -> Ints:
        """Add samples to the evidence, and return their numbers, of shape (n,).

        A label that is not in `classes_` is a new class. The model does not score it, so it is
        never believed, but its samples can contradict.

        Args:
            X: n samples, or a loader, as for `fit`.
            y: Their labels, of shape (n,), unless the loader yields them.
            rows: Numbers of shape (n,) that identify the samples, other than those that are there.
                Default: they count on from the highest that there ever was.
            who: Who adds them, for `log`.
            why: Why, likewise.
        """
        return extend(self._classifier, X, y, rows, who, why)

    def remove(self, ids: Any, who: str = "", why: str = "") -> Self:
        """Remove samples by their numbers `ids`, as `Explanation` shows them, of shape (n,).

        A class may lose its last sample: it is then without evidence. After `compact`, nothing of
        them is left in the classifier, and `save` never writes them. `who`, `why`: for `log`.
        """
        numbers = np.sort(as_row_numbers(ids, None, "ids"))
        change = Change(REMOVE, now(), who, why, numbers, NONE, NONE, {})
        return self.step(lambda plan: apply(plan, change))

    def relabel(self, ids: Any, y: Any, who: str = "", why: str = "") -> Self:
        """Give samples other labels, or the same ones, which is logged all the same.

        `ids`: their numbers, of shape (n,). `y`: their labels from now on, of shape (n,). A new one
        is a new class; see `add`. `who`, `why`: for `log`.
        """
        numbers, when = as_row_numbers(ids, None, "ids"), now()
        order = np.argsort(numbers)
        labels = check_count(as_vector(y, "y", column=True), len(numbers))[order]
        rows = numbers[order]

        def relabeled(plan: Plan) -> Plan:
            check_there(rows, plan.index.has)
            codes, new = encode_all(labels, plan.classes)
            points = {layer: index.take(rows)[0] for layer, index in plan.indexes.items()}
            return apply(plan, Change(RELABEL, when, who, why, rows, rows, codes, points, new))

        return self.step(relabeled)

    def compact(self) -> Self:
        """Fold all changes into one index, as if built from the samples that are there.

        Nothing of a removed sample is left, but for its number in `log`. If changes were not
        committed yet, `commit` then writes the bundle anew, compacted too.
        """

        def folded(plan: Plan) -> Plan:
            indexes = {layer: index.folded() for layer, index in plan.indexes.items()}
            # What came and went again is not to be kept for `commit`.
            kept = None if plan.uncommitted else plan.uncommitted
            return replace(plan, indexes=indexes, uncommitted=kept)

        return self.step(folded)

    def commit(self, path: str | os.PathLike[str] | None = None) -> Self:
        """Write what changed since `load`, or since the last `commit`, to the bundle.

        `path`: the bundle, by default the file that the classifier was loaded from.

        When it returns, the changes survive a power failure; if it fails, the bundle is as it was,
        and the changes are still here. Classifiers loaded before go on as they are. Removed samples
        stay in the file until `iknow.storage.bundle.compact_bundle`, or `save`.

        Raises:
            ConflictError: Somebody else has changed the bundle since.
            OSError: The disk is full, or the file may not be written.
        """
        return self.step(lambda plan: commit_changes(plan, path))

    def step(self, make: Callable[[Plan], Plan]) -> Self:
        """Take one step, to what `make` gives for the plan as it is now; an error changes nothing.

        Changes, and choices that must not miss one, take turns.
        """
        lock: Lock = self._classifier.__dict__.setdefault("_changing", Lock())
        with lock.held():
            self._classifier.plan_ = make(self._classifier.plan_)
        return self


def follow(classifier: EpistemicClassifier, sha256: str | None = None) -> Any:
    """A classifier as its bundle is now, or was at a sha256; None if it must be loaded.

    classifier: one that was loaded, without changes of its own; it stays as it is. Both share all
    but the rows that changed, so this takes little time and memory.
    """
    plan = classifier.plan_
    if not plan.bundled or plan.uncommitted != ():
        return None
    follower = copy.copy(classifier)
    try:
        opened = open_file(Path(plan.bundled["path"]), copied_up_to=0)
        wanted = opened if sha256 is None else opened.as_of(sha256)
        n_before = len(wanted.as_of(plan.bundled["sha256"]).heads) - 1
        later = list(read_changes(wanted))[n_before:]
        follower.plan_ = as_bundled(plan, later, wanted.sha256)
    except IknowError:  # loading it says what is wrong
        return None
    return follower


def as_bundled(plan: Plan, changes: Iterable[Change], sha256: str) -> Plan:
    """The plan after changes that its bundle has, when that was at a sha256."""
    for change in changes:
        plan = apply(plan, change)
    chosen = plan.selection or plan.given
    bundled = {**plan.bundled, "sha256": sha256, "selection": chosen}
    return replace(plan, bundled=bundled, uncommitted=())


def apply(plan: Plan, change: Change) -> Plan:
    """The plan after a change. This checks everything and changes nothing."""
    check_change(change)
    classes = extend_classes(plan.classes, change.classes)
    widths = {layer: index.n_features for layer, index in plan.indexes.items()}
    n_classes, has = len(classes), plan.index.has
    check_fits(change, n_classes, plan.index.n_rows, has, widths, plan.rules or {})
    indexes = {}
    for layer, index in plan.indexes.items():
        none = np.empty((0, widths[layer]), dtype=np.float32)
        came = change.points.get(layer, none), change.labels, change.rows
        indexes[layer] = index.changed(change.removed, *came, n_classes)
    leaving, probe = np.setdiff1d(change.removed, change.rows), plan.probe
    return replace(
        plan,
        indexes=indexes,
        classes=classes,
        log=(*plan.log, change.logged()),
        uncommitted=None if plan.uncommitted is None else (*plan.uncommitted, change),
        probe=probe.without(leaving) if isinstance(probe, Probe) and len(leaving) else probe,
        selection=stale(plan.selection or plan.given, [change.logged()]),
    )


def extend(
    classifier: EpistemicClassifier,
    X: Any,
    y: Any,
    rows: Any,
    who: str = "",
    why: str = "",
    *,
    parts: bool = False,
) -> Ints:
    """Add samples as `Memory.add` does; parts: they are a part of the training samples."""
    said = now(), check_said(who, "who"), check_said(why, "why")
    plan, enabled = classifier.plan_, as_flag(classifier.progress, "progress")
    samples = read(classifier, plan, X, y)
    batches = observe(plan, samples, plan.layers, progress=enabled, scores=False)
    observation = join_whole(batches, samples.n_samples)
    check_valid(observation.invalid, "training", None, plan.layers)
    labels = name_labels(samples.all_labels(), classifier.classes)
    numbers = as_row_numbers(rows, len(labels))
    order = np.argsort(numbers)
    points = {
        layer: plan.indexes[layer].transform(values)[order]
        for layer, values in observation.activations.items()
    }

    def extended(plan: Plan) -> Plan:  # it may have changed meanwhile
        if parts:
            encode(labels, plan.classes, "y")  # classes do not come in parts
        if rows is None:  # beyond all that there ever were
            last = max(plan.index.highest_row, *(int(each.ids[-1]) for each in plan.log), -1)
            if last + len(labels) > np.iinfo(np.int64).max:
                raise InputError(f"no numbers are left after {last}: give rows=...")
            np.add(numbers, last + 1, out=numbers)
        codes, new = encode_all(labels, plan.classes)
        came = Change(ADD, *said, NONE, numbers[order], codes[order], points, new)
        after = apply(plan, came)
        # What was chosen was chosen on less evidence, unless the user gave it.
        keeps = not parts or is_fixed(classifier.rule)
        return after if keeps else replace(after, selection=None, rules=None)

    classifier.memory.step(extended)
    return numbers
