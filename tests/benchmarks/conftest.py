"""A small case and made-up results, for the tests of what is done with them."""

import numpy as np
import pytest

from benchmarks.records import (
    ASSERTION,
    BALL_TREE,
    CELLS,
    CLASS_DISTANCES,
    DENSE,
    EXTRA_MEMORY,
    FAISS,
    LOAD,
    MEDIAN_LATENCY,
    PRODUCTS,
    SKLEARN,
    WITH_FEW,
    WITH_NEIGHBORS,
    CaseFacts,
    LeftOut,
    Quantity,
    Results,
    Timing,
)
from benchmarks.synthetic import Shape, make_case


@pytest.fixture(scope="session")
def case():
    return make_case("small", Shape(400, 6, 3, 50))


def timing(case, task, contestant, us_per_query):
    """A timing of 100 queries whose best round is the given one, and whose others are worse."""
    seconds = us_per_query * 100 / 1e6
    return Timing(case, task, contestant, 100, (3 * seconds, seconds, 2 * seconds))


def good_results():
    """Results that meet every target, some of them just so."""
    layers = {"mnist, relu2": 32, "mnist, logits": 10, "synthetic, 10 classes": 64}
    timings = []
    for name in layers:
        timings += [
            timing(name, CLASS_DISTANCES, PRODUCTS, 8.0),
            timing(name, CLASS_DISTANCES, DENSE, 10.0),  # 1.25 times
            timing(name, CLASS_DISTANCES, SKLEARN, 30.0),
            timing(name, CLASS_DISTANCES, FAISS, 40.0),
            timing(name, WITH_NEIGHBORS, DENSE, 20.0),
            timing(name, WITH_FEW, DENSE, 15.0),
        ]
    for name in ("mnist", "synthetic, 10 classes"):
        timings += [
            timing(name, ASSERTION, PRODUCTS, 9.0),
            timing(name, ASSERTION, DENSE, 30.0),
            timing(name, ASSERTION, CELLS, 10.0),
            timing(name, ASSERTION, SKLEARN, 30.0),
            timing(name, ASSERTION, FAISS, 35.0),
        ]
    curves = {"rows 1,000": (1_000, 64), "rows 100,000": (100_000, 64)}
    curves |= {"features 2": (5_000, 2), "features 128": (5_000, 128)}
    for name, (n, d) in curves.items():
        cost = 1e-3 * n * d
        timings += [
            timing(name, ASSERTION, PRODUCTS, cost),
            timing(name, ASSERTION, DENSE, 1.5 * cost),
            timing(name, ASSERTION, CELLS, 2 * np.sqrt(cost)),
            timing(name, ASSERTION, BALL_TREE, 20 * cost),
        ]
    facts = {"assertions": {"IK": 0.7, "IMK": 0.2, "IDK": 0.1}}
    return Results(
        version="9.9",
        quick=False,
        repeats=3,
        machine={"processor": "an abacus", "cores": "2"},
        cases=(
            CaseFacts("mnist", "digits", 50_000, 10, 100, {"relu2": 32, "logits": 10}, facts),
            CaseFacts("synthetic, 10 classes", "", 1_000_000, 10, 100, {"layer": 64}, facts),
            *(CaseFacts(name, "", n, 10, 100, {"layer": d}) for name, (n, d) in curves.items()),
        ),
        timings=tuple(timings),
        quantities=(
            Quantity("memory", "1,000,000 × 64", EXTRA_MEMORY, DENSE, 256.0, "MiB"),
            Quantity("latency", "mnist", MEDIAN_LATENCY, DENSE, 1500.0, "µs", "1,000 queries"),
            Quantity("latency", "mnist", MEDIAN_LATENCY, CELLS, 900.0, "µs", "1,000 queries"),
            Quantity("bundle", "1,000,000 × 64", LOAD, "iknow", 3.2, "ms"),
        ),
        left_out=(LeftOut("pixels", "all", "all", "no room | on the shelf"),),
    )


@pytest.fixture
def results():
    return good_results()
