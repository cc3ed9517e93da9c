"""Outcomes that were made up, for the tests of what is done with outcomes."""

import pytest

from reproduction.methods import METHODS
from reproduction.protocol import Cell, Outcome
from reproduction.setups import find_setup
from reproduction.tables import METRICS, Key, load_published


def make_outcome(name, seed=0, change=lambda key, value: value):
    """A complete outcome: the published values, 0.5 where there are none, and then changed."""
    setup, published = find_setup(name), load_published()
    last = "large" if setup.attack is None else "adversarial"
    conditions = ("nominal", "gaussian", "uniform", last)
    keys = [
        Key(setup.published, layers, method, perturbation, metric)
        for perturbation in conditions
        for layers in ("two", "logit")
        for method in METHODS
        for metric in METRICS
    ]
    cells = [Cell(*key[1:], change(key, published.get(key, 0.5))) for key in keys]
    chosen = {"coverage": 0.75, "radii": {"logits": 0.5}, "k": 3 + seed, "threshold": 0.9}
    facts = {
        "epochs": 10 + seed,
        "validation_accuracy": 0.97,
        "accuracy": dict.fromkeys(conditions, 0.9),
        "chosen": {"two": chosen, "logit": dict(chosen)},
    }
    return Outcome(name, seed, cells, facts)


@pytest.fixture
def outcome_of():
    """make_outcome(name, seed=0, change=...), see there."""
    return make_outcome
