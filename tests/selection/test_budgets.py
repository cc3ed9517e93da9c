"""Budgets of voices: the greedy rule against one written out, sample by sample."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iknow.selection.budgets import (
    GRID,
    LEAST,
    augrc,
    choose_budgets,
    costs_of,
    coverage_at,
    expected_losses,
    find_temperature,
)

LEAD = (None, "confidence")
LAYERS = ("first", "last")
SPEAKERS = [(layer, name) for layer in LAYERS for name in ("nearness", "clarity", "familiarity")]


def place_of(levels, i):
    """From below, and of one level the mean of all places that its samples share."""
    below = sum(each < levels[i] for each in levels)
    return below + (1 + sum(each == levels[i] for each in levels)) / 2


def costs_by_hand(levels, losses):
    n = len(levels)
    return [losses[i] * place_of(levels, i) / n for i in range(n)]


def price_by_hand(levels, losses):
    """The mean over all coverages; of one level each sample costs the mean."""
    n, total = len(levels), 0.0
    ordered = []
    for level in sorted(set(levels), reverse=True):
        costs = [loss for each, loss in zip(levels, losses, strict=True) if each == level]
        ordered += [math.fsum(costs) / len(costs)] * len(costs)
    for count in range(1, n + 1):
        total += math.fsum(ordered[:count]) / n
    return total / n


def coverage_by_hand(levels, losses, risk):
    """Samples of one level are asserted together."""
    able = [0]
    for level in set(levels):
        costs = [loss for each, loss in zip(levels, losses, strict=True) if each >= level]
        if math.fsum(costs) <= risk * len(costs):
            able.append(len(costs))
    return max(able) / len(levels)


def levels_by_hand(ranks, budgets, n):
    voices = [[min(1.0, rank / budget) for rank in ranks[each]] for each, budget in budgets.items()]
    return [min([1.0, *column]) for column in zip(*voices, strict=True)] if voices else [1.0] * n


def budgets_by_hand(ranks, losses, premium, accuracy, chances):
    """The rule as the module states it."""
    n, budgets = len(losses), {}
    risk = 1.0 if accuracy is None else 1 - accuracy

    def costs(more):
        return costs_by_hand(levels_by_hand(ranks, budgets | more, n), losses)

    def coverage(more):
        return coverage_by_hand(levels_by_hand(ranks, budgets | more, n), chances, risk)

    heard = LEAD in ranks
    if heard:
        budgets[LEAD] = 1.0
    else:
        for layer in LAYERS:
            budgets |= {(layer, "nearness"): 1.0, (layer, "clarity"): 1.0}
    alone, covered = costs({}), coverage({}) * (1 - min(premium, 1) / 5)
    price = max(math.fsum(alone) / n, 0.006, 4 / n)

    def affords(speakers, before, share, budget):
        more = dict.fromkeys(speakers, budget)
        dearer = [now - then for now, then in zip(costs(more), before, strict=True)]
        mean = math.fsum(dearer) / n
        # Rounding is nothing that the rule speaks of.
        return mean <= share * premium * price + 1e-12 and coverage(more) >= covered - 1e-12

    for layer in LAYERS:
        speakers, before = [(layer, "familiarity")], costs({})
        able = [budget for budget in GRID if affords(speakers, before, 0.1, budget)]
        budgets[layer, "familiarity"] = max([*able, 0.02])
    for layer in reversed(LAYERS) if heard else ():
        speakers = [(layer, "nearness"), (layer, "clarity")]
        able = [budget for budget in GRID if affords(speakers, alone, 1.0, budget)]
        if able:
            budgets |= dict.fromkeys(speakers, max(able))
    return budgets


def some_ranks(seed, n=24, heard=True, n_ties=None, agree=0.5):
    """Ranks that agree partly with how rarely a sample is wrong, and continuous losses."""
    rng = np.random.default_rng(seed)
    ease = rng.normal(size=n)
    ranks = {}
    for speaker in SPEAKERS + [LEAD] * heard:
        share = rng.random() if agree is None else agree
        values = share * ease + (1 - share) * rng.normal(size=n)
        if n_ties is not None:
            values = np.round(values * n_ties) / n_ties
        ranks[speaker] = np.searchsorted(np.sort(values), values, side="right") / n
    return ranks, rng.random(n) / (1 + np.exp(2 * ease))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.booleans(),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([0.0, 0.01, 0.05, 0.5, 3.0]),
    st.sampled_from([None, 0.7, 0.9, 0.99]),
)
def test_budgets_are_those_of_the_rule_written_out(seed, heard, n_ties, premium, accuracy):
    ranks, losses = some_ranks(seed, heard=heard, n_ties=n_ties, agree=None)
    for chances in (losses, np.random.default_rng(seed).permutation(losses)):
        expected = budgets_by_hand(ranks, losses, premium, accuracy, chances)
        assert choose_budgets(ranks, losses, LAYERS, premium, accuracy, chances) == expected


def test_layers_whose_evidence_holds_too_few_neighbors_have_no_familiarity():
    ranks, losses = some_ranks(1)
    del ranks["first", "familiarity"]
    found = choose_budgets(ranks, losses, LAYERS, 0.05)
    assert ("first", "familiarity") not in found
    assert found["last", "familiarity"] >= LEAST


def test_the_rule_chooses_many_different_budgets():
    """Else the comparison above tells nothing."""
    seen = {"familiarity": set(), "clarity": set()}
    for seed in range(40):
        ranks, losses = some_ranks(seed, n=200, agree=None)
        found = choose_budgets(ranks, losses, LAYERS, 0.05)
        for name in seen:
            seen[name] |= {found.get((layer, name)) for layer in LAYERS}
    assert len(seen["familiarity"]) > 5
    assert len(seen["clarity"]) > 5
    assert None not in seen["familiarity"]


@pytest.mark.parametrize("accuracy", [None, 0.9])
@pytest.mark.parametrize("seed", range(20))
def test_the_premium_is_a_limit_on_the_price_but_for_the_least_of_familiarity(seed, accuracy):
    ranks, losses = some_ranks(seed, n=300, agree=None)
    for premium in (0.0, 0.05, 0.3):
        found = choose_budgets(ranks, losses, LAYERS, premium, accuracy)
        heard = np.minimum.reduce([np.minimum(ranks[each] / b, 1) for each, b in found.items()])
        if any(found[layer, "familiarity"] > LEAST for layer in LAYERS) and len(found) > 3:
            assert augrc(heard, losses) <= augrc(ranks[LEAD], losses) * (1 + premium) + 1e-15


def test_without_a_premium_a_voice_speaks_only_as_far_as_it_costs_nothing():
    n = 400
    order = np.arange(1, n + 1) / n
    losses = np.linspace(1, 0, n)
    same = dict.fromkeys([*SPEAKERS, LEAD], order)
    assert set(choose_budgets(same, losses, LAYERS, 0.0).values()) == {1.0}
    opposed = {**dict.fromkeys(SPEAKERS, order[::-1]), LEAD: order}
    found = choose_budgets(opposed, losses, LAYERS, 0.0)
    assert found == {LEAD: 1.0, ("first", "familiarity"): LEAST, ("last", "familiarity"): LEAST}
    knows_better = {**dict.fromkeys(SPEAKERS, order), LEAD: np.ones(n)}
    assert set(choose_budgets(knows_better, losses, LAYERS, 0.0).values()) == {1.0}


@pytest.mark.parametrize("heard", [True, False])
def test_a_premium_beyond_all_prices_lets_every_voice_speak_fully(heard):
    ranks, losses = some_ranks(0, heard=heard)
    assert set(choose_budgets(ranks, losses, LAYERS, 1e9).values()) == {1.0}
    assert set(choose_budgets(ranks, losses, LAYERS, 1e9)) == set(ranks)


def test_without_the_models_confidence_the_layers_say_what_a_sample_is():
    ranks, losses = some_ranks(3, heard=False)
    found = choose_budgets(ranks, losses, LAYERS, 0.0)
    for layer in LAYERS:
        assert found[layer, "nearness"] == found[layer, "clarity"] == 1.0
        assert found[layer, "familiarity"] >= LEAST


@pytest.mark.parametrize("premium", [0.0, 0.05, 1.0])
def test_an_accuracy_to_certify_limits_what_voices_cost_in_coverage(premium):
    lower = 0
    for seed in range(20):
        ranks, losses = some_ranks(seed, n=300, agree=None)
        covered = coverage_at(ranks[LEAD], losses, 0.1)
        found = choose_budgets(ranks, losses, LAYERS, premium, 0.9)
        if min(found[layer, "familiarity"] for layer in LAYERS) > LEAST:
            heard = np.minimum.reduce([ranks[each] / budget for each, budget in found.items()])
            assert coverage_at(heard, losses, 0.1) >= covered * (1 - min(premium, 1) / 5)
        lower += found != choose_budgets(ranks, losses, LAYERS, premium)
    assert lower > 0


samples = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.sampled_from([0.0, 0.1, 0.5, 1.0])),
    min_size=1,
    max_size=12,
)


@given(samples, st.sampled_from([0.05, 0.2, 0.45, 1.0]))
def test_price_and_coverage_are_those_of_their_definitions(drawn, risk):
    levels, losses = map(np.array, zip(*drawn, strict=True))
    assert augrc(levels, losses) == pytest.approx(price_by_hand(levels, losses))
    np.testing.assert_allclose(costs_of(levels, losses), costs_by_hand(levels, losses))
    # Where a mean is the risk exactly, rounding may decide either way.
    near = {coverage_by_hand(levels, losses, risk + nudge) for nudge in (-1e-9, 1e-9)}
    assert min(near) <= coverage_at(levels, losses, risk) <= max(near)


def test_a_sample_costs_half_its_error_and_half_what_the_model_expects():
    rng = np.random.default_rng(0)
    confidence = rng.normal(2, 2, size=300)
    wrong = rng.random(300) < 1 / (1 + np.exp(confidence / 1.7))
    assert expected_losses(None, None, 3).tolist() == [1, 1, 1]
    assert expected_losses(None, np.array([True, False]), 2).tolist() == [1, 0]
    np.testing.assert_allclose(
        expected_losses(confidence, None, 300), 1 / (1 + np.exp(confidence)), rtol=1e-12
    )
    # The temperature by trying many.
    tried = np.exp(np.linspace(-3, 3, 6001))
    signs = np.where(wrong, 1.0, -1.0)
    surprise = [np.log1p(np.exp(signs * confidence / each)).mean() for each in tried]
    best = tried[int(np.argmin(surprise))]
    assert find_temperature(confidence, wrong) == pytest.approx(best, rel=2e-3)
    np.testing.assert_allclose(
        expected_losses(confidence, wrong, 300),
        (wrong + 1 / (1 + np.exp(confidence / best))) / 2,
        atol=1e-3,
    )


@pytest.mark.parametrize("odds", [np.inf, -np.inf])
def test_certain_scores_cost_0_or_1_and_never_nan(odds):
    confidence, wrong = np.full(4, odds), np.array([True, False, False, False])
    assert find_temperature(confidence, wrong) == 1.0
    chance = 0.0 if odds > 0 else 1.0
    np.testing.assert_array_equal(expected_losses(confidence, wrong, 4), (wrong + chance) / 2)
