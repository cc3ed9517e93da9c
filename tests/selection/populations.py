"""Populations whose truth is known: promises can be held against it.

A population is made of kinds of samples: distances to the believed class and to the others in each
layer, the model's confidence, how frequent they are, and how often wrong. So the true accuracy on
IK of any setting is a sum.
"""

from dataclasses import dataclass

import numpy as np

from iknow.core.quorum import Contrast
from iknow.selection.selection import Candidate
from iknow.selection.validation import Validation


@dataclass(frozen=True, eq=False)
class LeveledPopulation:
    """own, other: of shape (n_layers, n_kinds). The rest: of shape (n_kinds,)."""

    own: np.ndarray
    other: np.ndarray
    confidence: np.ndarray
    share: np.ndarray
    error: np.ndarray
    belief: np.ndarray

    def take(self, kinds, wrong=None):
        """Samples of these kinds, with the truth if it is known who is wrong."""
        evidence = {}
        for i, (own, other) in enumerate(
            zip(self.own[:, kinds], self.other[:, kinds], strict=True)
        ):
            nearest = np.minimum(own, other)[:, None]
            evidence[f"layer{i}"] = Contrast(own, other, nearest)
        belief = self.belief[kinds]
        truth = None if wrong is None else np.where(wrong, belief + 1, belief)
        return Validation(evidence, belief, truth, self.confidence[kinds])

    def draw(self, rng, n):
        kinds = rng.choice(len(self.share), size=n, p=self.share / self.share.sum())
        return self.take(kinds, rng.random(n) < self.error[kinds])

    def known(self, selection):
        """Which kinds are IK."""
        chosen = Candidate(
            selection.neighborhoods, selection.knowable, selection.least_confidence, selection.level
        )
        return chosen.find_known(self.take(np.arange(len(self.share))))

    def coverage(self, selection):
        return self.share[self.known(selection)].sum() / self.share.sum()

    def is_broken(self, selection, target):
        """Whether the true accuracy on IK, of all or of some class, is not above the target."""
        known = self.known(selection)
        codes = [None] if selection.knowable is None else selection.knowable
        for code in codes:
            group = known if code is None else known & (self.belief == code)
            share, error = self.share[group], self.error[group]
            if share.sum() and (share * error).sum() / share.sum() >= 1 - target - 1e-12:
                return True
        return False


def leveled(error, seed=0, n_layers=2, share=None, tied=False):
    """Kinds in the order of their level on the plain path, the surest first, all of one class.

    tied: distances take few values, so that many levels tie.
    """
    rng = np.random.default_rng(seed)
    n = len(error)
    order = np.arange(1, n + 1) / n
    own = np.stack([order + (0 if tied else i) for i in range(n_layers)])
    ratio = 4 - 3 * order
    if tied:
        own, ratio = np.ceil(5 * own), np.ceil(4 * ratio)
    confidence = np.sort(rng.normal(size=n))[::-1]
    share = np.ones(n) if share is None else np.asarray(share, float)
    columns = own, own * ratio, confidence, share, np.asarray(error, float)
    return LeveledPopulation(*columns, np.zeros(n, dtype=np.int64))
