"""Small models of the three kinds that a service takes: numbers, a table with text, and texts.

They are fitted in a moment, so that a server of them starts fast and its tests stay short.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from iknow import EpistemicClassifier
from iknow.tables.table import make_frame

N_TRAINING = 300
COLORS = ("red", "green", "blue")
WORDS = ("good", "bad", "nice", "awful"), ("film", "book", "day", "song", "meal")


@cache
def digits() -> tuple[EpistemicClassifier, Any]:
    """A classifier of 64 numbers, and rows it was not fitted with, of shape (n, 64)."""
    x, y = load_digits(return_X_y=True)
    fitted = EpistemicClassifier(GaussianNB(), progress=False).fit(x[:N_TRAINING], y[:N_TRAINING])
    return fitted, x[N_TRAINING:]


@cache
def table() -> tuple[EpistemicClassifier, dict[str, Any]]:
    """A classifier of two numbers and a text by name, and such columns."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(80, 2))
    columns = {
        "width": numbers[:, 0],
        "height": numbers[:, 1],
        "color": np.array(rng.choice(COLORS, 80), dtype=object),
    }
    by_kind = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["color"]), remainder="passthrough"
    )
    model = make_pipeline(by_kind, LogisticRegression())
    fitted = EpistemicClassifier(model, progress=False)
    return fitted.fit(make_frame(columns), numbers[:, 0] > 0), columns


@cache
def texts() -> tuple[EpistemicClassifier, list[str]]:
    """A classifier of texts, and some of them."""
    some = [f"{first} {second}" for first in WORDS[0] for second in WORDS[1]] * 3
    labels = ["+" if text.startswith(("good", "nice")) else "-" for text in some]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression())
    return EpistemicClassifier(model, progress=False).fit(some, labels), some


def all_models() -> dict[str, EpistemicClassifier]:
    """The three by name."""
    return {"digits": digits()[0], "table": table()[0], "texts": texts()[0]}
