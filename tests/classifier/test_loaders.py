"""Data that comes in batches gives the same answers as the same data at hand."""

import tracemalloc

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from iknow import Ball, EpistemicClassifier, as_model, evaluate
from iknow.errors import BundleError, InputError
from iknow.models import PrecomputedModel
from iknow.search import warm_up
from iknow.testing import assert_same_evidence

X, Y = load_iris(return_X_y=True)
X = X.astype(np.float32)
ORDER = np.random.default_rng(0).permutation(len(X))
X, Y = X[ORDER], Y[ORDER]
TRAIN, VALIDATION, TEST = slice(0, 70), slice(70, 110), slice(110, 150)
NAMES = np.array(["setosa", "versicolor", "virginica"])


def network():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.Adam(module.parameters(), 0.05)
    inputs, labels = torch.tensor(X[TRAIN]), torch.tensor(Y[TRAIN])
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs), labels).backward()
        optimizer.step()
    return module


NETWORK = network()


class Samples(Dataset):
    def __init__(self, part):
        self.X, self.y = X[part], Y[part]

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        return self.X[i], int(self.y[i])


class Stream(IterableDataset):
    def __init__(self, part):
        self.part = part

    def __iter__(self):
        return iter(zip(X[self.part], Y[self.part].tolist(), strict=True))


def tensors(part):
    return TensorDataset(torch.tensor(X[part]), torch.tensor(Y[part]))


def rows(part, size=16):
    for start in range(part.start, part.stop, size):
        yield slice(start, min(start + size, part.stop))


LOADERS = {
    "DataLoader": lambda part: DataLoader(tensors(part), batch_size=16),
    "DataLoader with workers": lambda part: DataLoader(Samples(part), batch_size=16, num_workers=2),
    "Dataset": Samples,
    "TensorDataset": tensors,
    "IterableDataset": Stream,
    "a loader of dicts": lambda part: DataLoader(
        [{"inputs": x, "labels": y} for x, y in zip(X[part], Y[part], strict=True)], batch_size=16
    ),
    "a generator": lambda part: ((X[r], Y[r]) for r in rows(part)),
    "lists": lambda part: ([X[r].tolist(), Y[r].tolist()] for r in rows(part)),
    "empty batches between": lambda part: (
        pair for r in rows(part) for pair in [(X[:0], Y[:0]), (X[r], Y[r])]
    ),
}


