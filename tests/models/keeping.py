"""A fitted classifier is kept and comes back."""

import pickle

import numpy as np
import pytest

from iknow import EpistemicClassifier
from iknow.errors import BundleError


def assert_comes_back(ec, model, asked, folder, other=None):
    """From a bundle with its model, and from a pickle; with another model it is refused."""
    expected, path = ec.assess(asked), folder / "kept.iknow"
    ec.save(path)
    for again in (EpistemicClassifier.load(path, model), pickle.loads(pickle.dumps(ec))):
        again.warm_up()
        found = again.assess(asked)
        np.testing.assert_array_equal(found.assertion, expected.assertion)
        np.testing.assert_array_equal(found.level, expected.level)
    if other is not None:
        with pytest.raises(BundleError, match="made with another model"):
            EpistemicClassifier.load(path, other)
