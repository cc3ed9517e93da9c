"""The accuracy of samples without labels: a mean, an interval, and what it takes for granted."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from iknow import Assertion, EpistemicClassifier, evaluate
from iknow.errors import InputError
from iknow.evaluation import Estimate, Evaluation

X, y = load_digits(return_X_y=True)
X = X / 16


@pytest.fixture(scope="module")
def tuned():
    model = LogisticRegression(max_iter=300).fit(X[:600], y[:600])
    ec = EpistemicClassifier(FrozenEstimator(model), progress=False).fit(X[:600], y[:600])
    return ec.tune(X[600:1200], y[600:1200])


def test_without_labels_the_mean_probability_is_the_accuracy(tuned):
    a = tuned.assess(X[1200:])
    found = evaluate(a)
    assert isinstance(found, Estimate)
    assert found.accuracy == pytest.approx(a.probability.mean())
    known = a.assertion == Assertion.IK
    assert found.of(Assertion.IK)[0] == pytest.approx(a.probability[known].mean())
    low, high = found.interval
    assert low < found.accuracy < high
    truth = evaluate(a, y[1200:])
    assert isinstance(truth, Evaluation)
    assert low <= truth.overall_accuracy <= high
    assert found.counts.tolist() == truth.counts.tolist()
    assert found.counts.sum() == found.n_samples == len(a)


def test_labels_that_came_with_the_samples_are_taken(tuned):
    import torch

    loader = torch.utils.data.TensorDataset(torch.tensor(X[1200:1300]), torch.tensor(y[1200:1300]))
    assert isinstance(evaluate(tuned.assess(loader)), Evaluation)


@pytest.mark.parametrize("cut", [1, 100, 596])
def test_parts_add_up_to_the_whole(tuned, cut):
    asked = X[1200:].copy()
    asked[::50] = np.nan
    a = tuned.assess(asked)
    assert (~a.answered).sum() == 12
    merged = evaluate(a[:cut]) + evaluate(a[cut:])
    whole = evaluate(a)
    assert str(merged) == str(whole)
    assert "no answer: 12" in str(whole)
    np.testing.assert_array_equal(merged.tally, whole.tally)
    assert whole.accuracy == pytest.approx(np.nanmean(a.probability))


def test_it_says_how_much_resembles_nothing_and_is_unsure_there(tuned):
    ordinary, strange = X[1200:1400], 1 - X[1200:1400]
    usual = evaluate(tuned.assess(ordinary))
    mixed = evaluate(tuned.assess(np.concatenate([ordinary, strange])))
    assert usual.unseen < 0.05
    assert mixed.unseen > 0.45
    assert f"unlike anything seen before: {100 * mixed.unseen:.1f}%" in str(mixed)
    width = [high - low for low, high in (usual.interval, mixed.interval)]
    assert width[1] > 0.7 > 0.2 > width[0]
    assert mixed.accuracy < usual.accuracy - 0.2


def test_it_prints_as_text_and_as_a_card(tuned):
    found = evaluate(tuned.assess(X[1200:]))
    text = str(found)
    assert "597 samples without labels, estimated accuracy 9" in text
    assert [line.split()[0] for line in text.splitlines()[3:6]] == ["IK", "IMK", "IDK"]
    assert "600 labeled samples" in text
    card = found._repr_html_()
    assert "estimated accuracy" in card
    assert "unlike anything seen before" in card


def test_without_labels_at_tune_there_is_no_estimate(tuned):
    ec = EpistemicClassifier(tuned.model, progress=False).fit(X[:600], y[:600])
    a = ec.tune(X[600:1200], coverage=0.8).assess(X[1200:])
    with pytest.raises(InputError, match="only if tune had labels"):
        evaluate(a)
