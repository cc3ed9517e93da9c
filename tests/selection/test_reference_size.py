"""A path of levels is laid by a bounded number of samples, drawn without looking at them."""

import numpy as np

from iknow.core.quorum import Contrast
from iknow.selection import levels as choosing
from iknow.selection.validation import Validation


def make_part(n):
    rng = np.random.default_rng(0)
    own, other = np.sort(rng.exponential(size=n)), rng.exponential(size=n)
    belief = np.arange(n) % 2
    tenth = np.minimum(own, other)[:, None]
    contrast = Contrast(own, other, np.tile(tenth, 10))
    return Validation({"a": contrast, "b": contrast}, belief, None, confidence=own)


def lay(part):
    """With a premium that lets every voice speak fully."""
    return choosing.lay_path(part, premium=1000.0)


def test_more_reference_samples_than_a_bundle_holds_are_drawn_at_random(monkeypatch):
    part = make_part(5_000)
    whole = lay(part)
    assert whole.n_samples == 5_000
    monkeypatch.setattr(choosing, "MOST_REFERENCES", 500)
    drawn = lay(part)
    assert drawn.n_samples == 500
    # The same samples in every layer and for the model.
    references = [voice.reference for voice in drawn.voices]
    near, clear, seen, _, other_clear, other_seen, confidence = references
    np.testing.assert_array_equal(-near[::-1], confidence)
    np.testing.assert_array_equal(clear, other_clear)
    np.testing.assert_array_equal(seen, other_seen)
    # Not the nearest, nor every tenth: ranks differ from the true ones by chance alone.
    gap = np.abs(choosing.find_levels(drawn, part) - choosing.find_levels(whole, part)).max()
    assert 0 < gap < 1.63 / np.sqrt(500)  # Kolmogorov's bound at 99%


def test_matching_a_coverage_is_as_exact_with_fewer_reference_samples(monkeypatch):
    part = make_part(5_000)
    monkeypatch.setattr(choosing, "MOST_REFERENCES", 2_000)
    chosen = choosing.match_level(part, part, 0.6, premium=0.05)
    assert abs(chosen.coverage - 0.6) < 0.01
    np.testing.assert_array_equal(
        choosing.candidate_at(chosen.levels, chosen.level).find_known(part),
        choosing.find_levels(chosen.levels, part) >= chosen.level,
    )
