"""How likely each sample is right, on the page: its value, and beside the truth a diagram."""

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.calibration import calibration_curve
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from iknow import EpistemicClassifier, evaluate
from iknow.report import make_report
from iknow.report.page import summarise

X, y = load_digits(return_X_y=True)
X = X / 16


@pytest.fixture(scope="module")
def tuned():
    model = LogisticRegression(max_iter=300).fit(X[:600], y[:600])
    ec = EpistemicClassifier(FrozenEstimator(model), progress=False).fit(X[:600], y[:600])
    return ec.tune(X[600:1200], y[600:1200], coverage=0.8)


def test_without_labels_the_summary_estimates_the_accuracy(tuned):
    a = tuned.assess(X[1200:])
    found = evaluate(a)
    told = summarise(a, None)[-1]
    assert f"estimated at {100 * found.accuracy:.1f}%, between" in told
    assert f"{100 * found.unseen:.1f}% are unlike anything seen before" in told
    with_labels = " ".join(summarise(a, evaluate(a, y[1200:])))
    assert "estimated" not in with_labels
    tuned_without = EpistemicClassifier(tuned.model, progress=False).fit(X[:600], y[:600])
    bare = tuned_without.tune(X[600:1200], coverage=0.8).assess(X[1200:])
    assert summarise(bare, None)[-1].endswith("nothing is said about accuracy.")


@pytest.mark.slow  # a browser
def test_the_diagram_is_that_of_scikit_learn(tuned, open_page):
    asked = X[1200:].copy()
    asked[7] = np.nan  # no answer: neither right nor wrong
    a = tuned.assess(asked)
    page = open_page(make_report(a, y[1200:]))
    drawn = page.run("return Reliability.binned(Report.page.evidence)")
    p, right = (each[a.answered] for each in (a.probability, a.belief == y[1200:]))
    p = p.astype(np.float32)
    share, likely = calibration_curve(right, p, n_bins=10)
    np.testing.assert_allclose([each["likely"] for each in drawn], likely, rtol=1e-6)
    np.testing.assert_allclose([each["right"] for each in drawn], share)
    assert sum(each["n"] for each in drawn) == len(y[1200:]) - 1
    for each in drawn:
        n_right = round(each["right"] * each["n"])
        low, high = binomtest(n_right, each["n"]).proportion_ci(method="wilson")
        assert (each["low"], each["high"]) == pytest.approx((low, high), abs=1e-4)
    assert not page.run("return document.getElementById('reliability').hidden")
    assert len(page.browser.find_elements("css selector", "#stairs circle")) == len(drawn)
    assert f"{100 * p.mean():.1f}% likely right, {100 * right.mean():.1f}% are" in page.text(
        "#stairs"
    )
    for width in (390, 1280):
        page.resize(width, 900)
        assert page.run("return document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow  # a browser
def test_a_sample_tells_how_likely_it_is_right_and_the_least_likely_come_first_if_wanted(
    tuned, open_page
):
    a = tuned.assess(X[1200:])
    page = open_page(make_report(a, selection=tuned.selection_))
    assert page.run("return document.getElementById('reliability').hidden")  # nobody knows
    page.run("Report.page.order('probability')")
    page.settle()
    first = int(np.argmin(a.probability.astype(np.float32)))
    page.run("Report.page.choose(arguments[0])", first)
    detail = page.text("#detail dl.facts")
    assert f"likely right{100 * a.probability[first]:.1f}%" in detail
    assert page.rows()[0][0].strip("#").split()[0] == str(first)


@pytest.mark.slow  # a browser
def test_without_probabilities_the_page_says_nothing_of_them(assessed, open_page):
    assessment, y_true = assessed()
    page = open_page(make_report(assessment, y_true))
    assert page.run("return document.getElementById('reliability').hidden")
    assert "likely right" not in page.text("#detail")
    assert "least likely right" not in page.text("#filters")
