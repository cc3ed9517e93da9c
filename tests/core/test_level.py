"""Levels: a threshold on one number is a rule in every layer, exactly."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from iknow.core.codes import NO_BELIEF
from iknow.core.level import (
    IN_LAYERS,
    NEIGHBORS,
    Levels,
    Voice,
    are_probabilities,
    least_ratio,
    log_odds,
    value_of,
)
from iknow.core.quorum import Contrast
from iknow.errors import InputError
from iknow.selection.levels import candidate_at, find_levels
from iknow.selection.validation import Validation
from tests.oracles import make_levels

# Few values, so that they tie; thirds, so that products round.
few = st.sampled_from([0.0, 1 / 3, 0.5, 1.0, 1.1, 2.0, 3.0, 3.3, math.inf])
# Distances are found between float32 points, so none is subnormal as float64.
any_distance = st.floats(0, width=32, allow_nan=False, allow_subnormal=False)
distances = few | any_distance
confidences = st.sampled_from([-math.inf, -1.0, 0.0, 2.5, math.inf])


@st.composite
def parts(draw, n_layers=2):
    """Samples with two or more layers of contrast, and the model's confidence."""
    n = draw(st.integers(1, 7))
    own, other, tenth = (draw(arrays(float, (n_layers, n), elements=distances)) for _ in range(3))
    evidence = {
        f"layer{i}": Contrast(own[i], other[i], np.tile(tenth[i][:, None], NEIGHBORS))
        for i in range(n_layers)
    }
    confidence = draw(arrays(float, n, elements=confidences))
    return Validation(evidence, np.zeros(n, dtype=np.int64), None, confidence)


budgets = st.sampled_from([1.0, 0.7, 0.5, 1 / 3, 0.2, 0.05])
SPEAKERS = [(f"layer{i}", name) for i in range(2) for name in IN_LAYERS] + [(None, "confidence")]


@st.composite
def choices_of_voices(draw, names=(*IN_LAYERS, "confidence")):
    """The budgets of some voices, at least one of them in a layer; the others stay silent."""
    able = [speaker for speaker in SPEAKERS if speaker[1] in names]
    first = draw(st.sampled_from([speaker for speaker in able if speaker[0] is not None]))
    more = draw(st.lists(st.sampled_from(able), max_size=len(able)))
    return {speaker: draw(budgets) for speaker in (first, *more)}


def path_of(part, chosen):
    """The path that samples fix, with the budgets of these voices."""
    voices = []
    for layer, name in SPEAKERS:
        if (layer, name) in chosen:
            values = part.confidence if layer is None else value_of(name, part.evidence[layer])
            voices.append(Voice(name, layer, np.sort(values), chosen[layer, name]))
    return Levels(tuple(voices))


def level_by_hand(levels, part, i):
    """The definition, one sample and one share at a time."""
    said, n = [1.0], levels.n_samples
    for voice in levels.voices:
        if voice.layer is None:
            value = part.confidence[i]
        else:
            evidence = part.evidence[voice.layer]
            own, other = float(evidence.own[i]), float(evidence.other[i])
            if own == math.inf:
                return 0.0
            value = {
                "nearness": -own,
                "clarity": float(least_ratio(np.array([own]), np.array([other]))[0]),
                "familiarity": -sorted(evidence.neighbor_distances[i])[9],
            }[voice.name]
        said.append(sum(each <= value for each in voice.reference) / n / voice.budget)
    return min(said)


@given(parts(), parts(), choices_of_voices())
def test_a_level_is_the_smallest_share_over_all_voices(reference, part, chosen):
    levels = path_of(reference, chosen)
    expected = [level_by_hand(levels, part, i) for i in range(len(part))]
    np.testing.assert_array_equal(find_levels(levels, part), expected)


