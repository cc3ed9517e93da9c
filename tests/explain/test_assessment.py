"""Assessment: the columns, their agreement with each other, and other neighborhoods."""

import json
from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest

from iknow.core.assertion import Assertion, Reason
from iknow.errors import InputError
from iknow.explain.assessment import Assessment
from iknow.explain.later import Later
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest

IK, IMK, IDK = Assertion.IK, Assertion.IMK, Assertion.IDK


def test_beliefs_are_labels(assessment):
    assert assessment.belief.tolist() == ["cat", "dog", "dog", "cat", "owl", "cat"]
    assert assessment.belief.dtype == assessment.classes.dtype


def test_each_prediction_has_its_assertion_and_reason(assessment):
    assert assessment.assertion.tolist() == [IK, IMK, IMK, IDK, IDK, IDK]
    assert assessment.reason.tolist() == list(Reason)[:6]


def test_what_is_not_knowable_is_never_ik_under_any_neighborhoods(assessment):
    believed = int(assessment.belief_codes[0])
    withheld = replace(assessment, knowable=[code for code in range(3) if code != believed])
    expected = [Reason.UNCERTIFIED, *list(Reason)[1:6]]
    assert withheld.reason.tolist() == expected
    assert withheld.assertion.tolist() == [IMK, IMK, IMK, IDK, IDK, IDK]
    assert withheld.margin[0] == -np.inf
    assert withheld.stability.at_least[0] == 0
    assert withheld.supports.keys() == assessment.supports.keys()
    for other in (withheld.under(withheld.neighborhoods), withheld[:], withheld.only(["hidden"])):
        assert other.assertion[0] == IMK
    for radius in (0.1, 0.5, 1.0, 1.5, 2.0, 3.0):
        tried = withheld.under({"hidden": Ball(radius), "logits": Ball(radius)})
        assert not (tried.assertion[tried.belief_codes == believed] == IK).any()
    explanation = withheld.explain(0)
    assert explanation.reason == Reason.UNCERTIFIED
    assert "beliefs in this class have no certified accuracy" in str(explanation)
    turns = [t for layer in explanation.layers for t in (layer.slack.shrink, layer.slack.grow) if t]
    assert turns
    assert all(turn.becomes == IDK for turn in turns)


def test_supports_are_kept_by_layer(assessment):
    hidden, logits = assessment.supports["hidden"], assessment.supports["logits"]
    assert list(assessment.supports) == ["hidden", "logits"]
    assert hidden[:3].tolist() == [[True, False, False], [True, True, False], [False, True, False]]
    assert logits[:3].tolist() == [[True, False, False], [False, True, False], [True, False, False]]


def test_a_justification_joins_the_layers(assessment):
    assert [np.flatnonzero(row).tolist() for row in assessment.justification] == [
        [0],
        [0, 1],
        [0, 1],
        [],
        [0],
        [],
    ]


@pytest.mark.parametrize(
    "rule", [Ball(1e9), Nearest(2), BallElseNearest(1, 2), BallWithNearest(1e9, 2)], ids=repr
)
def test_an_invalid_sample_is_idk_under_every_rule(rule, assessment):
    other = assessment.under({"hidden": rule, "logits": rule})
    assert (other.assertion[-1], other.reason[-1]) == (IDK, Reason.INVALID)
    assert Reason.INVALID not in other.reason[:-1]
    assert other.assertion[0] == (IK if rule == BallElseNearest(1, 2) else IMK)


def test_the_repr_counts_the_assertions(assessment):
    assert repr(assessment) == "Assessment of 6 predictions: IK 1, IMK 2, IDK 3"


def test_other_neighborhoods_decide_otherwise_from_the_same_evidence(assessment):
    other = assessment.under({"hidden": Nearest(1), "logits": Nearest(1)})
    assert other.evidence is assessment.evidence
    assert other.assertion.tolist() == [IK, IMK, IMK, IK, IDK, IDK]
    assert assessment.assertion.tolist() == [IK, IMK, IMK, IDK, IDK, IDK]


@pytest.mark.parametrize(
    "neighborhoods",
    [
        {"hidden": Ball(5), "logits": Ball(3)},
        {"logits": Nearest(2), "hidden": BallElseNearest(0.5, 1)},
        {"hidden": BallWithNearest(1, 2), "logits": Ball(5)},
    ],
)
def test_under_equals_a_fresh_assessment(neighborhoods, assessment):
    assert assessment.assertion.shape == (6,)  # columns found earlier must not be carried over
    other = assessment.under(neighborhoods)
    fresh = Assessment(
        classes=assessment.classes,
        belief_codes=assessment.belief_codes,
        scores=assessment.scores,
        evidence=assessment.evidence,
        neighborhoods=neighborhoods,
        invalid=assessment.invalid,
    )
    assert other.neighborhoods == neighborhoods
    np.testing.assert_array_equal(other.belief, fresh.belief)
    np.testing.assert_array_equal(other.scores, fresh.scores)
    np.testing.assert_array_equal(other.justification, fresh.justification)
    np.testing.assert_array_equal(other.assertion, fresh.assertion)
    np.testing.assert_array_equal(other.reason, fresh.reason)
    assert (other.justification != assessment.justification).any()


