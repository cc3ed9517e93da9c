"""Intervals against comparisons that are made anew for every draw of seeds."""

import numpy as np
import pytest

from reproduction import uncertainty
from reproduction.agreement import compare, measure
from reproduction.uncertainty import resample_seeds, show_interval


def scattered(outcome_of, name, n, spread=0.06):
    """Outcomes around the published values; accuracies over no samples are undefined."""
    rng = np.random.default_rng(n)

    def change(key, value):
        if key.metric == "A_IK" and key.method == "ball" and rng.random() < 0.5:
            return None
        if key.metric == "F_IK" and value < 0.05:
            return float(rng.uniform(0, 0.02))  # counted in some draws
        return float(np.clip(value + rng.normal(0, spread), 0, 1))

    return [outcome_of(name, seed, change) for seed in range(n)]


def plain_shares(experiments, monkeypatch):
    """The shares of close cells, by making the outcomes of each draw and comparing these."""
    drawn = {}
    draw = uncertainty.draw_weights

    def remember(n, rng, resamples):
        weights = draw(n, rng, resamples)
        drawn[len(drawn)] = weights.astype(int)
        return weights

    monkeypatch.setattr(uncertainty, "draw_weights", remember)
    resamples = resample_seeds(experiments)
    shares = []
    for i in range(uncertainty.RESAMPLES):
        counted = []
        for (name, outcomes), weights in zip(experiments, drawn.values(), strict=True):
            again = [o for o, n in zip(outcomes, weights[i], strict=True) for _ in range(n)]
            assert len(again) == len(outcomes)
            counted += [each for each in compare(measure(again, name)) if each.counted]
        shares.append((len(counted), sum(each.is_close for each in counted)))
    return resamples, np.array(shares)


def test_resamples_are_comparisons_of_drawn_seeds(outcome_of, monkeypatch):
    monkeypatch.setattr(uncertainty, "RESAMPLES", 60)
    experiments = [
        (name, scattered(outcome_of, name, n)) for name, n in [("mnist", 3), ("iris", 5)]
    ]
    resamples, expected = plain_shares(experiments, monkeypatch)
    np.testing.assert_array_equal(resamples.counted.sum(axis=1), expected[:, 0])
    np.testing.assert_array_equal(resamples.close.sum(axis=1), expected[:, 1])
    assert len(np.unique(expected[:, 0])) > 1  # which cells count depends on the draw
    shares = expected[:, 1] / expected[:, 0]
    assert resamples.find_interval() == pytest.approx(np.quantile(shares, [0.025, 0.975]))


def test_the_draws_of_a_dataset_are_its_own(outcome_of):
    iris, mnist = (("iris", scattered(outcome_of, "iris", 4)), ("mnist", [outcome_of("mnist")] * 2))
    alone = resample_seeds([iris])
    again = resample_seeds([iris])
    np.testing.assert_array_equal(alone.close, again.close)
    both = resample_seeds([mnist, iris])
    names = {key.dataset for key in both.keys}
    assert names == {"iris", "mnist"}
    keys = set(alone.keys)
    assert both.find_interval(keys) == alone.find_interval()
    assert both.find_interval({key for key in both.keys if key.dataset == "mnist"}) == (1.0, 1.0)
    low, high = both.find_interval()
    assert alone.find_interval()[0] < low <= high < 1.0


def test_more_seeds_give_a_narrower_interval(outcome_of):
    widths = []
    for n in (3, 30):
        low, high = resample_seeds(
            [("iris", scattered(outcome_of, "iris", n, 0.1))]
        ).find_interval()
        widths.append(high - low)
    assert widths[1] < widths[0]


def test_one_seed_has_no_interval(outcome_of):
    two, one = [outcome_of("iris", seed) for seed in (0, 1)], [outcome_of("mnist")]
    assert resample_seeds([("iris", two)]).find_interval() == (1.0, 1.0)
    for experiments in ([("mnist", one)], [("iris", two), ("mnist", one)], []):
        assert resample_seeds(experiments).find_interval() is None


def test_cells_that_are_not_counted_have_no_interval(outcome_of):
    resamples = resample_seeds([("mnist", [outcome_of("mnist", seed) for seed in (0, 1)])])
    nothing = [
        key
        for key in resamples.keys
        if key[2:] == ("ball", "adversarial", "A_IK")  # over no samples in the paper
    ]
    assert len(nothing) == 2
    assert resamples.find_interval(nothing) is None


def test_an_interval_as_text():
    assert show_interval((0.613, 1.0)) == "61.3% to 100.0%"
    assert show_interval(None) == "–"