@settings(max_examples=300)
@given(parts(), parts(), choices_of_voices(), st.floats(0, 1, exclude_min=True))
def test_the_samples_at_a_level_or_above_are_those_its_rules_make_ik(
    reference, part, chosen, other_level
):
    """At any level: those of samples, where ties decide, and those in between."""
    levels = path_of(reference, chosen)
    found = find_levels(levels, part)
    on_the_path = find_levels(levels, reference)
    for level in {*found, *on_the_path, 1.0, other_level} - {0.0}:
        known = candidate_at(levels, float(level)).find_known(part)
        np.testing.assert_array_equal(known, found >= level)


def ball_by_hand(setting, own, other, tenth):
    """Whether a relative ball makes a sample IK, by its definition."""
    near = own <= setting["radius"] and own < math.inf and tenth <= setting["seen"]
    reached = setting["ratio"] > 0 and float(setting["ratio"]) * float(own) >= other < math.inf
    return near and not reached


@given(parts(), parts(), choices_of_voices(), st.floats(0, 1, exclude_min=True))
def test_settings_say_what_the_definition_of_the_rule_says(reference, part, chosen, level):
    """Without the rule's code: its three conditions in every layer, and the least confidence."""
    levels = path_of(reference, chosen)
    found, (by_layer, least) = find_levels(levels, part), levels.at(level)
    for i in range(len(part)):
        layers = ((by_layer[each], part.evidence[each]) for each in levels.layers)
        known = part.confidence[i] >= least and all(
            ball_by_hand(setting, each.own[i], each.other[i], each.neighbor_distances[i, 9])
            for setting, each in layers
        )
        assert known == (found[i] >= level)


@given(
    parts(),
    choices_of_voices(),
    st.lists(st.floats(0, 1, exclude_min=True), min_size=2, max_size=6),
)
def test_settings_only_tighten_as_the_level_grows(reference, chosen, several):
    levels = path_of(reference, chosen)
    path = [levels.at(level) for level in sorted(several)]
    for (settings_then, least), (stricter, higher) in pairwise(path):
        assert least <= higher
        for layer, setting in settings_then.items():
            assert setting["radius"] >= stricter[layer]["radius"]
            assert setting["ratio"] <= stricter[layer]["ratio"]
            assert setting["seen"] >= stricter[layer]["seen"]


def test_a_silent_voice_asks_for_nothing():
    part = Validation(
        {"layer0": Contrast(np.array([1.0, 2.0]), np.array([0.5, 0.0]), np.full((2, 10), 3.0))},
        np.zeros(2, dtype=np.int64),
        None,
        np.array([0.0, 1.0]),
    )
    path = path_of(part, {("layer0", "familiarity"): 0.5})
    assert path.at(1.0) == (
        {"layer0": {"radius": math.inf, "ratio": 0.0, "seen": 3.0}},
        -math.inf,
    )
    path = path_of(part, {("layer0", "nearness"): 1.0, (None, "confidence"): 1.0})
    assert path.at(1.0) == ({"layer0": {"radius": 1.0, "ratio": 0.0, "seen": math.inf}}, 1.0)


@given(parts(), parts(), choices_of_voices(), st.integers(-20, 20))
def test_the_unit_of_a_layer_does_not_matter(reference, part, chosen, exponent):
    """Powers of two, so that scaling is exact; they neither overflow nor become subnormal."""

    def scaled(samples):
        first = samples.evidence["layer0"]
        columns = first.own, first.other, first.neighbor_distances
        large = Contrast(*(np.ldexp(each, exponent) for each in columns))
        return Validation(
            {**samples.evidence, "layer0": large}, samples.belief, None, samples.confidence
        )

    plain = find_levels(path_of(reference, chosen), part)
    rescaled = find_levels(path_of(scaled(reference), chosen), scaled(part))
    np.testing.assert_array_equal(plain, rescaled)


