"""What a classifier tuned for an accuracy says, keeps and forgets."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from iknow import Ball, EpistemicClassifier, Reason
from iknow.cli.fit import show_fit
from iknow.errors import InputError
from iknow.selection import Selection

NAMES = np.array(["cat", "dog", "eel"])


def rare_class_data(n, seed, rare):
    """Two classes that are told apart easily, and a third with so many samples."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    y[:rare] = 2
    return 6.0 * y[:, None] + rng.normal(size=(n, 2)), y


def certified(**options):
    X, y = rare_class_data(400, 0, rare=40)
    model = FrozenEstimator(LogisticRegression().fit(X, NAMES[y]))
    classifier = EpistemicClassifier(model, rule=Ball, progress=False).fit(X, NAMES[y])
    X_val, y_val = rare_class_data(600, 1, rare=3)
    options = {"accuracy": 0.9, "confidence": 0.9, "each_class": True} | options
    return classifier.tune(X_val, NAMES[y_val], **options), model


def test_a_class_without_a_certificate_is_never_known_after_saving_and_loading_either(tmp_path):
    classifier, model = certified()
    selection = classifier.selection_
    assert selection.knowable == (0, 1)
    assert set(selection.certificate.by_class) == {"cat", "dog"}
    X_new, _ = rare_class_data(400, 2, rare=200)
    path = tmp_path / "bundle.iknow"
    classifier.save(path)
    loaded = EpistemicClassifier.load(path, model)
    assert loaded.selection_ == selection
    plain = classifier.assess(X_new)
    for assessment in (
        plain,
        loaded.assess(X_new),
        loaded.assess(X_new, evidence=True),
        plain.under(plain.neighborhoods),
    ):
        of_rare = assessment.belief == "eel"
        assert of_rare.sum() > 150
        reasons = assessment.reason[of_rare].tolist()
        assert Reason.UNCERTIFIED in reasons
        assert Reason.KNOWN not in reasons
        assert (assessment.assertion[~of_rare] == 2).sum() > 100
    # Its samples still speak against other classes: without a certificate nothing else changes.
    free = replace(plain, knowable=None)
    others = free.belief != "eel"
    np.testing.assert_array_equal(free.assertion[others], plain.assertion[others])
    np.testing.assert_array_equal(free.justification, plain.justification)


def test_other_tuning_lets_every_class_be_known_again():
    classifier, _ = certified()
    X_val, y_val = rare_class_data(600, 1, rare=3)
    X_new, _ = rare_class_data(400, 2, rare=200)
    for goal in ({}, {"accuracy": 0.9, "confidence": 0.9}):
        assessment = classifier.tune(X_val, NAMES[y_val], **goal).assess(X_new)
        assert classifier.selection_.knowable is None
        assert Reason.KNOWN in assessment.reason[assessment.belief == "eel"]
        assert Reason.UNCERTIFIED not in assessment.reason


@pytest.mark.filterwarnings("ignore:.*they are another kind of data")
def test_the_split_goes_by_the_random_state():
    X, y = rare_class_data(400, 0, rare=0)
    X_val, y_val = rare_class_data(300, 1, rare=0)
    X_val[:, 1] += np.random.default_rng(0).normal(0, 4, size=300)

    def tuned(random_state):
        model = FrozenEstimator(LogisticRegression().fit(X, y))
        classifier = EpistemicClassifier(model, progress=False, random_state=random_state)
        classifier.fit(X, y).tune(X_val, y_val, accuracy=0.7, confidence=0.7)
        return classifier.selection_

    assert tuned(0) == tuned(0)
    assert tuned(np.random.RandomState(3)) == tuned(3)
    assert len({tuned(seed).certificate.known for seed in range(4)}) > 1
    assert tuned(None).certificate.n_samples == 240


def test_the_command_line_says_whom_a_certificate_is_about(tmp_path):
    console = Console(record=True, width=200, file=io.StringIO())
    classifier, _ = certified()
    show_fit(classifier, tmp_path / "x.iknow", console)
    text = console.export_text()
    assert "480 samples that certify" in text
    assert "each of 2 classes; beliefs in any other are never IK" in text
    assert "ran out of time" not in text
    record = classifier.selection_
    hurried = replace(record, certificate=replace(record.certificate, proven=False))
    classifier.plan_ = replace(classifier.plan_, selection=hurried)
    show_fit(classifier, tmp_path / "x.iknow", console)
    assert "The search ran out of time" in console.export_text()


def test_a_record_keeps_who_may_be_known_and_refuses_what_it_cannot_read():
    selection = certified()[0].selection_
    record = json.loads(json.dumps(selection.to_dict()))
    assert Selection.from_dict(record) == selection
    for odd in ("01", [0, "1"], [0.0], {"0": 1}, [True]):
        with pytest.raises(InputError, match=r"cannot be read: .*knowable"):
            Selection.from_dict({**record, "knowable": odd})


def test_a_certificate_for_each_class_must_say_which_may_be_known():
    record = json.loads(json.dumps(certified()[0].selection_.to_dict()))
    with pytest.raises(InputError, match=r"does not say which classes may be known.*tune again"):
        Selection.from_dict({**record, "knowable": None})
    with pytest.raises(InputError, match=r"does not say which classes may be known"):
        Selection.from_dict({name: value for name, value in record.items() if name != "knowable"})
    with pytest.raises(InputError, match="it differs in 'more'"):
        Selection.from_dict({**record, "more": 1})