class OneInput(nn.Module):
    """Takes the input of a dict, as the models of transformers take theirs."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, inputs):
        return self.inner(inputs)


def at_hand(**parameters):
    classifier = EpistemicClassifier(NETWORK, progress=False, **parameters)
    return classifier.fit(X[TRAIN], Y[TRAIN])


@pytest.mark.parametrize("kind", LOADERS)
def test_fit_tune_and_assess_read_loaders(kind):
    load = LOADERS[kind]
    module = OneInput(NETWORK) if "dicts" in kind else NETWORK
    layers = ["inner.1"] if "dicts" in kind else ["input", "1"]
    expected = at_hand(layers=["1"] if "dicts" in kind else layers)
    expected.tune(X[VALIDATION], Y[VALIDATION])
    classifier = EpistemicClassifier(module, layers, progress=False)
    classifier.fit(load(TRAIN)).tune(load(VALIDATION))
    for one, other in zip(classifier.indexes_.values(), expected.indexes_.values(), strict=True):
        np.testing.assert_allclose(one.points, other.points, atol=1e-5)
        np.testing.assert_array_equal(one.labels, other.labels)
        np.testing.assert_array_equal(one.rows, other.rows)
    assert classifier.selection_.coverage == expected.selection_.coverage
    a, b = classifier.assess(load(TEST)), expected.assess(X[TEST])
    np.testing.assert_array_equal(a.assertion, b.assertion)
    np.testing.assert_allclose(a.level, b.level)
    np.testing.assert_array_equal(a.y_true, Y[TEST])
    assert str(evaluate(a)) == str(evaluate(b, Y[TEST]))
    np.testing.assert_array_equal(classifier.predict(load(TEST)), expected.predict(X[TEST]))
    np.testing.assert_array_equal(a[3:9].y_true, Y[TEST][3:9])


def table(part, **columns):
    columns = columns or {"inputs": X[part].tolist()}
    return datasets.Dataset.from_dict({**columns, "label": Y[part].tolist()})


@pytest.mark.parametrize("streams", [False, True])
def test_datasets_of_hugging_face_are_read(streams):
    def load(part):
        data = table(part).with_format("torch")
        return data.to_iterable_dataset() if streams else data

    module = OneInput(NETWORK)
    classifier = EpistemicClassifier(module, ["inner.1"], batch_size=7, progress=False)
    classifier.fit(load(TRAIN)).tune(load(VALIDATION))
    expected = at_hand(layers=["1"]).tune(X[VALIDATION], Y[VALIDATION])
    a, b = classifier.assess(load(TEST)), expected.assess(X[TEST])
    np.testing.assert_array_equal(a.assertion, b.assertion)
    assert evaluate(a).a_ik == evaluate(b, Y[TEST]).a_ik


def test_a_scikit_learn_classifier_reads_loaders_too():
    model = LogisticRegression(max_iter=500).fit(X[TRAIN], NAMES[Y[TRAIN]])
    expected = EpistemicClassifier(model, progress=False).fit(X[TRAIN], NAMES[Y[TRAIN]])
    classifier = EpistemicClassifier(model, progress=False)
    classifier.fit((X[r], NAMES[Y[r]]) for r in rows(TRAIN))
    goal = {"coverage": 0.7}
    a = classifier.tune((X[r] for r in rows(VALIDATION)), **goal).assess(X[TEST])
    b = expected.tune(X[VALIDATION], **goal).assess(X[TEST])
    np.testing.assert_array_equal(a.assertion, b.assertion)
    with pytest.raises(InputError, match="LogisticRegression is not a fitted classifier"):
        EpistemicClassifier(LogisticRegression()).fit((X[r], Y[r]) for r in rows(TRAIN))


def test_a_pipeline_reads_the_columns_of_a_dataset():
    columns = {f"x{j}": X[:, j] for j in range(4)}

    def load(part, **more):
        data = {name: values[part].tolist() for name, values in columns.items()} | more
        return datasets.Dataset.from_dict({**data, "label": Y[part].tolist()})

    frame = pd.DataFrame({name: values.astype(float) for name, values in columns.items()})
    model = LogisticRegression(max_iter=500).fit(frame[TRAIN], Y[TRAIN])
    classifier = EpistemicClassifier(model, batch_size=9, progress=False).fit(load(TRAIN))
    expected = EpistemicClassifier(model, progress=False).fit(frame[TRAIN], Y[TRAIN])
    a = classifier.tune(load(VALIDATION)).assess(load(TEST))
    b = expected.tune(frame[VALIDATION], Y[VALIDATION]).assess(frame[TEST])
    np.testing.assert_array_equal(a.assertion, b.assertion)
    with pytest.raises(InputError, match="x4"):
        classifier.assess(load(TEST, x4=X[TEST, 0].tolist()))

    texts = [f"{name} flower" for name in NAMES[Y]]
    words = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts[TRAIN], Y[TRAIN])
    data = datasets.Dataset.from_dict({"text": texts[TRAIN], "label": Y[TRAIN].tolist()})
    read = EpistemicClassifier(words, progress=False).fit(data)
    assert read.indexes_["tfidfvectorizer"].n_rows == 70


def test_columns_that_moved_are_told_to_a_network_too():
    frame = pd.DataFrame(X, columns=list("abcd"))
    classifier = EpistemicClassifier(NETWORK, progress=False).fit(frame[TRAIN], Y[TRAIN])
    classifier.tune(frame[VALIDATION], Y[VALIDATION])
    expected = at_hand().tune(X[VALIDATION], Y[VALIDATION]).assess(X[TEST])
    np.testing.assert_array_equal(classifier.assess(frame[TEST]).assertion, expected.assertion)
    np.testing.assert_array_equal(classifier.assess(X[TEST]).assertion, expected.assertion)
    with pytest.raises(InputError, match="the order of the training data"):
        classifier.assess(frame[TEST][list("badc")])


def test_precomputed_outputs_may_come_in_batches():
    said = NETWORK(torch.tensor(X)).detach().numpy()

    def outputs(part, labels=True):
        pairs = (((said[r], {"input": X[r]}), Y[r]) for r in rows(part))
        return pairs if labels else (pair[0] for pair in pairs)

    rules = {"rule": Ball(0.5), "progress": False}
    classifier = EpistemicClassifier(PrecomputedModel(), **rules).fit(outputs(TRAIN))
    expected = EpistemicClassifier(PrecomputedModel(), **rules)
    expected.fit((said[TRAIN], {"input": X[TRAIN]}), Y[TRAIN])
    whole = expected.assess((said[TEST], {"input": X[TEST]}))
    for labels in (True, False):
        a = classifier.assess(outputs(TEST, labels))
        np.testing.assert_array_equal(a.assertion, whole.assertion)
        assert_same_evidence(a.evidence["input"], whole.evidence["input"])
        assert (a.y_true is not None) == labels


def test_labels_may_be_given_apart_from_a_loader_of_inputs():
    classifier = EpistemicClassifier(NETWORK, progress=False)
    classifier.fit((X[r] for r in rows(TRAIN)), Y[TRAIN])
    np.testing.assert_array_equal(classifier.indexes_["1"].labels, at_hand().indexes_["1"].labels)
    with pytest.raises(InputError, match="got 69 labels for 70 samples"):
        classifier.fit((X[r] for r in rows(TRAIN)), Y[TRAIN][:-1])
    with pytest.raises(InputError, match="got 39 labels for 40 samples"):
        classifier.tune((X[r] for r in rows(VALIDATION)), Y[VALIDATION][:-1])


def test_numbers_of_a_loader_are_positions_of_the_classes_that_the_user_names():
    classifier = EpistemicClassifier(NETWORK, classes=NAMES, progress=False)
    classifier.fit(LOADERS["DataLoader"](TRAIN)).tune(LOADERS["DataLoader"](VALIDATION))
    a = classifier.assess(LOADERS["DataLoader"](TEST))
    assert a.belief[0] in NAMES
    np.testing.assert_array_equal(a.y_true, NAMES[Y[TEST]])
    assert evaluate(a).a_ik == evaluate(a, NAMES[Y[TEST]]).a_ik


def test_a_bundle_recognizes_a_model_that_was_fitted_on_a_loader(tmp_path):
    classifier = EpistemicClassifier(NETWORK, progress=False)
    classifier.fit(LOADERS["DataLoader"](TRAIN)).tune(LOADERS["DataLoader"](VALIDATION))
    classifier.save(tmp_path / "b.iknow")
    again = EpistemicClassifier.load(tmp_path / "b.iknow", NETWORK)
    np.testing.assert_array_equal(
        again.assess(X[TEST]).assertion, classifier.assess(X[TEST]).assertion
    )
    other = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    with pytest.raises(BundleError, match="made with another model"):
        EpistemicClassifier.load(tmp_path / "b.iknow", other)


def test_robust_radii_of_a_loader_are_those_of_an_array():
    classifier = at_hand().tune(X[VALIDATION], Y[VALIDATION])
    expected = classifier.assess(X[TEST]).robust_radius
    found = classifier.assess(LOADERS["DataLoader"](TEST)).robust_radius
    assert expected.max() > 0
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_a_shuffling_loader_is_warned_of_in_fit_alone():
    loader = DataLoader(tensors(TRAIN), batch_size=16, shuffle=True)
    classifier = EpistemicClassifier(NETWORK, progress=False)
    with pytest.warns(UserWarning, match="the DataLoader shuffles") as caught:
        classifier.fit(loader)
    assert caught[0].filename == __file__
    classifier.tune(DataLoader(tensors(VALIDATION), batch_size=16, shuffle=True))


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (iter([]), "yields nothing.*An iterator can be read only once"),
        (DataLoader(tensors(slice(0, 0)), batch_size=4), "yields nothing: expected batches of"),
        ((X[r] for r in rows(TRAIN)), "the batches have no labels: let the loader yield"),
        (iter([(X[:4], Y[:4], Y[:4])]), "batch 0 of the loader: expected .inputs, labels.*3 parts"),
        (iter([(X[:4], Y[:3])]), "a batch must hold one label per sample; got 3 labels for 4"),
        (iter([(X[:4], Y[:4]), (X[:4],)]), "the samples from 4 on have no labels"),
        (iter([(X[:4], Y[:4]), (X[:4], NAMES[Y[:4]])]), "labels of some batches are text"),
        (iter([(X[:4], Y[:4]), ([[1.0], [1.0, 2.0]], [0, 1])]), "batch 1 of the loader: "),
        (iter([(X[:4], Y[:4]), (X[:4, :3], Y[:4])]), "batch of shape .4, 3."),
        (iter([{"labels": Y[:4]}]), "it has labels but no inputs"),
        (iter([(X[:4], np.array([0.5] * 4))]), "y must hold labels"),
        (iter([3]), "batch 0 of the loader: X must be an array"),
        (iter([(X[:4], np.zeros(4, dtype=int))]), "at least two classes"),
    ],
)
def test_bad_loaders_are_refused_and_nothing_is_lost(loader, message):
    classifier = at_hand().tune(X[VALIDATION], Y[VALIDATION])
    before = vars(classifier).copy()
    with pytest.raises(InputError, match=message):
        classifier.fit(loader)
    assert vars(classifier) == before


def test_an_error_of_the_loader_is_passed_on_as_it_is():
    def broken():
        yield X[:4], Y[:4]
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        EpistemicClassifier(NETWORK, progress=False).fit(broken())


def test_inputs_are_never_all_in_memory():
    """Batches of two megabytes, made when asked for: never more than a few of them at once."""
    n_batches, size, width = 20, 256, 1024
    scores = np.eye(2)[np.arange(size) % 2]

    def batches(seed):
        rng = np.random.default_rng(seed)
        for _ in range(n_batches):
            yield rng.normal(size=(size, width)), np.arange(size) % 2

    classifier = EpistemicClassifier(
        as_model(lambda _: scores, embed=lambda batch: batch[:, :2]), progress=False
    )
    warm_up()  # which imports numba
    tracemalloc.start()
    classifier.fit(batches(0)).tune(batches(1), coverage=0.5)
    classifier.assess(batches(2))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n_batches * size * width * 8 / 3