@given(parts(), parts(), choices_of_voices(("nearness", "familiarity", "confidence")))
def test_all_but_clarity_count_by_rank_alone(reference, part, chosen):
    """Any monotone change of the distances, where clarity is no voice."""

    def bent(samples):
        evidence = {
            layer: Contrast(np.sqrt(each.own) + 3, each.other, np.sqrt(each.neighbor_distances) + 3)
            for layer, each in samples.evidence.items()
        }
        return Validation(evidence, samples.belief, None, np.arctan(samples.confidence))

    # The square root may make two distances one that were not.
    layers = [each for p in (reference, part) for each in p.evidence.values()]
    every = [each.own for each in layers] + [each.neighbor_distances[:, 0] for each in layers]
    whole = np.unique(np.concatenate(every))
    assume(len(np.unique(np.sqrt(whole) + 3)) == len(whole))
    plain = find_levels(path_of(reference, chosen), part)
    changed = find_levels(path_of(bent(reference), chosen), bent(part))
    np.testing.assert_array_equal(plain, changed)


@given(distances, distances)
def test_the_least_ratio_reaches_the_other_class_and_none_below_does(own, other):
    ratio = float(least_ratio(np.array([own]), np.array([other]))[0])
    if other == math.inf:
        assert ratio == math.inf
    elif other == 0 or own == math.inf:
        assert ratio == 0
    elif own == 0:
        assert ratio == math.inf
    else:
        assert ratio * own >= other
        below = float(np.nextafter(ratio, 0))
        assert below == 0 or below * own < other


def test_a_class_without_samples_is_never_ik_and_of_a_contradiction_on_the_spot_the_rank_says():
    own, other = np.array([math.inf, 1.0, 1.0]), np.array([1.0, 0.0, 0.5])
    contrast = Contrast(own, other, np.empty((3, 0)))
    for ratios, expected in (([0.0, 0.0], [0, 1, 1]), ([0.0, 0.1], [0, 0.5, 1]), ([1, 2], [0] * 3)):
        levels = make_levels({"only": ([1.0, math.inf], ratios)})
        np.testing.assert_array_equal(levels.ranks({"only": contrast}, None).min(axis=1), expected)


def test_voices_are_named_in_the_order_of_what_they_say():
    part = Validation(
        {"layer0": Contrast(np.array([1.0, 2.0]), np.array([4.0, 4.0]), np.full((2, 10), 5.0))},
        np.zeros(2, dtype=np.int64),
        None,
        np.array([3.0, 5.0]),
    )
    levels = path_of(part, {s: 1.0 for s in SPEAKERS if s[0] != "layer1"})
    assert list(map(str, levels.voices)) == [
        "nearness in layer0",
        "clarity in layer0",
        "familiarity in layer0",
        "confidence",
    ]
    said = levels.ranks(part.evidence, part.confidence)
    np.testing.assert_array_equal(said, [[1, 1, 1, 0.5], [0.5, 0.5, 1, 1]])


def one_layer(n=2):
    return {"a": (np.ones(n), np.ones(n))}


def test_a_path_needs_reference_samples_the_same_in_every_layer():
    with pytest.raises(InputError, match=r"at least one reference sample.*got \[0\]"):
        make_levels(one_layer(0))
    with pytest.raises(InputError, match=r"the same ones for every voice; got \[2, 3\]"):
        make_levels({**one_layer(2), "b": one_layer(3)["a"]})
    with pytest.raises(InputError, match=r"the same ones for every voice; got \[2, 3\]"):
        make_levels(one_layer(2), confidence=np.ones(3))


@pytest.mark.parametrize("budget", [0.0, -1.0, 1.5, math.nan])
def test_a_voice_has_a_budget_above_0_up_to_1(budget):
    with pytest.raises(InputError, match=r"the budget of a voice must lie in \(0, 1\]"):
        Voice("nearness", "a", np.ones(2), budget)


@pytest.mark.parametrize("level", [0.0, -0.5, 1.1, math.nan])
def test_there_are_settings_for_levels_above_0_up_to_1(level):
    with pytest.raises(InputError, match=r"a level must lie in \(0, 1\]"):
        make_levels(one_layer()).at(level)


def test_a_path_that_hears_the_model_needs_its_confidence():
    levels = make_levels(one_layer(), confidence=np.ones(2))
    evidence = {"a": Contrast(np.ones(1), np.ones(1), np.empty((1, 0)))}
    with pytest.raises(InputError, match="the model's confidence is a voice on this path"):
        levels.ranks(evidence, None)


