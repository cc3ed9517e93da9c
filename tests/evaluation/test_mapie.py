"""MAPIE's certificate beside ours, on the same data."""

import numpy as np
import pytest

from iknow.errors import MissingExtraError
from iknow.evaluation.risk import certify_by_mapie, certify_threshold


def draw(n, seed):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=n)
    return scores, rng.random(n) < 0.4 * np.exp(-np.maximum(scores + 1, 0) * 3)


def test_it_certifies_about_what_we_do():
    pytest.importorskip("mapie")
    scores, wrong = draw(6000, 0)
    how = {"accuracy": 0.95, "confidence": 0.95}
    theirs = certify_by_mapie(scores, wrong, **how)
    ours = certify_threshold(scores, wrong, **how)
    for threshold in (theirs, ours):
        assert 1 - wrong[scores >= threshold].mean() >= 0.95
    assert (scores >= theirs).mean() == pytest.approx((scores >= ours).mean(), abs=0.05)
    assert (scores >= theirs).mean() > 0.5


def test_nothing_to_certify():
    pytest.importorskip("mapie")
    scores, _ = draw(300, 0)
    assert np.isnan(certify_by_mapie(scores, scores < 9, accuracy=0.9, confidence=0.9))


def test_without_mapie_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mapie.risk_control", None)
    with pytest.raises(MissingExtraError, match="compare"):
        certify_by_mapie(*draw(20, 0), accuracy=0.9, confidence=0.9)
