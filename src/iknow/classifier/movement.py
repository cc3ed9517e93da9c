"""How far a change of the input can move a layer: the points of a wrapped model.

`iknow.metrics` bounds what it can, in real arithmetic and with the model's own rounding; a layer
without a bound has the constant inf and no robust radius.

Let H(x) be a layer's activation as computed and stored, within r + s·|x| + κ·|H(x)| of a function
of constant L (see `Sensitivity`). For an input x' at a distance δ from x, |x'| <= |x| + δ and
|H(x')| <= |H(x)| + D, where D = |H(x') - H(x)|₂, so

    D  <=  ((L + s) δ + 2 (r + s·|x| + κ·|H(x)|)) / (1 - κ).

The layer's metric t expands that by at most E, for all activations or, such as `Cosine`, for those
of this sample; and t is off by at most τ·|H| + ρ·|t(H)| in either place, where
|t(H(x'))| <= |t(H(x))| + E D. So the searched point moves by at most
(E + τ + ρ E) D + 2 (τ·|H(x)| + ρ·|t(H(x))|): a `Movement`, with a part that grows with δ and one
that does not.

Not covered: a machine that computes wrongly, a model that changes after the assessment (a probe
shows most changes), and inputs of another dtype than those assessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from iknow.classifier.plan import Plan
from iknow.core.arrays import Floats, Floats32, Ints
from iknow.core.bisector import find_crossings
from iknow.core.robustness import FURTHEST, Movement, Sensitivity
from iknow.core.rule import promise_of
from iknow.errors import IknowError, LayerError, warn
from iknow.locking import cached_property
from iknow.metrics.lipschitz import FLOAT32_ROUNDING, ROUND_UP, SMALLEST
from iknow.metrics.metric import Minkowski, check_promises, lp_norms
from iknow.models.inputs import Sizes, as_rows, join_sizes, norms
from iknow.models.model import Observation, promised_sensitivity
from iknow.search.layer import LayerIndex

NOT_BOUNDED = (
    IknowError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError
)  # fmt: skip  # whatever an unknown model may raise on the way to a bound


@dataclass(eq=False)
class Mover:
    """Finds how far the points of assessed samples can move.

    measured: what finds the sizes of the inputs, batch by batch. seen: what the model said about
    them, without activations if those were too large to keep.
    """

    plan: Plan
    measured: Sequence[Callable[[], Sizes]]
    seen: Observation

    @cached_property
    def sizes(self) -> Sizes:
        return join_sizes(self.measured)

    def find(self, layer: str, positions: Ints) -> Movement:
        """How far the points of the samples at these positions can move."""
        bound = self._bounds[layer]
        if not math.isfinite(bound.lipschitz):
            return Movement(math.inf)
        index, kept = self.plan.indexes[layer], self.seen.activations
        queries = kept[layer][positions] if kept else None
        points, stretch, unsure = _measure(index, queries)
        stretch = stretch / (1 - bound.relative_rounding)
        # `_check_known` saw that what is not known does not count.
        lengths = self.sizes.lengths
        lengths = np.zeros(len(positions)) if lengths is None else lengths[positions]
        with np.errstate(invalid="ignore"):  # no bound times no error
            off = bound.off(lengths, 0.0 if queries is None else norms(queries))
            lost = stretch * off + unsure + SMALLEST * math.sqrt(index.n_features)
        lost[lengths > FURTHEST] = np.inf
        lipschitz = (bound.lipschitz + bound.rounding_per_length) * ROUND_UP
        rounding = np.nan_to_num(2 * lost * ROUND_UP, nan=np.inf, posinf=np.inf)
        crossing: Any = -np.inf
        if points is not None and index.metric.p == 2:  # where bisectors are flat
            nearest = points.astype(np.float32), self.seen.belief[positions]
            crossing = find_crossings(index.points, index.labels, *nearest)
        if not isinstance(stretch, np.ndarray):  # the same for all samples
            return Movement(stretch * lipschitz, rounding, crossing, 1.0, index.metric.jumps_at)
        known = np.isfinite(stretch)
        rounding = np.where(known, rounding, np.inf)
        stretch = np.where(known & (stretch > 0), stretch, 1)
        return Movement(lipschitz, rounding, crossing, stretch, index.metric.jumps_at)

    @cached_property
    def _bounds(self) -> dict[str, Sensitivity]:
        """The sensitivity of each layer; warns if none has a finite one."""
        bounds: dict[str, Sensitivity] = {}
        reasons: list[str] = []
        for layer, index in self.plan.searched.items():
            try:
                check_promises(index.metric)
                bounds[layer] = promised_sensitivity(self.plan.model, layer, self.sizes)
                self._check_known(bounds[layer], index)
                self._check_probe(layer, bounds[layer])
            except NOT_BOUNDED as error:
                bounds[layer] = Sensitivity(math.inf)
                reasons.append(f"layer {layer!r}: {error}")
        if all(math.isinf(bound.lipschitz) for bound in bounds.values()):
            warn(
                "no layer has a known Lipschitz constant, so robust radii are 0; that of the "
                f"layer 'input' is known for arrays of numbers. {'; '.join(reasons)}"
            )
        return bounds

    def _check_known(self, bound: Sensitivity, index: LayerIndex) -> None:
        """Everything that rounding depends on must be known."""
        parts = tuple(vars(bound).values())
        # Both are false for NaN.
        if not (all(part >= 0 for part in parts) and bound.relative_rounding < 1):
            raise LayerError(f"bounds must be >= 0, the relative rounding below 1; got {parts}")
        if bound.rounding_per_length and self.sizes.lengths is None:
            raise LayerError("its rounding grows with the inputs, which are not numeric arrays")
        by_activation = bound.relative_rounding or type(index.metric) is not Minkowski
        if not self.seen.activations and by_activation:
            raise LayerError(
                "its rounding depends on the activations, which were too large to keep: assess "
                "fewer samples at once"
            )

    def _check_probe(self, layer: str, bound: Sensitivity) -> None:
        """A second net: the probe must be answered as in the assessment, and move as promised."""
        if self.sizes.probe is None or not self.seen.activations or self.sizes.lengths is None:
            return
        observation = self.plan.model.observe(self.sizes.probe, (layer,))
        now = observation.activations[layer].astype(np.float64)
        before = self.seen.activations[layer][: len(now)].astype(np.float64)
        inputs, lengths = as_rows(self.sizes.probe), self.sizes.lengths[: len(now)]
        off = (bound.off(lengths, norms(before)) + SMALLEST * math.sqrt(now.shape[1])) * ROUND_UP
        usable = np.isfinite(lengths) & ~observation.invalid
        if (norms(now - before) > 2 * off * ROUND_UP**2)[usable].any():
            raise LayerError(
                "the model no longer answers some inputs as it did in the assessment: it has "
                "changed, or is random. Assess them again, before it changes"
            )
        for i in np.flatnonzero(usable):
            allowed = bound.lipschitz * norms(inputs - inputs[i]) + off + off[i]
            if (norms(now - now[i]) > allowed * ROUND_UP**2)[usable].any():
                raise LayerError(
                    f"some inputs move further apart than the bound of {bound.lipschitz:.3g} "
                    "allows: it does not hold for this model"
                )


def _measure(
    index: LayerIndex, queries: Floats32 | None
) -> tuple[Any, Floats | float, Floats | float]:
    """What the layer's metric makes of n activations, or of all if none were kept.

    Points of shape (n, m), or None; E + τ + ρ E, a number or of shape (n,); and τ·|H| + ρ·|t(H)|,
    likewise.
    """
    metric = index.metric
    # Of the activations: the metric's points may have another width.
    width = index.n_features if queries is None else queries.shape[1]
    unit, expansion = metric.rounding(width), metric.expansion(width)
    relative = promise_of(metric, "relative_rounding", "transform")(width)
    if queries is None:  # `_check_known` saw that nothing depends on them
        return None, expansion * (1 + relative) + unit, 0.0
    if math.isinf(expansion):
        expansion = promise_of(metric, "expansion_at", "transform")(queries)
    points, rounding = np.asarray(metric.transform(queries)), unit * norms(queries)
    if relative:
        # Points are in float32, and may have been rounded down.
        lengths = lp_norms(points.astype(np.float64), metric.p) * (1 + 2 * FLOAT32_ROUNDING)
        rounding = rounding + relative * lengths
    return points, expansion * (1 + relative) + unit, rounding