# How sure the model is


def odds_by_hand(row, code, from_probabilities):
    """log(p / (1 - p)) in plain Python."""
    if code == NO_BELIEF or any(map(math.isnan, row)):
        return -math.inf
    if from_probabilities:
        others = math.fsum(each for c, each in enumerate(row) if c != code)
        own = row[code]
        if others == 0:
            return math.inf if own > 0 else -math.inf
        return math.log(own) - math.log(others) if own > 0 else -math.inf
    highest = max(each for c, each in enumerate(row) if c != code)
    terms = (math.exp(each - highest) for c, each in enumerate(row) if c != code)
    return row[code] - highest - math.log(math.fsum(terms))


scores = arrays(
    float,
    st.tuples(st.integers(1, 5), st.integers(2, 4)),
    elements=st.floats(-1e4, 1e4) | st.sampled_from([0.0, 1.0, 700.0, -800.0, math.nan]),
)


@given(scores, st.data())
def test_log_odds_of_logits_are_those_of_a_softmax(logits, data):
    codes = st.integers(0, logits.shape[1] - 1) | st.just(NO_BELIEF)
    belief = data.draw(arrays(np.int64, len(logits), elements=codes))
    expected = [odds_by_hand(*each, False) for each in zip(logits.tolist(), belief, strict=True)]
    found = log_odds(logits, belief, from_probabilities=False)
    single = 2.0**-24  # to which they are rounded
    np.testing.assert_allclose(found, expected, rtol=1.01 * single, atol=1e-9)


@given(scores, st.data())
def test_log_odds_of_probabilities_are_those_of_their_definition(values, data):
    raised = np.exp(np.clip(values, -800, 0))  # some are 0, some tiny
    probabilities = raised / np.maximum(raised.sum(axis=1, keepdims=True), 1e-300)
    belief = data.draw(arrays(np.int64, len(values), elements=st.integers(0, values.shape[1] - 1)))
    rows = zip(probabilities.tolist(), belief, strict=True)
    expected = [odds_by_hand(*each, True) for each in rows]
    found = log_odds(probabilities, belief, from_probabilities=True)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_log_odds_do_not_saturate_where_probabilities_are_1():
    logits = np.array([[40.0, 0.0], [60.0, 0.0], [900.0, 0.0]])
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    assert (raised[:, 0] / raised.sum(axis=1) == 1).all()
    found = log_odds(logits, np.zeros(3, dtype=np.int64), from_probabilities=False)
    np.testing.assert_array_equal(found, [40, 60, 900])


def test_log_odds_of_certain_probabilities_are_infinite_and_never_nan():
    probabilities = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [np.nan, 1.0]])
    found = log_odds(probabilities, np.zeros(4, dtype=np.int64), from_probabilities=True)
    np.testing.assert_array_equal(found, [np.inf, -np.inf, -np.inf, -np.inf])


def test_log_odds_leave_the_scores_as_they_are():
    logits = np.array([[1.0, 2.0]])
    log_odds(logits, np.array([1]), from_probabilities=False)
    np.testing.assert_array_equal(logits, [[1.0, 2.0]])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[0.2, 0.8], [1.0, 0.0]], True),
        ([[0.2, 0.8], [math.nan, math.nan]], True),
        ([[0.3333, 0.3333, 0.3333]], True),
        ([[-0.5, 1.5]], False),
        ([[0.2, 0.8], [0.9, 0.9]], False),
        ([[math.nan, math.nan]], False),
        ([[math.inf, 0.0]], False),
        ([[3.0, -2.0], [0.5, 0.5]], False),
    ],
)
def test_scores_are_probabilities_if_all_that_are_finite_look_so(values, expected):
    assert are_probabilities(np.array(values)) is expected


def test_no_scores_are_no_probabilities():
    assert not are_probabilities(np.empty((0, 3)))
