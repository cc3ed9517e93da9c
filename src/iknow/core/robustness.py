"""Certificates: how far an input may move before another class could be known about it.

Let g be the belief about an input. For another class c to be IK after the move, whatever the model
then believes, the support in every layer must be {c}. So in each layer

- g is out of reach. Where the rule is full within a radius ε that means d_g > ε: impossible until
  the input's point in the layer has moved by ε - d_g.
- c is within reach. Where the rule is empty beyond a radius ε that means d_c <= ε: impossible until
  the point has moved by d_¬g - ε.
- g is more than `lead` times as far as c, d_g > lead · d_c: impossible until the point has moved by
  (lead · d_¬g - d_g) / (1 + lead). The lead is 1 if all classes share a reach, unless the rule says
  otherwise. If it is at least 1, then in ℓ2 the point must also cross the bisectors between the
  samples of g and one of another class (`iknow.core.bisector`).

Each bound holds on its own, so the largest counts: the clearance. Under a quorum (for, against) d_c
is the distance to the `for`-th nearest sample of c, then the belief, and d_g to the `against`-th of
g, which would contradict it.

When the input moves by δ, the point moves by at most rounding + L·δ (`Movement`; L may differ
between samples), so no other class is IK while δ < (clearance - rounding) / L. As IK needs
{c} in every layer, the largest of all layers counts.

We assume that distances measured in float64 are off by as much as they can be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.evidence import Evidence, distances_for_and_against
from iknow.core.quorum import weigh
from iknow.core.rule import Rule, promise_of, speaks_for
from iknow.errors import InputError

LONGEST = 1e15  # a sensitivity holds for inputs up to this ℓ2 length
FURTHEST = LONGEST / 2  # the largest radius to prove by movement; inputs must not be longer either

# More than a measured distance can be off by: float64 loses 1e-16 for each feature.
AT_MOST, AT_LEAST = 1 + 1e-9, 1 - 1e-9


@dataclass(frozen=True)
class Sensitivity:
    """How far a layer's activation, as computed, can move when the input moves.

    In real arithmetic |h(x) - h(z)| <= `lipschitz` · |x - z|₂. The computed, stored H(x) is within
    `rounding` + `rounding_per_length` · |x|₂ + `relative_rounding` · |H(x)|₂ of h(x), for any batch
    and order of summation. Both hold for inputs up to LONGEST: none overflows on the way.
    """

    lipschitz: float
    rounding: float = 0.0
    rounding_per_length: float = 0.0
    relative_rounding: float = 0.0

    def off(self, lengths: Any = 0.0, sizes: Any = 0.0) -> Any:
        """How far H(x) can be from h(x), given `lengths`, |x|₂, and `sizes`, |H(x)|₂, both (n,)."""
        fixed = self.rounding + self.rounding_per_length * lengths
        return fixed + self.relative_rounding * sizes


@dataclass(frozen=True, eq=False)
class Movement:
    """How far a layer's activations, as computed, can move when the inputs of n samples do.

    If an input moves by δ in ℓ2, its point in the layer moves by at most
    rounding + lipschitz · stretch · δ. stretch: what differs between samples; where it has no
    bound, rounding is inf. crossing: how far each point must move to come nearer to a sample of
    another class than to all of the belief's (`iknow.core.bisector`); -inf if not computed.
    """

    lipschitz: float  # inf if unknown
    rounding: Floats | float = 0.0  # of shape (n,), or one value for all samples, as is crossing
    crossing: Floats | float = -np.inf
    stretch: Floats | float = 1.0  # positive and finite
    jumps_at: float = np.inf  # a point may jump that has moved so far

    def __post_init__(self) -> None:
        if not self.lipschitz >= 0:  # also false for NaN
            raise InputError(f"a Lipschitz constant must be >= 0; got {self.lipschitz}")
        if not np.all(np.greater_equal(self.rounding, 0)):
            raise InputError("the rounding of a layer must be >= 0; use inf if it is unknown")
        if not np.all(np.greater(self.stretch, 0) & np.isfinite(self.stretch)):
            raise InputError("the stretch of a layer must be positive and finite")

    def __getitem__(self, samples: Any) -> Movement:
        names = ("rounding", "crossing", "stretch")
        parts = (getattr(self, name) for name in names)
        taken = (part[samples] if isinstance(part, np.ndarray) else part for part in parts)
        return replace(self, **dict(zip(names, taken, strict=True)))


def find_robust_radii(
    evidence: Mapping[str, Evidence],
    rules: Mapping[str, Rule],
    belief: Ints,
    movements: Mapping[str, Movement],
) -> Floats:
    """The ℓ2 length below which no change of the input makes another class than the belief IK.

    belief: class codes of shape (n_queries,). movements: how far the layers' points can move; a
    layer without one, or with a constant of inf, proves nothing. Returns radii of shape
    (n_queries,), 0 where nothing is proven.
    """
    radii = np.zeros(len(belief))
    for layer, movement in movements.items():
        if layer not in evidence:
            raise InputError(
                f"a movement was given for layer {layer!r}; the evidence is of the layers "
                f"{', '.join(map(repr, evidence))}"
            )
        if np.isfinite(movement.lipschitz):
            about = evidence[layer], rules[layer], belief
            with np.errstate(divide="ignore", invalid="ignore"):
                clearance = find_clearance(*about, movement.crossing)
                left = np.minimum(clearance, movement.jumps_at) - movement.rounding
                # A layer that does not move at all, L = 0, proves FURTHEST.
                moved = np.minimum(left / (movement.lipschitz * movement.stretch), FURTHEST)
            # Where no movement, however long, reaches another class, rounding cannot either.
            unreachable = np.isposinf(clearance) & np.isfinite(movement.rounding)
            moved = np.where(unreachable, np.inf, moved)
            radii = np.maximum(radii, np.where((left > 0) | unreachable, moved, 0.0))
    return radii


def find_clearance(
    evidence: Evidence, rule: Rule, belief: Ints, crossing: Floats | float = -np.inf
) -> Floats:
    """How far the query's point may move before another class could be alone within reach.

    In the layer's own distance, of shape (n_queries,); not positive if one could be already.
    crossing: how far it may move with no other class nearer, if known from more than distances.
    """
    needed, against = rule.quorum
    evidence = weigh(evidence, (against, needed), belief)
    own, other = distances_for_and_against(evidence, belief)
    own, other = own * AT_MOST, other * AT_LEAST
    full, limit, lead = (promise_of(rule, each) for each in ("full_within", "empty_beyond", "lead"))
    with np.errstate(invalid="ignore"):
        outside = evidence.class_distances * AT_LEAST - limit
        inside = np.where(np.isinf(own), -np.inf, full - own)
        ahead = np.where(np.isinf(other), np.inf, lead * other)
        nearer = np.where(np.isinf(own), -np.inf, (ahead - own) / (1 + lead))
    # A class without samples is never reached, however far the reach is.
    outside[np.isinf(evidence.class_distances)] = np.inf
    outside[np.arange(len(belief)), belief] = np.inf
    clearance: Floats = np.maximum(inside, outside.min(axis=1))
    if rule.reach(evidence).ndim == 1 or speaks_for(type(rule), "lead"):
        clearance = np.maximum(clearance, nearer)
        if lead >= 1 and against == 1:  # bisectors say which class has the nearest sample
            clearance = np.maximum(clearance, crossing)
    return clearance
