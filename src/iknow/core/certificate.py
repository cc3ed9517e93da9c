"""Certificates: how far an input may be moved before something else could be known about it.

Let h be a layer with |h(x) - h(z)| <= L·|x - z|₂. Moving the input by δ moves every distance d_c in
the layer by at most L·δ. To know another class c there, the support must be {c}, and so

- g is not within reach. Where the rule is full within a radius ε, d_g > ε: while
  δ <= (ε - d_g) / L that cannot be.
- The nearest sample of all is of class c. Where the rule is empty beyond a radius ε, d_c <= ε:
  while δ < (d_¬g - ε) / L that cannot be.
- c is nearer than g, d_c < d_g: while δ <= (d_¬g - d_g) / 2L that cannot be. If the reach is
  always `ratio` times the distance of the nearest, even d_g > ratio · d_c must hold: while
  δ <= (ratio · d_¬g - d_g) / ((1 + ratio) L) that cannot be.

Each holds on its own, so the largest counts; and as IK needs {c} in every layer, the largest of all
layers. The last is at least as good as half of (d_¬g - ρ) / L wherever the belief is within reach,
and holds for every rule whose reach does not depend on the class.

These are facts about real arithmetic. A network that computes in float32 adds its rounding, about
1e-6 of the size of the activations.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.evidence import Evidence, distances_for_and_against
from iknow.core.neighborhood import Neighborhood, RelativeBall
from iknow.errors import InputError


def certify(
    evidence: Mapping[str, Evidence],
    neighborhoods: Mapping[str, Neighborhood],
    belief: Ints,
    lipschitz: Mapping[str, float],
) -> Floats:
    """The ℓ2 length below which no change of the input makes another class than the belief IK.

    belief: class codes of shape (n_queries,). lipschitz: constants from the input to the layers, in
    the layers' own metrics; a layer without one, or with inf, certifies nothing. Returns the
    radii, of shape (n_queries,), 0 where nothing is certified.
    """
    radii = np.zeros(len(belief))
    for layer, constant in lipschitz.items():
        if layer not in evidence:
            raise InputError(
                f"a Lipschitz constant was given for layer {layer!r}; the evidence is of the "
                f"layers {', '.join(map(repr, evidence))}"
            )
        if not constant >= 0:  # also false for NaN
            raise InputError(
                f"the Lipschitz constant of layer {layer!r} must be >= 0; got {constant}"
            )
        if np.isfinite(constant):
            clearance = find_clearance(evidence[layer], neighborhoods[layer], belief)
            with np.errstate(divide="ignore", invalid="ignore"):
                # A layer that does not move at all, L = 0, certifies any length.
                moved = np.where(clearance > 0, clearance / constant, 0.0)
            radii = np.maximum(radii, moved)
    return radii


def find_clearance(evidence: Evidence, neighborhood: Neighborhood, belief: Ints) -> Floats:
    """How far the query's activation may move before another class could be alone within reach.

    In the layer's own distance, of shape (n_queries,); not positive where that is possible now.
    """
    own, other = distances_for_and_against(evidence, belief)
    one_reach = neighborhood.reach(evidence).ndim == 1
    limits = np.broadcast_to(np.asarray(neighborhood.empty_beyond), evidence.class_distances.shape)
    full = np.broadcast_to(np.asarray(neighborhood.full_within), limits.shape)
    rows = np.arange(len(belief))
    with np.errstate(invalid="ignore"):
        outside = np.where(np.isinf(limits), -np.inf, evidence.class_distances - limits)
        inside = np.where(np.isinf(own), -np.inf, full[rows, belief] - own)
        ratio = neighborhood.ratio if isinstance(neighborhood, RelativeBall) else 1.0
        nearer = np.where(np.isinf(own), -np.inf, (ratio * other - own) / (1 + ratio))
    # A class without samples is never reached, however far the reach is.
    outside[np.isinf(evidence.class_distances)] = np.inf
    outside[rows, belief] = np.inf
    clearance: Floats = np.maximum(inside, outside.min(axis=1))
    return np.maximum(clearance, nearer) if one_reach else clearance
