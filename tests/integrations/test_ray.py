"""Datasets of Ray: the answers of the classifier itself, in the order of the rows."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from iknow import EpistemicClassifier
from iknow.errors import ClusterError, InputError
from tests.clusters import started_ray

pytest.importorskip("ray")

from iknow.integrations.ray import append_answers, assess

# Ray Data reads settings of its own that it deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:`use_:DeprecationWarning")


@pytest.fixture(scope="module")
def made():
    X, y = load_iris(return_X_y=True, as_frame=True)
    model = LogisticRegression(max_iter=500).fit(X[::2], y[::2])
    classifier = EpistemicClassifier(model, progress=False).fit(X[::2], y[::2])
    return classifier.tune(X[1::2], coverage=0.7), model, X


def test_answers_are_appended_and_never_replace_a_column(made):
    classifier, _, X = made
    said = append_answers(classifier, X.assign(id=7).iloc[:, ::-1])
    assert [*said][-4:] == ["belief", "assertion", "reason", "level"]
    assert said["level"].tolist() == classifier.assess(X).level.tolist()
    with pytest.raises(InputError, match="has a column 'belief' already"):
        append_answers(classifier, X.assign(belief=1))
    with pytest.raises(InputError, match=r"has no column 'sepal length \(cm\)'"):
        append_answers(classifier, X.iloc[:, 1:])


@pytest.mark.slow
def test_a_dataset_is_answered_as_the_classifier_does_in_order(made, tmp_path):
    classifier, model, X = made
    classifier.save(tmp_path / "b.iknow")
    with started_ray() as ray:
        import ray.data

        rows = ray.data.from_pandas([X[:40].assign(id=range(40)), X[40:].assign(id=range(40, 150))])
        said = assess(rows, tmp_path / "b.iknow", model, batch_size=16).take_all()
        with pytest.raises(ClusterError, match="needs 1 GPUs; the cluster has 0"):
            assess(rows, tmp_path / "b.iknow", model, num_gpus=1)
    said, expected = pd.DataFrame(said), classifier.assess(X)
    assert said["id"].tolist() == list(range(150))
    pd.testing.assert_frame_equal(said[list(X)], X)
    assert said["assertion"].tolist() == [each.name for each in expected.assertion]
    np.testing.assert_array_equal(said["belief"], expected.belief)
    np.testing.assert_allclose(said["level"], expected.level, rtol=1e-12)
