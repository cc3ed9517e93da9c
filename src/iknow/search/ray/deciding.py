"""Deciding by shards: what each decides alone, merged, and distances only where that is not enough.

Every shard s says how near its own rows of the believed class and of any other class are, d_g,s and
d_¬g,s, as the quorum counts them. Two cases let us merge these by a minimum:

- every class is in one shard as a whole. Then d_c^(m) is known to that shard, whatever m is, and no
  other shard has a row of c;
- the quorum is one on both sides. Then d_c is the least of the shards' d_c,s.

Either way d_g = min d_g,s and d_¬g = min d_¬g,s, to the last bit. The nearest row of the belief is
the nearest of any shard, the lowest of equals.

Let (ε, q) be the rule's horizon: no other class beyond max(ε, q · d_g) affects the support. So if
d_¬g is beyond it, the support follows from d_g alone, with inf for all other classes. Only about
the remaining queries, which another class is near, the shards are asked for distances.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.codes import NO_BELIEF
from iknow.core.contrast import Contrast
from iknow.core.decision import Decision, decide_weighed
from iknow.core.evidence import NO_EXEMPLAR
from iknow.core.neighborhood import Neighborhood
from iknow.core.overriding import said
from iknow.core.quorum import ONE, truncated_evidence

NONE = np.iinfo(np.int64).max  # comes after every row number


class Opinion(NamedTuple):
    """What one shard says about n queries: the distances and exemplars of a `Decision`."""

    own: Floats
    other: Floats
    exemplars: Ints


def merges(neighborhood: Neighborhood, *, whole: bool) -> bool:
    """Whether decisions of shards merge. whole: whether every class is in one shard."""
    horizon = said(neighborhood, "horizon")
    if horizon is None or not horizon.is_finite or horizon.k:
        return False
    return whole or neighborhood.quorum == ONE


def merge_opinions(opinions: list[Opinion]) -> Opinion:
    """The same about the rows of all shards."""
    owns = np.array([opinion.own for opinion in opinions])
    rows = np.array([opinion.exemplars for opinion in opinions])
    # A class with fewer samples than the quorum is at inf, and still has a nearest one.
    rows = np.where(rows == NO_EXEMPLAR, NONE, rows)
    first = np.lexsort((rows, owns), axis=0)[:1]
    exemplars = np.take_along_axis(rows, first, axis=0)[0]
    return Opinion(
        owns.min(axis=0),
        np.min([opinion.other for opinion in opinions], axis=0),
        np.where(exemplars == NONE, NO_EXEMPLAR, exemplars),
    )


def decide_by(
    opinion: Opinion, neighborhood: Neighborhood, belief: Ints, n_classes: int
) -> tuple[Decision, Bools]:
    """What an opinion about all rows decides, and a mask (n,) of the queries it does not decide."""
    own, other, exemplars = opinion
    distances = np.full((len(belief), n_classes), np.inf)
    believed = np.flatnonzero(belief != NO_BELIEF)
    distances[believed, belief[believed]] = own[believed]
    none = np.empty((len(belief), 0))
    weighed = truncated_evidence(distances, none, belief, neighborhood.quorum)
    support = decide_weighed(weighed, neighborhood, exemplars).support
    contrast = Contrast(own, other, none, neighborhood.quorum)
    return Decision(contrast, exemplars, support), other <= _horizon(neighborhood, own)


def _horizon(neighborhood: Neighborhood, own: Floats) -> Floats:
    """The distance beyond which no other class matters, of shape (n,)."""
    radius, ratio, _ = said(neighborhood, "horizon")
    limits = np.full(len(own), float(radius))
    finite = np.isfinite(own)
    with np.errstate(over="ignore"):
        limits[finite] = np.maximum(limits[finite], ratio * own[finite])
    return limits
