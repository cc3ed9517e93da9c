"""Populations whose truth is known: promises can be held against it.

A population is made of kinds of samples: distances to the believed class and to the others in each
layer, the model's confidence, how frequent they are, and how often wrong. So the true accuracy on
IK of any setting is a sum.
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.stats import binomtest

from iknow.core.quorum import Contrast
from iknow.errors import SelectionError
from iknow.rules import Ball
from iknow.selection import Goal
from iknow.selection.validation import Validation


@dataclass(frozen=True, eq=False)
class LeveledPopulation:
    """own, other: of shape (n_layers, n_kinds), as is tenth, the distance to the tenth neighbor; by
    default it is that to the nearest. The rest: of shape (n_kinds,).
    """

    own: np.ndarray
    other: np.ndarray
    confidence: np.ndarray
    share: np.ndarray
    error: np.ndarray
    belief: np.ndarray
    tenth: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))

    def take(self, kinds, wrong=None):
        """Samples of these kinds, with the truth if it is known who is wrong."""
        evidence = {}
        for i, (own, other) in enumerate(
            zip(self.own[:, kinds], self.other[:, kinds], strict=True)
        ):
            tenth = self.tenth[i, kinds] if len(self.tenth) else np.minimum(own, other)
            evidence[f"layer{i}"] = Contrast(own, other, np.tile(tenth[:, None], 10))
        belief = self.belief[kinds]
        truth = None if wrong is None else np.where(wrong, belief + 1, belief)
        return Validation(evidence, belief, truth, self.confidence[kinds])

    def draw(self, rng, n):
        kinds = rng.choice(len(self.share), size=n, p=self.share / self.share.sum())
        return self.take(kinds, rng.random(n) < self.error[kinds])

    def known(self, selection):
        """Which kinds are IK by the definition of a ball or a relative ball."""
        known = self.confidence >= selection.least_confidence
        if selection.knowable is not None:
            known &= np.isin(self.belief, selection.knowable)
        for layer, rule in selection.neighborhoods.items():
            i = int(layer.removeprefix("layer"))
            own, other = self.own[i], self.other[i]
            known &= (own <= rule.radius) & (own < np.inf)
            if isinstance(rule, Ball):
                known &= (rule.radius < other) | (other == np.inf)
                continue
            tenth = self.tenth[i] if len(self.tenth) else np.minimum(own, other)
            known &= tenth <= rule.seen
            if rule.ratio > 0:
                known &= (rule.ratio * own < other) | (other == np.inf)
        return known

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

    tied: distances and confidences take few values, so that many levels tie.
    """
    rng = np.random.default_rng(seed)
    n = len(error)
    order = np.arange(1, n + 1) / n
    own = np.stack([order + (0 if tied else i) for i in range(n_layers)])
    ratio = 4 - 3 * order
    if tied:
        own, ratio = np.ceil(5 * own), np.ceil(4 * ratio)
    confidence = np.sort(rng.normal(size=n))[::-1]
    confidence = np.ceil(2 * confidence) if tied else confidence
    share = np.ones(n) if share is None else np.asarray(share, float)
    columns = own, own * ratio, confidence, share, np.asarray(error, float)
    return LeveledPopulation(*columns, np.zeros(n, dtype=np.int64))


def disagreeing(error, seed=0, n_layers=2):
    """Kinds with which no two voices agree, some alone far from all else; errors are in order of
    the model's confidence.
    """
    rng, n = np.random.default_rng(seed), len(error)
    own, ratio, tenth = rng.exponential(size=(3, n_layers, n))
    tenth[:, rng.random(n) < 0.05] = np.inf
    confidence = np.sort(rng.normal(size=n))[::-1]
    columns = own, own * ratio, confidence, np.ones(n), np.asarray(error, float)
    return LeveledPopulation(*columns, np.zeros(n, dtype=np.int64), tenth)


def of_kinds(*kinds):
    """One layer; each kind is (belief, own, other, share, error)."""
    belief, own, other, share, error = (np.array(column) for column in zip(*kinds, strict=True))
    return LeveledPopulation(own[None], other[None], np.zeros(len(own)), share, error, belief)


class Outcome:
    """How often certificates are issued, and how often they are broken.

    certify: makes a selection of validation samples, a goal, and a function that draws more
    samples. A certificate is broken where the true accuracy on IK is not above the target; that may
    happen in a fraction 1 - confidence of the draws. Exactly at the target stands for all that is
    below by less than any number.
    """

    def __init__(self, population, certify, confidence, n_draws, n, **options):
        self.n_draws, self.confidence, self.issued, self.broken = n_draws, confidence, 0, 0
        rng = np.random.default_rng(1)
        for seed in range(n_draws):
            part = population.draw(rng, n)
            goal = Goal(confidence=confidence, random_state=seed, **options)
            try:
                selection = certify(part, goal, lambda m: population.draw(rng, m))
            except SelectionError:
                continue
            self.issued += 1
            target = options.get("accuracy", selection.certificate.accuracy)
            self.broken += population.is_broken(selection, target)

    def check_promise(self):
        test = binomtest(self.broken, self.n_draws, 1 - self.confidence, alternative="greater")
        assert test.pvalue > 1e-3, f"{self.broken} of {self.n_draws} promises were broken"
