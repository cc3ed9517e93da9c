"""What every model must do: turn a batch of inputs into scores and activations.

Certificates rely on how far a layer can move, as `Model.sensitivity` says, so it counts only for
the `observe` that it was written for: code that changes `observe`, in a subclass or on one object,
must define `sensitivity` again.

Some models refuse a whole batch because of one NaN. Then they get the ordinary samples without the
strange ones, and the strange ones unchanged, one kind at a time. A sample that is still refused has
no belief; one with an answer but without its layers is invalid.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints, Labels
from iknow.core.codes import NO_BELIEF
from iknow.core.robustness import Sensitivity
from iknow.core.rule import replaced_methods, speaks_for
from iknow.core.text import names, shown
from iknow.errors import IknowError, InputError, LayerError, RefusedError
from iknow.metrics.lipschitz import FLOAT32_ROUNDING, ROUND_UP
from iknow.metrics.metric import LEAVES
from iknow.models.inputs import (
    ORDINARY,
    Fields,
    Sizes,
    as_numbers,
    count_samples,
    cut_batches,
    fill_strange,
    find_kinds,
    is_sparse,
    take_rows,
)
from iknow.pages import SHARE, free_memory

ALWAYS_FITS = 1 << 24  # bytes

Role = Literal["input", "table", "middle", "hidden", "output", "leaves"]
"""What a layer is to its model.

