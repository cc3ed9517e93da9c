"""What the page shows of features and texts, in a browser."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from iknow import EpistemicClassifier, RelativeBall, make_report

pytestmark = pytest.mark.filterwarnings("ignore:no layer has a known Lipschitz")


def test_the_features_that_matter_come_first_and_differences_are_marked(open_page):
    rng = np.random.default_rng(0)
    n = 600
    people = pd.DataFrame({
        "age": rng.normal(40, 12, n).round(), "hours": rng.normal(40, 9, n).round(),
        "work": pd.Categorical(rng.choice(["private", "state"], n)),
    })  # fmt: skip
    y = np.where(people.age + 10 * (people.work == "state") > 45, "rich", "poor")
    model = HistGradientBoostingClassifier(max_iter=20).fit(people[:300], y[:300])
    ec = EpistemicClassifier(model, ["table"], quorum=3, progress=False).fit(people[:300], y[:300])
    ec.tune(people[300:500], y[300:500], coverage=0.8)
    asked = people[500:]
    a = ec.assess(asked, k=20)
    page = open_page(make_report(a, y[500:], samples=asked, training=people[:300]))
    for i in range(0, 100, 11):
        page.run("Report.page.choose(arguments[0])", i)
        layer = a.explain(i).layers[0]
        rows = page.run(
            "return [...document.querySelectorAll('.features tbody tr')].map((row) =>"
            " [...row.children].map((cell) => [cell.textContent, cell.querySelector('b') !== null,"
            " getComputedStyle(cell).textAlign]))"
        )
        expected = sorted(layer.features, key=lambda each: -each.share)
        assert [row[0][0] for row in rows][: len(expected)] == [each.feature for each in expected]
        for row, each in zip(rows, expected, strict=False):
            assert row[4][0] == f"{each.share:.1%}"
            own, last = each.values[2], each.values[-1]
            assert [cell[1] for cell in row[1:4]] == [False, own != each.value, last != each.value]
            side = "left" if isinstance(each.value, str) else "right"
            assert row[1][2] == row[2][2] == side


def test_texts_are_shown_in_full_width_with_the_words_that_matter(open_page):
    rng = np.random.default_rng(1)
    words = {"sport": "goal match team coach cup", "space": "orbit rocket moon star engine"}
    labels = rng.choice(list(words), 300)
    texts = [" ".join(rng.choice(words[label].split(), 4)) for label in labels]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts[:200], labels[:200])
    ec = EpistemicClassifier(model, quorum=3, progress=False).fit(texts[:200], labels[:200])
    ec.tune(texts[200:250], labels[200:250], coverage=0.8)
    asked = ["goal rocket moon cup", *texts[250:]]
    a = ec.assess(asked, k=20)
    page = open_page(make_report(a, samples=asked, training=texts))
    page.run("Report.page.choose(0)")
    layer = a.explain(0).layers[0]
    shown = page.text("#detail .texts")
    rows = layer.samples_for[-1].row, layer.samples_against[-1].row
    for text in (asked[0], *(texts[row] for row in rows)):
        assert text in shown
    wide = page.run("return document.querySelector('.texts dd').getBoundingClientRect().width")
    assert wide > 300
    told = f"Of the distance to #{rows[0]}: "
    assert told in page.text("#detail")
    assert f"{told}{max(layer.features, key=lambda each: each.share).feature} " in page.text(
        "#detail"
    )


def test_that_something_like_it_must_have_been_seen_is_said(open_page, assessed):
    rules = {"hidden": RelativeBall(0.8, 1.5, seen=1.25), "logits": RelativeBall(0.8, 1.5)}
    assessment, y_true = assessed(n=60, rules=rules, n_neighbors=10)
    said = open_page(make_report(assessment, y_true)).text("#controls")
    words = "something like it must have been seen, the tenth nearest sample of any class within"
    assert f"Layer hidden: {words} 1.25." in said
    assert f"Layer logits: {words}" not in said


def test_a_dataset_shows_its_pictures(open_page, assessed):
    torch = pytest.importorskip("torch")
    assessment, y_true = assessed(n=60)
    images = torch.rand(80, 4, 4)
    training = torch.utils.data.TensorDataset(images, torch.zeros(80))
    page = open_page(make_report(assessment, y_true, training=training))
    page.run("Report.page.choose(0)")
    assert page.run("return document.querySelectorAll('#detail canvas.picture').length") >= 2
    assert "tensor" not in page.text("#detail")
