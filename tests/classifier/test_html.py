"""A classifier in a notebook."""

import re

import sklearn
from sklearn.datasets import load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_html_repr

from iknow import Ball, EpistemicClassifier
from iknow.cards import COLORS
from iknow.core.assertion import Assertion
from iknow.models import PrecomputedModel
from tests.markup import Page
from tests.storage.test_saved_levels import make_classifier, make_outputs

X, Y = load_iris(return_X_y=True)


def read(classifier):
    """The words of a card, without the parameters that fold away."""
    shown = (classifier._repr_html_(), classifier._repr_mimebundle_()["text/html"])
    one, other = (re.sub(r"<details.*</details>", "", each, flags=re.DOTALL) for each in shown)
    assert one == other
    return re.sub(r"\s+", " ", Page(one).words)


def test_a_tuned_classifier_says_what_was_chosen_and_what_is_promised():
    classifier = make_classifier(accuracy=0.98)
    words = read(classifier)
    assert repr(classifier.memory) in words
    for layer, rule in classifier.neighborhoods_.items():
        assert layer in words
        assert repr(rule) in words
    for sentence in classifier.selection_.sentences():
        assert sentence in words
    assert COLORS[Assertion.IK] in classifier._repr_html_().partition(">")[0]


def test_one_that_is_not_tuned_says_so():
    untuned = EpistemicClassifier(PrecomputedModel()).fit(*make_outputs(60, 0))
    assert "Memory of 60 samples in layers 'noise', 'a'" in read(untuned)
    assert "Not tuned yet: call tune" in read(untuned)
    fixed = EpistemicClassifier(PrecomputedModel(), rule=Ball(1)).fit(*make_outputs(60, 0))
    assert "Nothing is guaranteed: the neighborhoods were given" in read(fixed)


def test_its_parameters_fold_away_in_scikit_learns_diagram():
    model = make_pipeline(StandardScaler(), LogisticRegression())
    fitted = EpistemicClassifier(model, progress=False).fit(X, Y)
    details = re.search(r"<details>.*</details>", fitted._repr_html_(), flags=re.DOTALL)[0]
    for name in ("sk-top-container", "StandardScaler", "validation_fraction"):
        assert name in details


def test_an_unfitted_one_is_drawn_by_scikit_learn():
    unfitted = EpistemicClassifier(LogisticRegression())
    plain = re.sub(r"sk-\w*-?id-\d+|\d+", "", unfitted._repr_html_())
    assert plain == re.sub(r"sk-\w*-?id-\d+|\d+", "", estimator_html_repr(unfitted))


def test_text_is_shown_where_scikit_learn_is_told_to():
    fitted = EpistemicClassifier(FrozenEstimator(LogisticRegression(max_iter=500).fit(X, Y))).fit(
        X, Y
    )
    with sklearn.config_context(display="text"):
        assert not hasattr(fitted, "_repr_html_")
        assert set(fitted._repr_mimebundle_()) == {"text/plain"}


def test_layers_are_escaped():
    (scores, layers), y = make_outputs(60, 0)
    inputs = (scores, {"<i>layer</i>": layers["a"]})
    fitted = EpistemicClassifier(PrecomputedModel(), rule=Ball(1)).fit(inputs, y)
    assert "<i>layer</i>" in read(fitted)
