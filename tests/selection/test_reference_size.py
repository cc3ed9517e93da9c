"""A path of levels is laid by a bounded number of samples, drawn without looking at them."""

import numpy as np

from iknow.core.quorum import Contrast
from iknow.selection import levels as choosing
from iknow.selection.validation import Validation


def make_part(n):
    rng = np.random.default_rng(0)
    own, other = np.sort(rng.exponential(size=n)), rng.exponential(size=n)
    belief = np.arange(n) % 2
    contrast = Contrast(own, other, np.minimum(own, other)[:, None])
    return Validation({"a": contrast, "b": contrast}, belief, None, confidence=own)


def test_more_reference_samples_than_a_bundle_holds_are_drawn_at_random(monkeypatch):
    part = make_part(5_000)
    whole = choosing.lay_path(part, ["a", "b"], confident=True)
    assert whole.n_samples == 5_000
    monkeypatch.setattr(choosing, "MOST_REFERENCES", 500)
    drawn = choosing.lay_path(part, ["a", "b"], confident=True)
    assert drawn.n_samples == 500
    # The same samples in every layer and for the model.
    near, clear, _, other_clear, confidence = (voice.reference for voice in drawn.voices)
    np.testing.assert_array_equal(-near[::-1], confidence)
    np.testing.assert_array_equal(clear, other_clear)
    # Not the nearest, nor every tenth: ranks differ from the true ones by chance alone.
    gap = np.abs(choosing.find_levels(drawn, part) - choosing.find_levels(whole, part)).max()
    assert 0 < gap < 1.63 / np.sqrt(500)  # Kolmogorov's bound at 99%


def test_matching_a_coverage_is_as_exact_with_fewer_reference_samples(monkeypatch):
    part = make_part(5_000)
    monkeypatch.setattr(choosing, "MOST_REFERENCES", 2_000)
    chosen = choosing.match_level(part, part, 0.6)
    assert abs(chosen.coverage - 0.6) < 0.01
    np.testing.assert_array_equal(
        choosing.candidate_at(chosen.levels, chosen.level).find_known(part),
        choosing.find_levels(chosen.levels, part) >= chosen.level,
    )
