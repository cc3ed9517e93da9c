"""Tallies of parts add up to the report on the whole, with labels nobody knows and no answers."""

import numpy as np
import pytest

from iknow import Ball, EpistemicClassifier, evaluate
from iknow.models import PrecomputedModel


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize("cut", [1, 17, 59])
def test_parts_add_up_to_the_whole(as_text, cut):
    rng = np.random.default_rng(cut)
    labels = np.array(["a", "b", "c"]) if as_text else np.array([3, 5, 9])
    others = np.array(["x", "longer"]) if as_text else np.array([-1, 7])
    scores, layer = rng.normal(size=(60, 3)), rng.normal(size=(60, 2))
    y = labels[np.arange(60) % 3]
    classifier = EpistemicClassifier(
        PrecomputedModel(), rule=Ball(0.4), classes=labels, progress=False
    )
    classifier.fit((scores, {"layer": layer}), y)
    asked = rng.normal(size=(60, 3))
    asked[::7] = np.nan
    assessment = classifier.assess((asked, {"layer": rng.normal(size=(60, 2))}))
    y_true = np.where(rng.random(60) < 0.3, rng.choice(others, 60), rng.choice(labels, 60))
    whole = evaluate(assessment, y_true)
    parts = [evaluate(assessment[rows], y_true[rows]) for rows in (slice(cut), slice(cut, None))]
    merged = parts[0] + parts[1]
    assert merged.to_dict() == whole.to_dict()
    assert str(merged) == str(whole)
    np.testing.assert_array_equal(merged.pairs, whole.pairs)
    assert merged.n_samples == 60
