"""Explanations of a service: values of training samples are told only on request of its owner."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from iknow import Client, EpistemicClassifier
from iknow.serve import Settings
from iknow.serve.answers import Portrayer, Wanted, assess
from iknow.serve.bodies import ByteBudget, decode, shape_rows
from tests.serving import serve_in_thread


@pytest.fixture(scope="module")
def of_people():
    rng = np.random.default_rng(0)
    n = 500
    people = pd.DataFrame({
        "age": rng.normal(40, 12, n).round() + 0.25, "work": rng.choice(["private", "state"], n),
    }).astype({"work": "category"})  # fmt: skip
    y = np.where(people.age + 10 * (people.work == "state") > 45, "rich", "poor")
    model = HistGradientBoostingClassifier(max_iter=20).fit(people[:300], y[:300])
    ec = EpistemicClassifier(model, ["table"], progress=False).fit(people[:300], y[:300])
    return ec.tune(people[300:], y[300:], coverage=0.8), people


@pytest.mark.parametrize("shown", [False, True])
def test_values_of_training_samples_are_told_only_if_the_owner_says_so(of_people, shown):
    ec, people = of_people
    asked = people[300:303].assign(work=["private", "Martian", "state"])
    settings = Settings(show_training=shown)
    with serve_in_thread({"people": ec}, settings) as served, Client(served.url) as client:
        answers = client.assess("people", asked.to_dict("records"), explain=True)
        plain = client.assess("people", asked.to_dict("records"))
    assert plain.explanation is None
    explained = ec.assess(asked)
    for i, told in enumerate(answers.explanation):
        explanation = explained.explain(i, samples=asked)
        assert told["sentence"] == explanation.sentence
        (layer,), (said,) = explanation.layers, told["layers"]
        assert [each["row"] for each in said["for"]] == [each.row for each in layer.samples_for]
        for each, feature in zip(said["features"], layer.features, strict=True):
            assert (each["feature"], each["value"]) == (feature.feature, feature.value)
            assert each["share"] == pytest.approx(feature.share, abs=1e-4)
            assert each.get("values") == (list(feature.values) if shown else None)
    assert "work Martian (a category never seen in training)" in answers.explanation[1]["sentence"]


def test_the_page_keeps_no_value_of_an_input_without_a_picture(of_people):
    ec, people = of_people
    asked = people[300:301].assign(work="Martian", age=123.456)
    body = json.dumps({"rows": asked.to_dict("records")}).encode()
    rows = shape_rows(ec, decode(body, "application/json", 9, ByteBudget(1 << 20)))
    answers = assess(ec, Portrayer(), rows, Wanted())
    (portrait,) = answers.portraits
    assert "Martian" not in json.dumps(portrait)
    assert "123.456" not in json.dumps(portrait)
    assert portrait["sentence"].startswith("no training sample of the believed class is near")
