"""What the tests of evaluation share: small random assessments full of ties."""

import numpy as np
import pytest

from iknow import Assessment, Evidence
from iknow.core.evidence import discard_evidence
from iknow.core.robustness import Movement

NAMES = np.array(["cat", "dog", "owl"])


def random_evidence(rng, usual, n_neighbors):
    """Mostly the usual distances. Some classes have no sample.

    Neighbours are the nearest of each class and some more, of any class, that lie behind them.
    """
    n = len(usual)
    distances = np.where(
        rng.random(usual.shape) < 0.3, rng.choice(usual.ravel(), usual.shape), usual
    )
    behind = distances.min(axis=1, keepdims=True) + rng.choice([0.0, 0.5, 1.0], size=(n, 9))
    neighbors = np.sort(np.concatenate([distances, behind], axis=1), axis=1)[:, :n_neighbors]
    # The second and third nearest of each class are a few steps behind the nearest.
    steps = np.random.default_rng(n).choice([0.0, 0.5, 1.0, np.inf], (2, *distances.shape))
    ranked = np.stack([distances, distances + steps[0], distances + steps.sum(axis=0)], axis=2)
    return Evidence(ranked, neighbors, np.where(np.isinf(ranked), -1, [7, 8, 9]))


def random_assessment(seed, neighborhoods, n=None, n_neighbors=6, discard=True):
    """An assessment by layers with the given neighborhoods, and the truth about it.

    Distances are of a few numbers, so that they tie. discard: whether evidence about invalid
    samples is taken away, as a classifier does.
    """
    rng = np.random.default_rng(seed)
    n = n or int(rng.integers(1, 40))
    invalid = rng.random(n) < 0.1
    usual = rng.choice([0.0, 0.5, 1.0, 1.5, 2.5, np.inf], size=(n, len(NAMES)))
    # The belief is that of the nearest sample for most, as a trained model's would be.
    random = rng.integers(len(NAMES), size=n)
    belief = np.where(rng.random(n) < 0.7, usual.argmin(axis=1), random)
    scores = rng.choice([0.0, 1.0, 2.0], size=(n, len(NAMES)))
    scores[np.arange(n), belief] = scores.max(axis=1)
    evidence = {layer: random_evidence(rng, usual, n_neighbors) for layer in neighborhoods}
    if discard:
        evidence = {layer: discard_evidence(each, invalid) for layer, each in evidence.items()}
    assessment = Assessment(
        classes=NAMES,
        belief_codes=belief,
        scores=scores,
        evidence=evidence,
        neighborhoods=neighborhoods,
        invalid=invalid,
        movements={layer: Movement(1.0 + i) for i, layer in enumerate(neighborhoods)},
        knowable=None if seed % 3 else (0, 2),  # now and then a class is never IK
    )
    y_true = np.where(rng.random(n) < 0.7, NAMES[belief], rng.choice([*NAMES, "yak"], size=n))
    return assessment, y_true


@pytest.fixture(name="random_assessment", scope="session")  # so that hypothesis may use it
def fixture_random_assessment():
    return random_assessment
