"""Probes: some training inputs, and what the model said about them.

A bundle does not hold its model, and the user may load it with another one. Weights and versions
cannot identify a model: one changed number outside the weights may change every answer. So iknow
keeps some inputs with their scores and activations, which the same model repeats.

Batch sizes, threads, processors and libraries change the order of sums. So an activation may differ
by 1/10,000 of the layer's spread (the root mean square distance from their mean), or by ten times
the difference that other batches of the same inputs made at `fit`, whichever is larger, plus a few
units in the last place. A smaller change, or one on inputs unlike the probes, goes unnoticed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.errors import BundleError
from iknow.models.function import PrecomputedModel
from iknow.models.inputs import choose_rows, count_samples, take_rows
from iknow.models.model import Model, Observation, as_belief, observe_inputs
from iknow.models.stored_inputs import keep_rows, restore_inputs, store_inputs

MOST_ROWS = 32
MOST_BYTES = 1 << 20  # of all inputs, scores and activations
SHARE_OF_SPREAD = 1e-4
TIMES_NOISE = 10.0
UNITS_IN_LAST_PLACE = 16 * float(np.finfo(np.float32).eps)
SCORES = "the scores"


@dataclass(frozen=True, eq=False)
class Probe:
    """Inputs of n samples and what a model said about them.

    The `inputs` are as the model takes them, and `observed` is what it said. The `tolerances` say
    for each layer, and for the scores, how far two answers may differ; `rows`, of shape (n,), are
    the numbers of the training samples that the inputs are.
    """

    inputs: Any
    observed: Observation
    tolerances: Mapping[str, float]
    rows: Ints

    def find_difference(self, model: Model, batch_size: int | None = None) -> str | None:
        """Say how `model`, in batches of `batch_size`, answers differently; None for alike."""
        try:
            found = observe_inputs(model, self.inputs, tuple(self.observed.activations), batch_size)
        except Exception as error:  # a model may raise anything on the inputs of another
            return f"it fails on inputs that the original model accepted ({error})"
        worst, words = 1.0, None
        for name, before in tables_of(self.observed).items():
            after = tables_of(found)[name]
            if after.shape != before.shape:
                return f"{name} have shape {after.shape} instead of {before.shape}"
            lengths = row_distances(before, after)
            row, allowed = int(lengths.argmax()), self.tolerances[name]
            if lengths[row] > worst * allowed:
                worst = lengths[row] / allowed if allowed else np.inf
                words = (
                    f"{name} differ by {lengths[row]:.3g} on input {row} of the "
                    f"{len(before)} kept, where {allowed:.3g} is allowed"
                )
        scores, belief, other = self.observed.scores, self.observed.belief, found.belief
        changed = np.flatnonzero(belief != other)
        lead = np.abs(scores[changed, belief[changed]] - scores[changed, other[changed]])
        untied = changed[lead > 2 * self.tolerances[SCORES]]
        if words is None and len(untied):
            return f"it believes another class on input {untied[0]} of the {len(scores)} kept"
        return words

    def without(self, rows: Ints) -> Probe | str:
        """Return the probe without the training samples numbered `rows`, or why none is left."""
        kept = np.flatnonzero(~np.isin(self.rows, rows))
        if not len(kept):
            return "the samples that it was known by were removed"
        inputs = self.inputs if len(kept) == len(self.rows) else take_rows(self.inputs, kept)
        return Probe(inputs, self.observed[kept], self.tolerances, self.rows[kept])

    def store(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return plain values and arrays, no pickle; ValueError if the inputs forbid it."""
        record, arrays = store_inputs(self.inputs)
        layers = {f"layer{i}": v for i, v in enumerate(self.observed.activations.values())}
        said = {"scores": self.observed.scores, "belief": self.observed.belief, "rows": self.rows}
        tolerances = [self.tolerances[name] for name in tables_of(self.observed)]
        return {"inputs": record, "tolerances": tolerances}, arrays | said | layers


