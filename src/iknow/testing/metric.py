"""The contract of a metric, as tests to inherit.

    class TestMyMetric(MetricContract):
        def make_metric(self):
            return MyMetric(...)

Distances are compared with norms in long doubles. `expansion` (or `expansion_at`) and the
roundings, on which robust radii rest, are attacked: activations are drawn, and then moved to where
they come closest to breaking.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.metrics.lipschitz import SMALLEST
from iknow.metrics.metric import Metric, check_promises, metric_from_dict, metric_to_dict

SIZES = (1e-6, 1.0, 1e3, 1e6)
STEPS = 150


class MetricContract:
    """What every metric must do. Inherit, and say how to make one, fitted or not."""

    n_features = 5

    def make_metric(self) -> Metric:
        """A metric for activations of `n_features`; it need not be fitted."""
        raise NotImplementedError

    def test_fitting_is_repeatable_and_changes_nothing_else(self) -> None:
        metric = self.make_metric()
        before, fitted, again = _record(metric), self._fit(metric), self._fit(metric)
        assert _record(metric) == before
        assert (type(fitted), fitted.p) == (type(metric), metric.p)
        assert _record(fitted) == _record(again)
        elsewhere = fitted.fit(7 * self._draw(7, 40, 1.0) ** 3, np.arange(40) % 2)
        assert _record(self._fit(elsewhere)) == _record(fitted)
        points = self._draw(8, 6, 1.0)
        assert fitted.width in (None, np.asarray(fitted.transform(points)).shape[1])

    def test_distances_are_those_of_the_norm_behind_the_transform(self) -> None:
        metric = self._fit()
        assert metric.p >= 1 or metric.p == 0
        for size in SIZES:
            a, b = self._draw(0, 9, size), self._draw(1, 7, size)
            left, right = _long(metric.transform(a)), _long(metric.transform(b))
            assert left.shape == (9, right.shape[1])
            expected = [[float(_norm(x - y, metric.p)) for y in right] for x in left]
            distances = metric.distances(a, b)
            np.testing.assert_allclose(distances, expected, rtol=1e-12)
            np.testing.assert_array_equal(metric.distances(b, a), distances.T)
            assert not metric.distances(a, a).diagonal().any()
            detours = (distances[:, :, None] + metric.distances(b, b)[None]).min(axis=1)
            assert (distances <= detours * (1 + 1e-12)).all()

    def test_a_sample_is_transformed_alike_alone_and_in_a_batch(self) -> None:
        metric, batch = self._fit(), self._draw(2, 8, 1.0)
        together = np.asarray(metric.transform(batch)).astype(np.float64)
        alone = [np.asarray(metric.transform(row[None])).astype(np.float64)[0] for row in batch]
        np.testing.assert_allclose(alone, together, rtol=1e-12, atol=1e-14)

    def test_no_pair_breaks_the_expansion(self) -> None:
        metric = self._fit()
        check_promises(metric)
        points = self._draw(6, 9, 1.0)
        assert (metric.expansion_at(points) <= metric.expansion(self.n_features)).all()
        if np.isinf(metric.expansion_at(points)).all():
            return  # it promises nothing, and has no robust radii
        assert np.isfinite(metric.expansion_at(points)).all()

        def excess(pair: Floats) -> float:
            expansion = metric.expansion_at(pair[:1])[0]
            assert expansion >= 0
            left, right = _long(metric.transform(pair[:1]))[0], _long(metric.transform(pair[1:]))[0]
            apart = _norm(left - right, metric.p)
            noise = 64 * len(left) * 2.0**-53 * (_norm(left, metric.p) + _norm(right, metric.p))
            allowed = expansion * _norm(_long(pair[0]) - _long(pair[1]), 2) * (1 + 1e-12)
            return float((apart - noise - allowed) / max(_norm(_long(pair), 2), SMALLEST))

        self._attack(excess, 2)

    def test_no_activation_breaks_the_rounding(self) -> None:
        metric = self._fit()
        unit = metric.rounding(self.n_features)
        relative = metric.relative_rounding(self.n_features)
        if math.isinf(unit):
            return  # it does not say, and has no robust radii

        def excess(row: Floats) -> float:
            activation = row.astype(np.float32)
            exact = _long(metric.transform(activation.astype(np.float64)))[0]
            stored = np.asarray(metric.transform(activation)).astype(np.float32)
            off, size = _norm(_long(stored)[0] - exact, metric.p), _norm(_long(activation), 2)
            allowed = (unit * size + relative * _norm(exact, metric.p)) * (1 + 1e-12)
            lost = len(exact) * (SMALLEST + 2.0**-52 * _norm(exact, metric.p))
            return float((off - allowed - lost) / max(size, SMALLEST))

        self._attack(excess, 1)

    def test_its_record_and_arrays_make_the_same_metric_again(self) -> None:
        metric = self._fit()
        record = json.loads(json.dumps(metric_to_dict(metric), allow_nan=False))
        arrays = {name: np.array(a, dtype=np.float64) for name, a in metric.arrays().items()}
        again = metric_from_dict(record, arrays)
        assert (type(again), again.p) == (type(metric), metric.p)
        assert _record(again) == _record(metric)
        for size in SIZES:
            points = self._draw(4, 6, size)
            np.testing.assert_array_equal(again.transform(points), metric.transform(points))

    def _fit(self, metric: Metric | None = None) -> Metric:
        """The metric, or a new one, fitted to activations of three classes, the first larger."""
        activations = self._draw(9, 60, 1.0) * np.where(np.arange(60) % 3, 1.0, 20.0)[:, None]
        return (metric or self.make_metric()).fit(activations, np.arange(60) % 3)

    def _draw(self, seed: int, n: int, size: float) -> Floats:
        """Activations of shape (n, n_features): some along axes and diagonals."""
        points = np.random.default_rng(seed).standard_normal((n, self.n_features))
        points[0], points[1] = 1.0, np.eye(self.n_features)[seed % self.n_features]
        return (size * points).astype(np.float32).astype(np.float64)

    def _attack(self, excess: Callable[[Floats], float], n: int) -> None:
        """Nothing found by walking uphill from several starts may exceed what is promised."""
        rng = np.random.default_rng(5)
        for size in SIZES:
            for start in range(4):
                place = self._draw(start, 4, size)[start % 3 : start % 3 + n]
                height = excess(place)
                for step in range(STEPS):
                    other = place + size * 0.5 ** (step / 15) * rng.standard_normal(place.shape)
                    if (found := excess(other)) > height:
                        place, height = other, found
                assert height <= 0, f"broken by {height:.3g} of its size at {place.tolist()}"


def _record(metric: Metric) -> Any:
    bits = {name: np.asarray(values).tobytes() for name, values in metric.arrays().items()}
    return metric.to_dict(), bits


def _long(values: Any) -> Any:
    return np.asarray(values).astype(np.longdouble)


def _norm(values: Any, p: float) -> Any:
    return np.linalg.norm(np.ravel(values), p)  # in long doubles no power of a size overflows
