"""A rival that answers wrongly is caught; one that only rounds is not."""

import numpy as np
import pytest

from benchmarks.agreement import FLOAT32, FLOAT64, assertions_differ, distances_differ
from iknow.search.cells import CpuIndex

pytestmark = pytest.mark.slow  # a case is drawn and searched


@pytest.fixture
def distances(case):
    (layer,) = case.layers
    return CpuIndex(layer.points, case.labels, case.n_classes).gather(layer.queries).class_distances


@pytest.fixture
def assertions(case, distances):
    return case.assert_about(slice(None), [distances <= case.layers[0].radius])


@pytest.mark.parametrize("precision", [FLOAT32, FLOAT64])
def test_the_same_answer_agrees(case, distances, assertions, precision):
    layer = case.layers[0]
    assert distances_differ(layer, distances, distances.copy(), precision) is None
    assert assertions_differ(case, [distances], assertions, assertions.copy(), precision) is None


def test_rounding_is_forgiven_to_float32_alone(case, distances):
    rounded = distances * (1 + 5e-4)
    assert distances_differ(case.layers[0], distances, rounded, FLOAT32) is None
    assert "differs in" in distances_differ(case.layers[0], distances, rounded, FLOAT64)


def test_one_wrong_distance_is_caught(case, distances):
    wrong = distances.copy()
    wrong[7, 1] *= 1.05
    reason = distances_differ(case.layers[0], distances, wrong, FLOAT32)
    assert reason is not None
    assert reason.startswith(f"its answer differs in 1 of {distances.size}")


def test_classes_in_another_order_are_caught(case, distances):
    assert distances_differ(case.layers[0], distances, distances[:, ::-1], FLOAT32) is not None


def test_squared_distances_are_caught(case, distances):
    assert distances_differ(case.layers[0], distances, distances**2, FLOAT32) is not None


def test_a_class_without_rows_is_infinitely_far_for_both(case, distances):
    ours, theirs = distances.copy(), distances.copy()
    ours[:, 0] = theirs[:, 0] = np.inf
    assert distances_differ(case.layers[0], ours, theirs, FLOAT32) is None
    theirs[3, 0] = 1.0
    assert distances_differ(case.layers[0], ours, theirs, FLOAT32) is not None


def test_nan_and_a_wrong_shape_are_caught(case, distances, assertions):
    broken = distances.copy()
    broken[0, 0] = np.nan
    assert distances_differ(case.layers[0], distances, broken, FLOAT32) is not None
    assert "shape" in distances_differ(case.layers[0], distances, distances[:, :1], FLOAT32)
    assert "shape" in assertions_differ(case, [distances], assertions, assertions[:3], FLOAT32)


@pytest.mark.parametrize("precision", [FLOAT32, FLOAT64])
def test_one_wrong_assertion_is_caught(case, distances, assertions, precision):
    clear = np.abs(distances - case.layers[0].radius).min(axis=1).argmax()
    wrong = assertions.copy()
    wrong[clear] = (wrong[clear] + 1) % 3
    reason = assertions_differ(case, [distances], assertions, wrong, precision)
    assert reason is not None
    assert f"1 of {len(assertions)}" in reason


def test_an_assertion_on_the_edge_is_forgiven_to_float32_alone(case, distances, assertions):
    edge = distances.copy()
    edge[4, 2] = case.layers[0].radius * (1 + 1e-4)
    wrong = assertions.copy()
    wrong[4] = (wrong[4] + 1) % 3
    assert assertions_differ(case, [edge], assertions, wrong, FLOAT32) is None
    assert assertions_differ(case, [edge], assertions, wrong, FLOAT64) is not None
