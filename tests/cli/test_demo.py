"""The demonstration shows what the paper describes, on every run of the same seed."""

from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from iknow import Assertion, Reason
from iknow.cli.demo import LEVELS, UNSEEN, _explained, demonstrate, make_digits
from iknow.errors import InputError


@pytest.fixture(scope="module")
def demonstration():
    return demonstrate(left_out=4, random_state=0)


def test_all_methods_are_set_to_about_the_same_coverage(demonstration):
    clean = [outcomes["clean"].coverage for outcomes in demonstration.outcomes.values()]
    assert max(clean) - min(clean) < 0.06


def test_the_ball_knows_almost_nothing_of_large_noise_where_softmax_keeps_most(demonstration):
    outcomes = demonstration.outcomes
    assert outcomes["Ball"]["large noise"].coverage < 0.02
    assert outcomes["BallWithNearest"]["large noise"].coverage < 0.02
    assert outcomes["softmax"]["large noise"].coverage > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("left_out", [0, 8])
def test_the_effect_is_not_that_of_one_seed_or_digit(left_out, seed):
    outcomes = demonstrate(left_out, seed).outcomes
    assert outcomes["Ball"]["large noise"].coverage < 0.02
    assert outcomes[LEVELS]["large noise"].coverage < 0.02
    assert outcomes[LEVELS][UNSEEN].coverage < outcomes["softmax"][UNSEEN].coverage * 0.6
    assert outcomes["softmax"]["large noise"].coverage > 0.5


def test_levels_stand_behind_the_fewest_answers_that_cannot_be_right(demonstration):
    outcomes = demonstration.outcomes
    assert outcomes[LEVELS]["large noise"].coverage < 0.02
    unseen = {method: each[UNSEEN].coverage for method, each in outcomes.items()}
    assert min(unseen, key=unseen.get) == LEVELS
    assert unseen[LEVELS] < unseen["softmax"] / 10


def test_what_is_known_on_clean_data_is_right_more_often_than_the_model(demonstration):
    for outcomes in demonstration.outcomes.values():
        assert outcomes["clean"].accuracy > demonstration.model_accuracy


def test_nobody_is_right_about_the_unseen_digit(demonstration):
    for outcomes in demonstration.outcomes.values():
        assert outcomes[UNSEEN].accuracy == 0 or np.isnan(outcomes[UNSEEN].accuracy)


def test_one_example_of_each_assertion_is_explained(demonstration):
    explanations = [example.explanation for example in demonstration.examples]
    assert [e.assertion for e in explanations] == [Assertion.IK, Assertion.IMK, Assertion.IDK]
    assert explanations[0].reason == Reason.KNOWN
    for example in demonstration.examples:
        layer = example.explanation.layers[0]
        assert layer.samples_for[0].label == example.explanation.belief
        assert layer.samples_against[0].label != example.explanation.belief
        assert [image.shape for image in example.images.values()] == [(64,)] * 3
    least = demonstration.classifier.selection_.level
    levels = [example.explanation.level for example in demonstration.examples]
    assert [level >= least for level in levels] == [True, False, False]
    deciding = [example.explanation.deciding.voice for example in demonstration.examples]
    assert deciding[1] in ("clarity", "confidence")
    assert deciding[2] in ("nearness", "familiarity")
    for example in demonstration.examples:
        console = Console(file=StringIO(), width=100)
        console.print(_explained(example))
        said = " ".join(console.file.getvalue().replace("│", " ").split())
        assert " Level " in said
        assert " (IK from " in said
        assert "right with probability 1" not in said
    assert explanations[0].probability > 0.9995
    assert explanations[0].standing.endswith("right with probability over 0.999")


def test_the_left_out_digit_is_nowhere_but_in_the_unseen_condition():
    digits = make_digits(left_out=7, random_state=3)
    assert 7 not in digits.train[1]
    assert 7 not in digits.validation[1]
    for condition, (_, y_true) in digits.conditions.items():
        assert (set(y_true) == {7}) == (condition == UNSEEN)


def test_training_validation_and_test_images_do_not_mix():
    digits = make_digits(left_out=7, random_state=3)
    sizes = [len(digits.train[0]), len(digits.validation[0]), len(digits.conditions["clean"][0])]
    images = np.concatenate([digits.train[0], digits.validation[0], digits.conditions["clean"][0]])
    assert len(np.unique(images, axis=0)) == sum(sizes)


def test_a_digit_that_does_not_exist_is_refused():
    with pytest.raises(InputError, match="0 to 9; got 10"):
        make_digits(left_out=10, random_state=0)