def restore_probe(
    record: Mapping[str, Any], arrays: Mapping[str, Any], layers: Sequence[str]
) -> Probe:
    """The probe that `Probe.store` wrote for these layers."""
    try:
        activations = {layer: arrays[f"layer{i}"] for i, layer in enumerate(layers)}
        scores, belief = np.asarray(arrays["scores"], dtype=np.float64), arrays["belief"]
        inputs, rows = restore_inputs(record["inputs"], arrays), np.array(arrays["rows"])
        n, _ = scores.shape
        observed = Observation(scores, belief, activations, np.zeros(n, dtype=bool))
        tables, lengths = tables_of(observed), [float(length) for length in record["tolerances"]]
        as_belief(belief, scores)
        if (belief < 0).any():
            raise ValueError("its beliefs must be class codes")
        if any(v.ndim != 2 or len(v) != n or v.dtype.kind != "f" for v in tables.values()):
            raise ValueError(f"its scores and activations must be tables of floats with {n} rows")
        if rows.dtype.kind not in "iu" or rows.shape != (n,) or count_samples(inputs) != n:
            raise ValueError(f"it must hold {n} inputs, each with the number of its row")
        if not all(0 <= length < np.inf for length in lengths):
            raise ValueError("its tolerances must be numbers >= 0")
        return Probe(inputs, observed, dict(zip(tables, lengths, strict=True)), rows)
    except ImportError:
        raise
    except Exception as error:  # a foreign file can be wrong in any way
        raise BundleError(f"the record of its model cannot be read: {error!r}") from error


def make_probe(
    model: Model,
    inputs: Any,
    codes: Ints,
    layers: Sequence[str],
    rows: Ints,
    batch_size: int | None = None,
) -> Probe | str:
    """A probe of a model by some training inputs, or the reason why that is impossible.

    codes: the classes of the inputs, of shape (n,); the probe covers all of them if possible.
    rows: the numbers of the training samples that they are, of shape (n,).
    """
    if isinstance(model, PrecomputedModel):
        return "it was made from precomputed outputs, without the model"
    places = choose_rows(codes, MOST_ROWS)
    chosen = keep_rows(inputs, places)
    if chosen is None:
        return f"inputs of type {type(inputs).__name__} cannot be kept in a bundle"
    n = count_samples(chosen)
    try:
        whole = observe_inputs(model, chosen, layers, batch_size)
        cut = [take_rows(chosen, part) for part in (slice(1), slice(1, None))[:n]]
        parts = [observe_inputs(model, part, layers, batch_size) for part in cut]
    except Exception as error:  # it may require a fixed batch size
        return f"the model cannot run on a few inputs at a time ({error})"
    tolerances = {}
    for name, values in tables_of(whole).items():
        again = np.concatenate([tables_of(part)[name] for part in parts])
        noise = TIMES_NOISE * float(row_distances(values, again).max())
        tolerances[name] = find_tolerance(values, noise)
        if np.isinf(tolerances[name]):
            return "the model gives different answers each time for the same inputs"
    probe = Probe(chosen, whole, tolerances, rows[places])
    try:
        n_bytes = sum(np.asarray(array).nbytes for array in probe.store()[1].values())
    except Exception as error:  # no data frame may make `fit` fail
        return str(error)
    most = n * MOST_BYTES // n_bytes
    if not most:
        return f"one input with its scores and activations takes more than {MOST_BYTES:,} bytes"
    return probe.without(probe.rows[most:])


def tables_of(observed: Observation) -> dict[str, Any]:
    """The scores and the activations, by their names in errors."""
    layers = {f"the activations of layer {k!r}": v for k, v in observed.activations.items()}
    return {SCORES: observed.scores, **layers}


def row_distances(one: Floats, other: Floats) -> Floats:
    """The distance between the rows of two tables of shape (n, m); equal infinities count as 0."""
    with np.errstate(invalid="ignore"):
        difference = np.subtract(one, other, dtype=np.float64)
    difference[(one == other) | (np.isnan(one) & np.isnan(other))] = 0.0
    difference[np.isnan(difference)] = np.inf
    lengths: Floats = np.linalg.norm(difference, axis=1)
    return lengths


def find_tolerance(values: Floats, noise: float = 0.0) -> float:
    """How far rows of scores or activations may be from those of the same samples.

    values: of shape (n, m). noise: a difference that the same model makes; inf if it is too large.
    """
    finite = np.where(np.isfinite(values), values, 0.0).astype(np.float64)  # log(0) is a score too
    spread = float(np.sqrt(((finite - finite.mean(axis=0)) ** 2).sum(axis=1).mean()))
    rounding = UNITS_IN_LAST_PLACE * float(np.linalg.norm(finite, axis=1).max())
    return (
        np.inf if noise > max(spread, rounding) else max(SHARE_OF_SPREAD * spread, noise) + rounding
    )
