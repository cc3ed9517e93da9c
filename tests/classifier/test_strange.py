"""What a classifier was never shown is never IK, whatever was asked of `tune`."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from iknow import EpistemicClassifier

GOALS = [{"coverage": c} for c in (0.5, 0.75, 0.9, 1.0)] + [{"accuracy": 0.8}, {"false_alarm": 0.1}]
MOST_IK = 0.01
NUMBERS, NAMES = ["age", "hours", "gain"], ["job", "town", "status"]


def people(rng, n):
    """A census: numbers, one of them mostly 0, and categories that say something of the label."""
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "hours": rng.normal(40, 8, n).round(),
            "gain": np.where(rng.random(n) < 0.9, 0, rng.lognormal(8, 1, n)).round(),
            "job": rng.choice(["clerk", "nurse", "smith", "judge"], n, p=[0.4, 0.3, 0.2, 0.1]),
            "town": rng.choice(["Bern", "Rome", "Oslo"], n),
            "status": rng.choice(["single", "married"], n),
        }
    )
    score = (table.age - 45) / 15 + (table.job == "judge") * 2 + (table.status == "married")
    return table, (score + rng.normal(size=n) > 0.5).to_numpy().astype(int)


def encoded(classifier):
    names = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    return make_pipeline(make_column_transformer((numbers, NUMBERS), (names, NAMES)), classifier)


MODELS = {
    "boosting": lambda: encoded(HistGradientBoostingClassifier(max_iter=40, random_state=0)),
    "forest": lambda: encoded(RandomForestClassifier(40, random_state=0)),
    "linear": lambda: encoded(LogisticRegression()),
}
STRANGE = {
    "Martians": lambda table: table.assign(**dict.fromkeys(NAMES, "Martian")),
    "one unseen category": lambda table: table.assign(town="Olympus Mons"),
    "numbers times ten": lambda table: table.assign(**{c: table[c] * 10 + 500 for c in NUMBERS}),
    "a column gone missing": lambda table: table.assign(hours=np.nan),
    "a category gone missing": lambda table: table.assign(job=None),
}


@pytest.mark.filterwarnings("ignore:the values of column")
@pytest.mark.parametrize("kind", MODELS)
def test_rows_of_a_table_that_are_like_nothing_in_training_are_never_known(kind):
    rng = np.random.default_rng(0)
    (x, y), (x_val, y_val), (x_test, _) = (people(rng, n) for n in (1500, 700, 400))
    model = MODELS[kind]().fit(x, y)
    classifier = EpistemicClassifier(model, progress=False).fit(x, y)
    assert classifier.layers_[0] == "table"
    for goal in GOALS:
        classifier.tune(x_val, y_val, **goal)
        assert (classifier.assess(x_test).assertion == "IK").mean() > 0.2
        for name, change in STRANGE.items():
            known = (classifier.assess(change(x_test)).assertion == "IK").mean()
            assert known <= MOST_IK, f"{name}: {known:.1%} IK with {goal}"


@pytest.mark.parametrize("framed", [False, True])
def test_a_gap_behind_an_imputer_is_seen_though_training_had_none(framed):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(900, 4))
    y = (x[:, 0] + x[:, 1] > 0).astype(int)
    x = pd.DataFrame(x, columns=list("abcd")) if framed else x
    model = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression())
    classifier = EpistemicClassifier(model.fit(x[:400], y[:400]), progress=False)
    classifier.fit(x[:400], y[:400]).tune(x[400:700], y[400:700], coverage=0.9)
    assert classifier.layers_[0] == "table"
    gone = x[700:].copy()
    assert (classifier.assess(gone).assertion == "IK").mean() > 0.7
    if framed:
        gone["d"] = np.nan
    else:
        gone[:, 3] = np.nan
    assert not (classifier.assess(gone).assertion == "IK").any()


def test_texts_without_a_known_word_are_never_known():
    rng = np.random.default_rng(0)
    words = [[f"{topic}{i}" for i in range(60)] for topic in ("sea", "sky", "sun")]

    def texts(n):
        y = rng.integers(0, 3, n)
        own = (rng.choice(words[c], 8) for c in y)
        mixed = rng.choice(np.ravel(words), (n, 4))
        return [" ".join([*a, *b]) for a, b in zip(own, mixed, strict=True)], y

    (x, y), (x_val, y_val), (x_test, _) = texts(900), texts(500), texts(200)
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(x, y)
    classifier = EpistemicClassifier(model, progress=False).fit(x, y)
    for goal in GOALS:
        classifier.tune(x_val, y_val, **goal)
        assert (classifier.assess(x_test).assertion == "IK").mean() > 0.2
        strange = classifier.assess(["", "   ", "?!", "nothing of this was ever read", "Δ ✓"])
        assert (strange.assertion == "IDK").all(), goal
