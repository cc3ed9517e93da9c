"""Streams without drift, of several shapes, and the alarm's share of false alarms on them."""

import numpy as np
from scipy.stats import binom

from iknow.selection.watch import Watch
from iknow.serve.monitor.drift import DriftAlarm

LAYERS = ("input", "hidden")
ONCE_IN_A_MILLION = 1e-6


SHAPES = {  # number of reference samples, shares of the classes, possible levels
    "continuous": (300, [0.5, 0.3, 0.2], None),
    "few levels": (300, [0.5, 0.3, 0.2], [0.0, 0.5, 1.0]),
    "tiny reference": (20, [0.5, 0.3, 0.2], None),
    "no reference": (0, [0.5, 0.3, 0.2], None),
    "rare classes": (100, [0.97, 0.02, 0.01], None),
}


def draw(rng, n, shares, at=None, power=1.0):
    """n ordinary samples: levels, which depend on the class as they do, beliefs, layer levels.

    at: the only values that levels have.
    """
    belief, layers = rng.choice(len(shares), n, p=shares), rng.random((n, 2)) ** power
    layers **= 1 + belief[:, None]
    if at is not None:
        layers = np.asarray(at)[(layers * len(at)).astype(int)]
    return layers.min(axis=1), belief, layers


def make_alarm(rng, shape, rate, n_stream):
    """An alarm and a stream that is exchangeable with its reference."""
    n, shares, at = SHAPES[shape]
    level, belief, layers = draw(rng, n + n_stream, shares, at, rng.choice([0.5, 1, 3]))
    watch = Watch(level[:n], layers[:n], belief[:n], LAYERS) if n else None
    alarm = DriftAlarm(watch, range(len(shares)), LAYERS, rate, seed=int(rng.integers(2**31)))
    return alarm, (level[n:], belief[n:], layers[n:])


def is_at_most(count, n, rate):
    """Whether so many of n are what a probability of at most `rate` gives, but for one in a
    million.
    """
    return binom.sf(count - 1, n, rate) > ONCE_IN_A_MILLION
