"""A digit reader, and the real server for it."""

from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier
from sklearn.utils import shuffle

from iknow import EpistemicClassifier

pytest.importorskip("uvicorn")  # the extra `serve`

from tests.serving import serve_in_thread


@dataclass(frozen=True, eq=False)
class Digits:
    """A fitted digit reader. X, y: samples it has not seen, of shape (n, 64) and (n,)."""

    classifier: EpistemicClassifier
    X: np.ndarray
    y: np.ndarray


@pytest.fixture(scope="session")
def digits():
    # In their own order they are no draws of one distribution: other people wrote the last ones.
    X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
    X = X / 16
    network = MLPClassifier((24,), learning_rate_init=0.02, tol=1e-2, n_iter_no_change=3,
                            random_state=0).fit(X[:1000], y[:1000])  # fmt: skip
    ec = EpistemicClassifier(network, progress=False).fit(X[:1000], y[:1000])
    return Digits(ec.tune(X[1000:1400], y[1000:1400]), X[1400:], y[1400:])


@pytest.fixture
def running():
    """Like `serving`, but what it returns is a `tests.serving.Running`."""
    with ExitStack() as stack:
        yield lambda *args, **more: stack.enter_context(serve_in_thread(*args, **more))


@pytest.fixture
def serving(running):
    """serving(models, settings) -> URL of the real server, ready, which stops with the test."""
    return lambda *args, **more: running(*args, **more).url


@pytest.fixture(scope="session")
def url(digits):
    """The URL of a server with usual settings, for all tests that change nothing."""
    with serve_in_thread({"digits": digits.classifier}) as found:
        yield found.url