@pytest.mark.parametrize(
    ("layers", "shown"),
    [
        (["hidden"], "'hidden'$"),
        (["hidden", "output"], "'hidden', 'output'$"),
        (["hidden", "logits", "output"], "'hidden', 'logits', 'output'$"),
        ([], "none$"),
    ],
)
def test_neighborhoods_for_the_wrong_layers_are_refused(layers, shown, assessment):
    message = f"needed for the layers 'hidden', 'logits'; got them for {shown}"
    with pytest.raises(InputError, match=message):
        assessment.under(dict.fromkeys(layers, Ball(1)))


def test_supports_that_were_decided_are_taken_but_not_of_invalid_samples(assessment, decisions_of):
    decided, everything = decisions_of(assessment), np.ones((6, 3), dtype=bool)
    swapped = {layer: replace(decided[layer], support=everything) for layer in ("logits", "hidden")}
    other = replace(assessment, decisions=swapped)
    assert list(other.supports) == ["hidden", "logits"]
    assert other.assertion.tolist() == [IMK] * 5 + [IDK]
    assert other.reason.tolist() == [Reason.OVERLAP] * 5 + [Reason.INVALID]
    assert other.under(assessment.neighborhoods).reason.tolist() == list(Reason)[:6]


@pytest.mark.parametrize("i", [6, -7, 100])
def test_explaining_a_sample_that_does_not_exist_is_refused(i, assessment):
    message = rf"i must be .* the position of one of the 6 samples; got {i}"
    with pytest.raises(InputError, match=message):
        assessment.explain(i)


def test_a_negative_index_explains_from_the_end(assessment):
    for i in range(6):
        assert assessment.explain(i - 6) == assessment.explain(i)
        assert assessment.explain(i).index == i


def test_an_explanation_repeats_the_assessment(assessment):
    explained = [assessment.explain(i) for i in range(6)]
    assert [explanation.belief for explanation in explained] == assessment.belief.tolist()
    assert [explanation.assertion for explanation in explained] == assessment.assertion.tolist()
    assert [explanation.reason for explanation in explained] == assessment.reason.tolist()


def test_a_slice_is_the_assessment_of_some_samples(assessment):
    part = assessment[1:4]
    assert len(part) == 3
    for name in ("belief", "assertion", "reason", "margin"):
        assert getattr(part, name).tolist() == getattr(assessment, name)[1:4].tolist()
    assert part.stability.at_least.tolist() == assessment.stability.at_least[1:4].tolist()


PICKED = [
    0,
    -1,
    np.int64(2),
    [3, 1, 1, -6],
    [],
    np.array([5, 0], dtype=np.uint8),
    [True, False, True, False, False, True],
    np.zeros(6, dtype=bool),
    slice(None, None, -2),
]


@pytest.mark.parametrize("samples", PICKED, ids=repr)
def test_samples_are_picked_as_numpy_picks_them(samples, assessment, decisions_of):
    part = replace(assessment, decisions=decisions_of(assessment))[samples]
    expected = np.atleast_1d(np.arange(6)[samples]).astype(int)
    assert len(part) == len(expected)
    for name in ("belief", "assertion", "reason", "margin", "scores", "justification"):
        assert getattr(part, name).tolist() == getattr(assessment, name)[expected].tolist()
    assert part.stability.at_least.tolist() == assessment.stability.at_least[expected].tolist()


def test_it_is_iterated_sample_by_sample(assessment):
    assert [len(one) for one in assessment] == [1] * 6
    assert [one.reason[0] for one in assessment] == list(assessment.reason)


def test_evidence_is_gathered_about_the_picked_samples_alone(assessment, decisions_of):
    asked = []

    def gather(layer, positions):
        asked.append((layer, positions.tolist()))
        return assessment.evidence[layer][positions]

    lazy = replace(
        assessment,
        evidence=Later(assessment.evidence, gather, np.arange(6)),
        decisions=decisions_of(assessment),
    )
    part = lazy[lazy.assertion == Assertion.IMK]
    json.dumps(part.to_dict()), part.to_frame(), part._repr_html_(), repr(part)
    assert asked == []
    assert part[-1].margin.tolist() == assessment.margin[2:3].tolist()
    assert asked == [("hidden", [2]), ("logits", [2])]


