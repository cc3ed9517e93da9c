"""The bounds of coded rows hold for exact distances, computed with fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iknow.search.disk import scanning
from iknow.search.disk.coding import encode
from iknow.search.disk.hunt import Hunt
from iknow.search.disk.scanning import Finds, Loaded


def exact_squared(a, b):
    return sum((Fraction(float(x)) - Fraction(float(y))) ** 2 for x, y in zip(a, b, strict=True))


def loaded(rows):
    coded = encode(rows[None])
    ends, zero = np.array([0, len(rows)]), np.zeros(1, dtype=np.int64)
    return Loaded(coded.codes[0], ends, zero, zero, *coded[1:])


@pytest.mark.parametrize("compiled", [True, False])
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1e-41, 1e-6, 1.0, 1e30]),
    away=st.sampled_from([0.0, 1e-7, 1.0, 1e5, 1e8]),
    spread=st.sampled_from([0.0, 1e-6, 1.0]),
)
def test_bounds_enclose_every_distance(compiled, seed, scale, away, spread):
    rng = np.random.default_rng(seed)
    n_features = int(rng.integers(1, 20))
    place = rng.standard_normal(n_features)
    rows = scale * (place + spread * rng.standard_normal((5, n_features)))
    query = scale * (place + away * rng.standard_normal((1, n_features)))
    rows, query = rows.astype(np.float32), query.astype(np.float32)
    finds, hunt = Finds(5), Hunt(np.ones((1, 1), dtype=bool), 5)
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(scanning, "is_compiled", lambda: False)
        pairs = np.zeros((1, 2), dtype=np.int64)
        assert scanning.scan(loaded(rows), query, pairs, 0, hunt, finds) == 1
    assert int(finds.count[0]) == 5  # nothing limits the search
    exact = [exact_squared(row, query[0]) for row in rows[finds.pairs[:5, 1]]]
    for low, squared in zip(finds.bounds[:5], exact, strict=True):
        assert low <= 0 or Fraction(float(low)) ** 2 <= squared
    for high, squared in zip(hunt.upper[0, 0], sorted(exact), strict=True):
        assert Fraction(float(high)) ** 2 >= squared


def test_codes_are_close():
    rows = np.random.default_rng(0).standard_normal((3, 200, 16)).astype(np.float32)
    coded = encode(rows)
    back = coded.centers[:, None] + coded.units[:, None, None] * coded.codes
    away = np.linalg.norm(back - rows, axis=2).max(axis=1)
    assert (away <= coded.errors).all()
    assert (coded.errors < coded.radii / 60).all()