- input: what enters the classifier, as numbers; for a pipeline, what its last transformer returns.
- table: numbers, categories and gaps, in the place of an input that is not all numbers.
- middle: a stage of a deep network before the last hidden layer.
- hidden: the last hidden layer, or what stands for it; every layer of this role is used.
- output: the scores, or what the head returns before a softmax.
- leaves: the leaf of each tree.
"""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its name.
        kind: Whether it holds numbers or categories.
        known: The categories seen in training.

    Examples:
        >>> Column("city", "category", known=("Bern", "Rome")).known
        ('Bern', 'Rome')
    """

    name: str
    kind: Literal["number", "category"]
    known: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Layer:
    """A layer of a model, and what it is to the model.

    Attributes:
        name: By which `observe` knows it.
        role: "input", "table", "middle", "hidden", "output" or "leaves".
        pool: How its activations become one vector per sample, if that is not the model's own way.
        columns: Those of a table.

    Examples:
        >>> Layer("fc2", "hidden").role
        'hidden'
    """

    name: str
    role: Role
    pool: str | None = None
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, eq=False)
class Observation:
    """What a model says and computes about n inputs.

    Attributes:
        scores: The model's scores, of shape (n, n_classes); NaN where it gave none.
        belief: The position of the believed class, of shape (n,); `NO_BELIEF`, -1, for none.
        activations: By layer, of shape (n, n_features); 0 for invalid inputs.
        invalid: Mask of shape (n,) of the inputs without a belief or with non-finite activations.
        unseen: The share of categories or words that training never saw, of shape (n,); None if the
            model does not know.
        views: By kind, what the model says about changed copies of the inputs (see
            `iknow.models.views`); nothing but what was asked for, and not of a part or a whole.
    """

    scores: Floats
    belief: Ints
    activations: Mapping[str, Floats32]
    invalid: Bools
    unseen: Floats | None = None
    views: Mapping[str, Sequence[Observation]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def nbytes(self) -> int:
        return self.scores.nbytes + sum(values.nbytes for values in self.activations.values())

    def __getitem__(self, rows: Any) -> Observation:
        layers = {layer: values[rows] for layer, values in self.activations.items()}
        unseen = None if self.unseen is None else self.unseen[rows]
        return Observation(self.scores[rows], self.belief[rows], layers, self.invalid[rows], unseen)


class Model(ABC):
    """A trained classifier whose layers we can read; inherit from it to wrap your own.

    Define `layers` and `observe`; `iknow.testing.ModelContract` tests the result.

    Examples:
        >>> import numpy as np
        >>> from iknow.models import Layer, Model, make_observation
        >>> class Nearer(Model):
        ...     def layers(self, batch):
        ...         return (Layer("input", "input"),)
        ...     def observe(self, batch, layers):
        ...         scores = np.stack([-np.abs(batch[:, 0]), -np.abs(batch[:, 0] - 1)], axis=1)
        ...         return make_observation(scores, {layer: batch for layer in layers})
        ...     def sensitivity(self, layer, inputs):
        ...         return 1.0
        >>> Nearer().observe(np.array([[0.1], [0.8]]), ("input",)).belief
        array([0, 1])
    """

    source: Any = None
    """What `as_model` was given."""
    options: Mapping[str, Any] = MappingProxyType({})
    """How `as_model` was told to read it: `pool`, `scores`, `embed` and `views`, if given."""
    views: Mapping[str, Sequence[Callable[[Any], Any]]] = MappingProxyType({})
    """What makes the views that its confidence may be averaged over, by kind."""
    knows_columns = False
    """Whether it is a scikit-learn classifier, which knows the number and names of its features."""

    @property
    def classes(self) -> Labels | None:
        """Labels of the score columns, of shape (n_classes,), if the model knows them."""
        return None

    @property
    def is_elsewhere(self) -> bool:
        """Whether the model runs on another device than the CPU."""
        return False

    def prepare(self, inputs: Any) -> Any:
        """Turn `inputs` into something to slice into batches; robust radii are distances in it."""
        return as_numbers(inputs, "X")

    @abstractmethod
    def layers(self, batch: Any) -> tuple[Layer, ...]:
        """Describe the layers worth looking at for inputs like `batch`, in computing order.

        If the user names none, the classifier chooses among them by their roles.
        """

    def role(self, layer: str) -> Role:
        """Return what a `layer` that the user names is to the model."""
        names: dict[str, Role] = {"input": "input", "output": "output", LEAVES: "leaves"}
        return names.get(layer, "hidden")

    def feature_names(self, layer: str) -> Sequence[str] | None:
        """Return the names of the features of a `layer`, if they have any."""
        return None

    @property
    def categories(self) -> Mapping[float, str]:
        """The names of categories by their codes in the layer "table", as far as they are known."""
        return {}

    def unknown_words(self, text: str) -> list[str]:
        """Return the words of a `text` that training never had, as far as that is known."""
        return []

    @abstractmethod
    def observe(self, batch: Any, layers: Sequence[str]) -> Observation:
        """Return scores, and the activations of the named `layers`, for one `batch` of inputs.

        The result for a sample must not depend on the others. `make_observation` converts arrays.
        """

    def sensitivity(self, layer: str, inputs: Sizes) -> Sensitivity | float:
        """Return how far the activations of a layer can move when the input does.

        That is the ℓ2 Lipschitz constant from the input to the activations as `observe` returns
        them, or a `Sensitivity`, which adds their rounding. A subclass that changes `observe` must
        change it too.

        Args:
            layer: The name of a layer.
            inputs: The shape of an input, the dtype and lengths of all, copies of a few.

        Raises:
            LayerError: Nothing is known, as here; then robust radii are 0.
        """
        raise LayerError(f"nothing is known about the inside of {type(self).__name__}")


def make_observation(
    scores: Any,
    activations: Mapping[str, Any],
    *,
    invalid: Bools | None = None,
    belief: Ints | None = None,
) -> Observation:
    """Check and convert what a model returned, and mark non-finite samples.

    Args:
        scores: Of shape (n, n_classes), n_classes >= 2.
        activations: By layer, of shape (n, ...); flattened per sample here.
        invalid: Further inputs to mark, of shape (n,).
        belief: Positions of shape (n,), -1 for none. Default: the highest score.

    Examples:
        >>> make_observation([[0.2, 0.8]], {"hidden": [[1.0, 2.0]]}).belief
        array([1])
    """
    table = as_numbers(scores, "scores").astype(np.float64, copy=False)
    if table.ndim != 2 or table.shape[1] < 2:
        raise InputError(
            "a model must return scores of shape (n, n_classes) with a column for each of at least "
            f"two classes; got {table.shape}"
        )
    believed = find_belief(table) if belief is None else as_belief(belief, table)
    bad = (believed == NO_BELIEF) | (False if invalid is None else invalid)
    layers = {}
    for layer, values in activations.items():
        layers[layer] = as_activations(values, layer, len(table))
    return mark_invalid(Observation(table, believed, layers, bad))


def find_belief(scores: Floats) -> Ints:
    """The position of the highest score, the first of equals, of shape (n,).

    `NO_BELIEF` if a score is NaN, several are infinite, or all are minus infinity.
    """
    belief: Ints = scores.argmax(axis=1)
    if np.isfinite(scores).all():
        return belief
    highest = scores[np.arange(len(scores)), belief]
    several = (scores == np.inf).sum(axis=1) > 1
    return np.where(np.isnan(highest) | (highest == -np.inf) | several, NO_BELIEF, belief)


def as_belief(belief: Any, scores: Floats) -> Ints:
    """A given belief, checked against the scores, of shape (n,)."""
    codes = as_numbers(belief, "belief")
    n, n_classes = scores.shape
    fits = codes.shape == (n,) and codes.dtype.kind in "iu"
    if not fits or (n and not NO_BELIEF <= int(codes.min()) <= int(codes.max()) < n_classes):
        raise InputError(
            f"belief must be the position of a class, 0 to {n_classes - 1}, or {NO_BELIEF} for "
            f"none, for each of {n} inputs; got {shown(codes)} of shape {codes.shape}"
        )
    return np.where(np.isnan(scores).any(axis=1), NO_BELIEF, codes.astype(np.int64))


def as_activations(values: Any, layer: str, n_samples: int) -> Floats32:
    """The activations of a layer as given by a model, of shape (n_samples, n_features)."""
    array = as_numbers(values, f"layer {layer!r}", LayerError)
    if len(array) != n_samples:
        raise LayerError(
            f"layer {layer!r} must give one activation per sample, an array of length {n_samples}; "
            f"got shape {array.shape}"
        )
    flat = array.reshape(n_samples, math.prod(array.shape[1:]))
    if flat.dtype == np.float32:
        return flat.copy()  # always a copy
    with np.errstate(over="ignore"):  # what overflows float32 becomes inf and is marked
        return flat.astype(np.float32, order="C")


def mark_invalid(observation: Observation) -> Observation:
    """Mark inputs with non-finite activations; activations of all marked become 0."""
    layers, bad = observation.activations, observation.invalid.copy()
    for values in layers.values():
        if not np.isfinite(values).all():  # faster than row by row
            bad |= ~np.isfinite(values).all(axis=1)
    if not bad.any():
        return observation
    layers = {name: np.where(bad[:, None], np.float32(0), layers[name]) for name in layers}
    return replace(observation, activations=layers, invalid=bad)


def check_layers(layers: Collection[str], available: Iterable[str], model: str) -> None:
    """Refuse layers that the model does not have."""
    found = list(available)
    if not set(layers).issubset(found):
        unknown = names(layer for layer in layers if layer not in found)
        raise LayerError(f"{model} has no layer {unknown}: it has {names(found, 200)}")


def observe_inputs(
    model: Model, inputs: Any, layers: Sequence[str], batch_size: int | None = None
) -> Observation:
    """What a model says about prepared inputs, in batches of a size."""
    batches = cut_batches(inputs, batch_size)
    return join_whole((model.observe(batch, layers) for batch in batches), count_samples(inputs))


def observe_all(
    model: Model,
    batches: Iterable[Any],
    n_samples: int | None,
    layers: Sequence[str],
    take: Callable[[Observation], Observation] = lambda part: part,
) -> tuple[Observation, int]:
    """The observations of all batches as one, and the number of score columns.

    The result is without scores. take: what may keep the activations of a batch elsewhere, and
    gives back the rest.
    """
    widths: set[int] = set()

    def parts() -> Iterator[Observation]:
        for batch in batches:
            part = model.observe(batch, layers)
            widths.add(part.scores.shape[1])
            yield take(without_scores(part))

    whole = join_whole(parts(), n_samples)
    if len(widths) != 1:
        got = f"{min(widths)} columns for some samples and {max(widths)} for others"
        raise InputError(f"the scores must have a column for each class; got {got}")
    return whole, widths.pop()


def without_scores(observation: Observation) -> Observation:
    """The observation with scores of shape (n, 0): with many classes they take most memory."""
    return replace(observation, scores=np.empty((len(observation), 0)))


def join_whole(parts: Iterable[Observation], n_samples: int | None = None) -> Observation:
    """Successive observations as one, activations included; one layer at a time is held twice.

    n_samples: of all, to see at once whether memory suffices; None if unknown.
    """
    scores, belief = list[Floats](), list[Ints]()
    invalid, unseen = list[Bools](), list[Floats]()
    layers: dict[str, list[Floats32]] = {}
    n = 0
    for part in parts:
        n_features, n = 0, n + len(part.scores)
        for layer, values in part.activations.items():
            arrays = layers.setdefault(layer, [])
            if arrays:
                check_width(layer, values, arrays[0].shape[1])
            arrays.append(values)
            n_features += values.shape[1]
        # Asking how much is free takes longer than all else about a single sample.
        if 4 * n_features * (n_samples or n) > ALWAYS_FITS and (n_samples is None or not scores):
            _check_memory(layers, n_samples or n, held=n_samples is None)
        # A copy, because a model may write its next scores into the same array.
        scores.append(part.scores.copy())
        belief.append(part.belief)
        invalid.append(part.invalid)
        unseen += [] if part.unseen is None else [part.unseen]
    if n_samples not in (None, n):
        raise InputError(f"expected observations of {n_samples} samples; got {n}")
    whole = {}
    for layer in list(layers):
        whole[layer] = np.ascontiguousarray(np.concatenate(layers.pop(layer)), np.float32)
    return Observation(
        np.ascontiguousarray(np.concatenate(scores), np.float64),
        np.concatenate(belief, dtype=np.int64),
        whole,
        np.concatenate(invalid),
        np.concatenate(unseen) if len(unseen) == len(scores) else None,
    )


def check_width(layer: str, values: Floats32, width: int) -> None:
    if values.shape[1] != width:
        raise LayerError(
            f"layer {layer!r} gives {values.shape[1]} features for some samples and "
            f"{width} for others: choose a layer of fixed size"
        )


def _check_memory(layers: Mapping[str, Sequence[Floats32]], n: int, *, held: bool) -> None:
    """Refuse activations of n samples, of which some came, that take more than a share of the
    memory that is free, or that they hold already: search copies them.
    """
    widths = {layer: arrays[0].shape[1] for layer, arrays in layers.items()}
    needed, free = 4 * n * sum(widths.values()), free_memory()
    if free is None or needed <= SHARE * (free + held * needed):
        return
    layer = max(widths, key=lambda name: widths[name])
    raise LayerError(
        f"layer {layer!r} has {widths[layer]:,} features: for {n:,} samples they take "
        f"{4e-9 * n * widths[layer]:.1f} GB of memory, and {1e-9 * free:.1f} GB are free. Choose a "
        "smaller layer, or fewer samples. After a step that counts words, put TruncatedSVD(100) "
        "into the pipeline, or pass a function that does: as_model(predict_proba, embed=...)"
    )


Ask = Callable[[Any, Sequence[str]], Observation]


def is_refusal(error: Exception) -> bool:
    """Whether an error says that a classifier does not take its inputs.

    A missing text has no method `lower`: that is an AttributeError.
    """
    known = isinstance(error, (ValueError, TypeError, ArithmeticError, AttributeError))
    boosting = {"XGBoostError", "LightGBMError", "CatBoostError"}  # not all are ValueErrors
    return known or not boosting.isdisjoint(kind.__name__ for kind in type(error).__mro__)


@contextmanager
def refusing(
    name: str, batch: Any, is_refused: Callable[[Exception], bool] = lambda _: True
) -> Iterator[None]:
    """Make a `RefusedError` of what a model raises on a batch; is_refused: if this says so."""
    try:
        yield
    except (IknowError, MemoryError):
        raise
    except Exception as error:
        if not is_refused(error):
            raise
        arrays = batch.arrays if isinstance(batch, Fields) else {"": batch}
        parts = []
        for key, values in arrays.items():
            dtype = f" and dtype {values.dtype}" if hasattr(values, "dtype") else ""
            rows = hasattr(values, "shape") or is_sparse(values)
            shape = f"shape {(*np.shape(values),)}" if rows else f"{count_samples(values)} samples"
            parts.append(f"{key} of {shape}{dtype}".strip())
        said = str(error).partition("\nStack trace:")[0]  # xgboost's
        raise RefusedError(
            f"{name} failed on a batch {', '.join(parts)}: {type(error).__name__}: {said}"
        ) from error


def observe_if_taken(ask: Ask, batch: Any, layers: Sequence[str]) -> Observation:
    """What a model says about a batch; if it refuses, strange samples are kept apart."""
    try:
        return ask(batch, layers)
    except RefusedError:
        kinds = find_kinds(batch)
        if not kinds.any():
            raise
    return observe_apart(ask, batch, layers, kinds, lambda: fill_strange(batch))


def observe_apart(
    ask: Ask, batch: Any, layers: Sequence[str], kinds: Ints, substitute: Callable[[], Any]
) -> Observation:
    """What a model says about a batch with strange samples.

    kinds: of shape (n,); `ORDINARY` or a number for each other kind. substitute: makes a batch of
    the same shape without strange values, in case no sample is ordinary.
    """
    ordinary, like = kinds == ORDINARY, None
    if ordinary.any():
        # An ordinary sample replaces each strange one: with the same batch size the others round
        # as they would among ordinary samples.
        rows = np.where(ordinary, np.arange(len(kinds)), ordinary.argmax())
        like = ask(take_rows(batch, rows), layers)
    parts = []
    for kind in np.unique(kinds[~ordinary]):
        rows = np.flatnonzero(kinds == kind)
        for wanted in (layers, ()):  # answers and layers, or only answers, or nothing
            with suppress(RefusedError):
                part = ask(take_rows(batch, rows), wanted)
                bad = part.invalid | (len(wanted) < len(layers))
                parts.append((rows, replace(part, invalid=bad)))
                break
    if like is None:
        whole = [part for _, part in parts if len(part.activations) == len(layers)]
        like = whole[0][np.zeros_like(kinds)] if whole else ask(substitute(), layers)
    # Without any answer for the strange samples, to begin with.
    mask = ~ordinary[:, None]
    answers = Observation(
        np.where(mask, np.nan, like.scores),
        np.where(ordinary, like.belief, NO_BELIEF),
        {name: np.where(mask, np.float32(0), values) for name, values in like.activations.items()},
        ~ordinary | like.invalid,
        None if like.unseen is None else np.where(ordinary, like.unseen, np.nan),
    )
    for rows, part in parts:
        answers.scores[rows], answers.belief[rows] = part.scores, part.belief
        answers.invalid[rows] = part.invalid
        if answers.unseen is not None:
            answers.unseen[rows] = np.nan if part.unseen is None else part.unseen
        for layer, values in part.activations.items():
            check_width(layer, values, answers.activations[layer].shape[1])
            answers.activations[layer][rows] = values
    return answers


def promised_sensitivity(model: Model, layer: str, inputs: Sizes) -> Sensitivity:
    """What a model promises for a layer; `LayerError` if nothing, or for another `observe`.

    We add the rounding to float32 to a bare constant.
    """
    kind, replaced = type(model), replaced_methods(model)
    says = kind.sensitivity is not Model.sensitivity
    if replaced and "sensitivity" not in replaced:
        raise LayerError(
            f"nothing is known about the inside of a {kind.__name__} with its own {replaced[0]!r}"
        )
    if not replaced and says and not speaks_for(kind, "sensitivity", "observe"):
        raise LayerError(
            f"{kind.__name__} changes observe but not sensitivity, which depends on it: define "
            "sensitivity(layer, inputs) too"
        )
    promise = model.sensitivity(layer, inputs)
    if isinstance(promise, Sensitivity):
        return promise
    return Sensitivity(float(promise), relative_rounding=FLOAT32_ROUNDING * ROUND_UP)


def check_type(model: Model, kind: type[Model]) -> None:
    """Refuse subclasses of an adapter, which may compute anything."""
    if type(model) is not kind:
        raise LayerError(f"nothing is known about the inside of {type(model).__name__}")