def test_some_of_the_layers_decide_as_if_there_were_no_others(assessment, decisions_of):
    alone = assessment.only(["logits"])
    assert list(alone.evidence) == ["logits"]
    assert alone.supports["logits"].tolist() == assessment.supports["logits"].tolist()
    assert alone.assertion.tolist() == [2, 2, 0, 0, 0, 0]
    decided = replace(assessment, decisions=decisions_of(assessment)).only(["logits"])
    assert decided.assertion.tolist() == alone.assertion.tolist()


@pytest.mark.parametrize(("layers", "said"), [(["relu", "logits"], "'relu'"), ([], "none")])
def test_layers_without_evidence_are_refused(layers, said, assessment):
    with pytest.raises(InputError, match=f"layers 'hidden', 'logits'; asked for {said}"):
        assessment.only(layers)


@pytest.fixture
def silent(evidence_from):
    """Three samples near the last class; about the second the model says nothing."""
    return Assessment(
        classes=np.array([30, 10, 20]),
        belief_codes=np.array([2, -1, 0]),
        scores=np.array([[0.1, 0.2, 0.7], [np.nan] * 3, [0.8, 0.1, 0.1]]),
        evidence={"a": evidence_from([[9, 8, 1]] * 3, n_neighbors=3)},
        neighborhoods={"a": Ball(2.0)},
        invalid=np.array([False, True, False]),
    )


def test_a_belief_that_is_absent_is_none_and_never_the_last_class(silent):
    assert silent.answered.tolist() == [True, False, True]
    assert silent.belief.tolist() == [20, None, 30]
    assert silent.belief.dtype == object
    assert silent[:1].belief.dtype.kind == "i"
    assert silent.assertion.tolist() == [Assertion.IK, Assertion.IDK, Assertion.IDK]
    assert silent.reason.tolist()[1] == Reason.INVALID
    assert silent.margin[1] == -np.inf
    assert silent.stability.at_least.tolist()[1] == 0
    assert silent.robust_radius[1] == 0
    explanation = silent.explain(1)
    assert explanation.belief is None
    assert not explanation.layers[0].samples_for
    assert str(explanation).startswith("sample 1: IDK, no belief")
    assert "belief <b>none</b>" in explanation._repr_html_()


def test_a_sample_without_belief_must_be_invalid(silent):
    with pytest.raises(InputError, match="without belief must be invalid; row 1"):
        replace(silent, invalid=np.zeros(3, dtype=bool))


@pytest.mark.parametrize(
    "samples",
    [None, "a", True, 0.5, (0, 1), [0.5], [[0], [1]], [[0], [1, 2]], np.zeros((2, 2), int), {0},
     slice("a", None), slice(0.5), slice(None, None, 0)],
    ids=repr,
)  # fmt: skip
def test_what_picks_no_samples_is_refused(samples, assessment):
    with pytest.raises(InputError, match="picked by a position, a slice, positions or a mask"):
        assessment[samples]


@pytest.mark.parametrize(
    "samples", [6, -7, [0, 6], [-7], 10**5000, np.uint64(2**64 - 1)], ids=lambda s: type(s).__name__
)
def test_a_sample_that_does_not_exist_is_refused(samples, assessment):
    for held in (assessment, assessment[:0]):
        with pytest.raises(InputError, match=r"picked by a position.*: .*(bounds|large|indices)"):
            held[samples]


def test_a_mask_of_another_length_is_refused(assessment):
    with pytest.raises(InputError, match=r"size of axis is 6 but size of .* is 5"):
        assessment[np.ones(5, dtype=bool)]


ODD = datetime(2026, 1, 2)
JSON_LABELS = [
    (np.array(["<a>", "\ud800", ""]), ["<a>", "\ud800", ""]),
    (np.array([1, 2**62, -3]), [1, 2**62, -3]),
    (np.array([True, False, True]), [True, False, True]),
    (np.array([0.5, np.nan, np.inf], dtype=np.float32), [0.5, "nan", "inf"]),
    (np.array([b"a", b"\xff", b""]), ["b'a'", "b'\\xff'", "b''"]),
    (np.array(["2026-01-02"] * 3, dtype="M8[ns]"), ["2026-01-02T00:00:00.000000000"] * 3),
    (np.array([None, np.int8(3), ODD], dtype=object), [None, 3, str(ODD)]),
    (np.array([1j, 2, 3]), ["1j", "(2+0j)", "(3+0j)"]),
]


@pytest.mark.parametrize(("classes", "labels"), JSON_LABELS, ids=lambda given: str(given)[:30])
def test_to_dict_has_only_what_json_has(classes, labels, assessment):
    scores = np.array([[np.nan] * 3, [0, np.inf, 0], *np.eye(3)[[1, 0, 2, 0]]], dtype=np.float32)
    codes = np.array([0, 1, 1, 0, 2, -1])
    odd = replace(assessment, classes=classes, scores=scores, belief_codes=codes)
    record = odd.to_dict()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record == {
        "classes": labels,
        "belief": [labels[0], labels[1], labels[1], labels[0], labels[2], None],
        "score": [None, None, 1.0, 1.0, 1.0, None],
        "assertion": ["IK", "IMK", "IMK", "IDK", "IDK", "IDK"],
        "reason": [reason.name for reason in assessment.reason],
        "justified": [[label for label, m in zip(labels, row, strict=True) if m]
                      for row in assessment.justification],
    }  # fmt: skip


def test_a_frame_has_a_row_for_each_sample_and_names_in_order(assessment):
    frame = replace(assessment, belief_codes=np.array([0, 1, 1, 0, 2, -1])).to_frame()
    assert frame["belief"].tolist()[:5] == ["cat", "dog", "dog", "cat", "owl"]
    assert frame["belief"].isna().tolist() == [False] * 5 + [True]
    assert frame["assertion"].tolist() == ["IK", "IMK", "IMK", "IDK", "IDK", "IDK"]
    assert (frame["assertion"] >= "IMK").tolist() == [True] * 3 + [False] * 3
    assert frame["reason"].tolist() == [reason.name for reason in assessment.reason]
    assert frame["justified"].tolist() == ["cat", "cat|dog", "cat|dog", "", "cat", ""]
    assert frame["score"].tolist()[:5] == [1.0] * 5
    assert np.isnan(frame["score"][5])
    assert len(assessment[:0].to_frame()) == 0


def test_answers_keep_the_index_of_the_frame_that_held_the_samples(assessment):
    pd = pytest.importorskip("pandas")
    index = pd.Index(["f", "e", "d", "c", "b", "a"])
    a = replace(assessment, index=index)
    assert list(a.to_frame().index) == list("fedcba")
    X = pd.DataFrame({"x": range(6)}, index=index).sort_index()
    joined = X.join(a.to_frame())
    assert joined["reason"].tolist() == [str(reason) for reason in a.reason[::-1]]
    assert list(a[[4, 0]].to_frame().index) == ["b", "f"]
    assert list(a[1:3].index) == ["e", "d"]


def test_without_pandas_a_frame_names_what_is_missing(run_without):
    code = """
import numpy as np, iknow
evidence = {"a": iknow.Evidence(np.zeros((0, 2)), np.zeros((0, 0)), np.zeros((0, 2), int))}
about = np.zeros(0, int), np.zeros((0, 2)), evidence, {"a": iknow.Ball(1.0)}, np.zeros(0, bool)
a = iknow.Assessment(np.arange(2), *about)
try:
    a.to_frame()
except iknow.errors.MissingExtraError as error:
    print(error)
"""
    assert "pip install 'iknow[pandas]'" in run_without(["pandas"], code)


@pytest.mark.parametrize("i", [None, True, 0.5, "0", np.array(0), [0], np.zeros(3)], ids=repr)
def test_the_position_of_an_explanation_is_a_whole_number(i, assessment):
    with pytest.raises(InputError, match="i must be a whole number"):
        assessment.explain(i)


@pytest.mark.parametrize("given", [None, Ball(1.0), [Ball(1.0)], "hidden", np.ones(2)], ids=repr)
def test_other_neighborhoods_are_given_by_layer(given, assessment):
    with pytest.raises(InputError, match="must be given by layer"):
        assessment.under(given)


@pytest.mark.parametrize("given", [None, 1.0, Ball, "Ball"], ids=repr)
def test_other_neighborhoods_are_neighborhoods(given, assessment):
    with pytest.raises(InputError, match="rule of layer 'logits' must be one such as"):
        assessment.under({"hidden": Ball(1.0), "logits": given})


@pytest.mark.parametrize("layers", [None, 1, {"absent"}, [["hidden"]], np.ones((2, 2)), b"hidden"])
def test_single_layers_are_asked_for_by_their_names(layers, assessment):
    with pytest.raises(InputError, match="there is evidence for the layers 'hidden', 'logits'"):
        assessment.only(layers)


def test_a_single_layer_may_be_named_alone(assessment):
    assert list(assessment.only("logits").supports) == ["logits"]
