"""A model is known again by its answers: the same ones by any model that gives them, others not."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from iknow import Ball, EpistemicClassifier
from iknow.errors import BundleError
from iknow.models.inputs import choose_rows
from iknow.models.model import Layer, Model, make_observation
from iknow.models.probe import MOST_BYTES, SCORES, Probe, make_probe

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

RNG = np.random.default_rng(0)
Y = np.arange(90) % 3
FAR = "the activations of layer 'far'"
X = (RNG.standard_normal((90, 4)) + 2 * Y[:, None]).astype(np.float32)


def save(model, path, inputs=X, **settings):
    made = EpistemicClassifier(model, rule=Ball(1.0), progress=False, **settings)
    made.fit(inputs, Y).save(path / "x.iknow")
    return made


def load(model, path, **options):
    return EpistemicClassifier.load(path / "x.iknow", model, **options)


# What answers alike is taken


def reloaded(estimator):
    return pickle.loads(pickle.dumps(estimator))


def with_parameters(**parameters):
    return lambda estimator: reloaded(estimator).set_params(**parameters)


def giving_frames(estimator):
    return reloaded(estimator).set_output(transform="pandas")


ALIKE = {
    "pickled": (MLPClassifier((8,), max_iter=50, random_state=0), reloaded),
    "jobs": (RandomForestClassifier(5, random_state=0), with_parameters(n_jobs=2)),
    "verbose": (RandomForestClassifier(5, random_state=0), with_parameters(verbose=1)),
    "frames": (make_pipeline(StandardScaler(), SVC()), giving_frames),
    "frozen": (KNeighborsClassifier(), FrozenEstimator),
    "version": (LogisticRegression(), lambda e: (setattr(e, "_sklearn_version", "1.6.0"), e)[1]),
    "lambda": (make_pipeline(FunctionTransformer(lambda x: x), SVC()), lambda e: e),
}


@pytest.mark.parametrize("name", ALIKE)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer", "ignore:X has feature names")
def test_a_model_that_answers_alike_is_taken(name, tmp_path):
    estimator, change = ALIKE[name]
    estimator = estimator.fit(X, Y)
    made = save(FrozenEstimator(estimator), tmp_path)
    found = load(FrozenEstimator(change(estimator)), tmp_path)
    assert isinstance(found.probe_, Probe)
    np.testing.assert_array_equal(found.assess(X).assertion, made.assess(X).assertion)
    found.save(tmp_path / "again.iknow")  # what it is known by is passed on
    again = EpistemicClassifier.load(tmp_path / "again.iknow", FrozenEstimator(estimator))
    assert again.probe_.tolerances == made.probe_.tolerances


class Net(nn.Module):
    """A module with a buffer that its state does not hold and a plain attribute."""

    def __init__(self, seed=0, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(seed)
        self.hidden, self.act, self.head = nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)
        self.register_buffer("mean", torch.zeros(4), persistent=False)
        self.temperature = 1.0
        self.to(dtype)

    def forward(self, x):
        return self.head(self.act(self.hidden(x - self.mean))) / self.temperature


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_module_is_known_in_any_precision_and_wrapping(dtype, tmp_path):
    net = Net(dtype=dtype)
    save(net, tmp_path)
    for same in (copy.deepcopy(net), nn.DataParallel(net), torch.compile(net, backend="eager")):
        load(same, tmp_path)
    with pytest.raises(BundleError, match="made with another model"):
        load(Net(seed=1, dtype=dtype), tmp_path)


def test_a_module_in_another_precision_is_taken_if_it_makes_no_difference(tmp_path):
    net = Net()
    save(net, tmp_path)
    load(copy.deepcopy(net).double(), tmp_path)
    with pytest.raises(BundleError, match="differ by"):
        load(copy.deepcopy(net).bfloat16(), tmp_path)


def test_inputs_given_as_tensors_are_kept(tmp_path):
    net = Net(dtype=torch.bfloat16)
    save(net, tmp_path, torch.from_numpy(X).bfloat16())
    assert load(net, tmp_path).probe_.inputs.dtype == np.float32
    embedding = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(8, 3))
    tokens = RNG.integers(0, 9, (90, 2))
    save(embedding, tmp_path, tokens, layers=["2"])
    np.testing.assert_array_equal(
        load(embedding, tmp_path).probe_.inputs, tokens[choose_rows(Y, 32)]
    )


# What answers otherwise is refused, and told how


def change_buffer(net):
    net.mean += 1


def change_attribute(net):
    net.temperature = 0.5


def change_weight(net):
    with torch.no_grad():
        net.head.weight[0, 0] += 0.1


@pytest.mark.parametrize("change", [change_buffer, change_attribute, change_weight])
def test_a_change_that_a_modules_state_need_not_show_is_refused(change, tmp_path):
    net = Net()
    save(net, tmp_path)
    change(net)
    with pytest.raises(BundleError, match=r"differ by .* on input \d+ of the 32 kept, where .* is"):
        load(net, tmp_path)
    with pytest.raises(BundleError, match="pass check_model=False, or --no-check-model"):
        load(net, tmp_path)
    assert load(net, tmp_path, check_model=False).predict(X).shape == (90,)


OTHERWISE = {
    "other data": lambda e: reloaded(e).fit(X[:60] + 1, Y[:60]),
    "other classes": lambda e: reloaded(e).fit(X, Y % 2),
    "other width": lambda e: reloaded(e).fit(X[:, :3], Y),
    "other layers": lambda e: e[-1],
    "another kind": lambda e: make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y),
    "a changed step": lambda e: change_step(reloaded(e)),
}


def change_step(pipeline):
    pipeline[0].mean_[1] += 0.1
    return pipeline


@pytest.mark.parametrize("name", OTHERWISE)
def test_an_estimator_that_answers_otherwise_is_refused(name, tmp_path):
    estimator = make_pipeline(StandardScaler(), SVC()).fit(X, Y)
    save(FrozenEstimator(estimator), tmp_path, layers=["standardscaler", "output"])
    with pytest.raises(BundleError, match="made with another model"):
        load(FrozenEstimator(OTHERWISE[name](estimator)), tmp_path)


def test_another_belief_is_refused_though_the_scores_are_the_same(tmp_path):
    class Stubborn(LogisticRegression):
        says = None

        def predict(self, inputs):
            return super().predict(inputs) if self.says is None else np.full(len(inputs), self.says)

    estimator = Stubborn().fit(X, Y)
    save(FrozenEstimator(estimator), tmp_path)
    estimator.says = 1
    with pytest.raises(BundleError, match="it believes another class on input"):
        load(FrozenEstimator(estimator), tmp_path)


def test_the_worst_difference_is_told_in_units_of_the_layer(tmp_path):
    model = Shifted()
    save(model, tmp_path)
    model.shift = {"far": 3.0, "near": 0.001}
    with pytest.raises(BundleError, match="the activations of layer 'far' differ by 6 on input"):
        load(model, tmp_path)
    model.shift = {"far": 0.0, "near": 0.01}
    with pytest.raises(BundleError, match=r"of layer 'near' differ by 0\.02 on"):
        load(model, tmp_path)
    model.shift = {"far": 1e-5, "near": 1e-5}
    load(model, tmp_path)


class Shifted(Model):
    """A model of the user's own whose layers can be moved; its answers depend on nothing else."""

    classes = None
    shift = {"far": 0.0, "near": 0.0}  # noqa: RUF012
    random = 0.0

    def prepare(self, inputs):
        return np.asarray(inputs)

    def layers(self, batch):
        return Layer("far", "hidden"), Layer("near", "hidden")

    def observe(self, batch, layers):
        noise = self.random * RNG.standard_normal(batch.shape)
        found = {name: batch + self.shift[name] + noise for name in layers}
        return make_observation(batch[:, :3], found)


def test_scores_that_are_not_finite_are_compared_as_they_are():
    with np.errstate(divide="ignore"):
        scores = np.log(np.eye(3)[Y] + [0, 0, 0.5])
    observed = Shifted().observe(X[:90], ("far",))
    before = Probe(X, replace(observed, scores=scores), {SCORES: 1e-4, FAR: 1e-4}, np.arange(90))

    class Same(Shifted):
        def observe(self, batch, layers):
            return replace(super().observe(batch, layers), scores=scores)

    class Other(Shifted):
        def observe(self, batch, layers):
            return replace(super().observe(batch, layers), scores=np.nan_to_num(scores))

    assert before.find_difference(Same()) is None
    assert "the scores differ by inf" in before.find_difference(Other())


# How much is kept, of what, and what is not


def test_every_class_is_probed_where_there_is_room_and_each_time_the_same():
    codes = np.repeat([0, 1, 2, 3], [1000, 1, 5, 30])
    chosen = choose_rows(codes, 32)
    assert len(set(chosen.tolist())) == 32
    assert np.bincount(codes[chosen]).tolist() == [13, 1, 5, 13]
    np.testing.assert_array_equal(chosen, choose_rows(codes, 32))
    assert sorted(choose_rows(codes[:5], 32).tolist()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("width", "n_rows"), [(4, 32), (20_000, 4), (200_000, None)])
def test_large_inputs_are_kept_in_smaller_numbers(width, n_rows):
    model = Shifted()
    n = 90 if width == 4 else 9
    probe = make_probe(model, np.resize(X, (n, width)), Y[:n], ("far", "near"), np.arange(n))
    if n_rows is None:
        assert (
            probe
            == f"one input with its scores and activations takes more than {MOST_BYTES:,} bytes"
        )
        return
    assert len(probe.inputs) == len(probe.observed) == n_rows
    assert sum(array.nbytes for array in probe.store()[1].values()) <= MOST_BYTES


def test_a_model_that_answers_at_random_is_taken_with_a_warning(tmp_path):
    model = Shifted()
    model.random = 0.5
    save(model, tmp_path)
    with pytest.warns(UserWarning, match="gives different answers each time .* check_model=False"):
        load(model, tmp_path)
    load(model, tmp_path, check_model=False)


def test_without_probes_no_inputs_are_kept_and_the_load_says_so(tmp_path):
    estimator = FrozenEstimator(LogisticRegression().fit(X, Y))
    made = save(estimator, tmp_path)
    made.save(tmp_path / "x.iknow", probe=False)
    with pytest.warns(UserWarning, match="saved with probe=False"):
        found = load(estimator, tmp_path)
    assert isinstance(found.probe_, str)
    EpistemicClassifier.load(tmp_path / "x.iknow")  # there is no model to be checked


def test_unusual_inputs_are_not_kept(tmp_path):
    class OfObjects(Shifted):
        def prepare(self, inputs):
            return np.asarray(inputs, dtype=object)

        def observe(self, batch, layers):
            return super().observe(batch.astype(float), layers)

    save(OfObjects(), tmp_path)
    with pytest.warns(UserWarning, match="dtype object cannot be kept"):
        load(OfObjects(), tmp_path)


@pytest.mark.parametrize(("size", "is_kept"), [(1, True), (7, True), (30, False)])
def test_a_model_is_never_asked_about_more_at_a_time_than_was_allowed(size, is_kept, tmp_path):
    class Small(Shifted):
        def observe(self, batch, layers):
            if len(batch) > size or (size == 30 and len(batch) < size):
                raise ValueError(f"not {len(batch)} at a time")
            return super().observe(batch, layers)

    made = save(Small(), tmp_path, batch_size=size)
    assert isinstance(made.probe_, Probe) == is_kept
    load(Small(), tmp_path, check_model=is_kept)


# Data frames


def make_frame():
    return pd.DataFrame(
        {
            "number": X[:, 0],
            "whole": np.arange(90),
            "flag": Y == 1,
            "text": np.array(["a", "bb", "ü"])[Y],
            "gaps": pd.array([None if i % 5 == 0 else i for i in range(90)], dtype="Int64"),
            "maybe": pd.array([None if i % 7 == 0 else i % 2 == 0 for i in range(90)], "boolean"),
            "kind": pd.Categorical(np.array(["x", "y", "z"])[Y], ["z", "y", "x", "unseen"]),
            "size": pd.Categorical(Y * 10, [0, 10, 20], ordered=True),
            "words": pd.Series(np.array(["k", "l", "m"], dtype=object)[Y], dtype="string"),
            "objects": pd.Series([None, *["o"] * 89], dtype=object),
            "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(90), unit="h"),
            7: 1.5,
        },
        index=[f"row {i}" for i in range(90)],
    )


def test_a_frame_of_all_kinds_of_columns_comes_back_as_it_was(tmp_path):
    frame = make_frame().drop(columns=["gaps", "maybe"])
    numbers, words = ("passthrough", ["number"]), (OneHotEncoder(), ["text", "kind"])
    encode = make_column_transformer(words, numbers)
    frame.columns = frame.columns.astype(str)  # as scikit-learn wants them
    estimator = make_pipeline(encode, LogisticRegression()).fit(frame, Y)
    save(FrozenEstimator(estimator), tmp_path, frame, layers=["columntransformer"])
    found = load(FrozenEstimator(estimator), tmp_path)
    expected = frame.iloc[choose_rows(Y, 32)].reset_index(drop=True)
    pd.testing.assert_frame_equal(found.probe_.inputs, expected, check_exact=True)
    other = make_pipeline(encode, LogisticRegression(C=0.01)).fit(frame, Y)
    with pytest.raises(BundleError, match="the scores differ by"):
        load(FrozenEstimator(other), tmp_path)


def test_a_frame_with_numbers_for_names_comes_back():
    from iknow.models.probe import restore_inputs, store_inputs

    frame = make_frame().reset_index(drop=True)
    record, arrays = store_inputs(frame)
    assert all(array.dtype.kind in "biufUmM" for array in arrays.values())
    pd.testing.assert_frame_equal(restore_inputs(record, arrays), frame, check_exact=True)


@pytest.mark.parametrize(
    "column",
    [
        [(1, 2)] * 90,
        ["a", 1] * 45,
        pd.Series(["a\x00"] * 90, dtype=object),
        pd.period_range("2020", periods=90, freq="D"),
        pd.date_range("2020", periods=90, tz="Europe/Rome"),
    ],
    ids=["tuples", "mixed", "nul", "periods", "zones"],
)
def test_a_frame_that_would_not_come_back_as_it_was_is_not_kept(column, tmp_path):
    frame = pd.DataFrame({"number": X[:, 0], "odd": column})
    encode = make_column_transformer(("passthrough", ["number"]))
    estimator = make_pipeline(encode, HistGradientBoostingClassifier(max_iter=2)).fit(frame, Y)
    made = save(FrozenEstimator(estimator), tmp_path, frame, layers=["columntransformer"])
    assert "cannot be kept" in made.probe_


# Damaged probes

FRAME = {"kind": "frame", "columns": [{"name": "a", "array": "belief"}], "n_rows": 32}
GAPS = {"name": "a", "array": "belief", "dtype": "S1000000000", "none": False}


@pytest.mark.parametrize(
    "change",
    [
        lambda record, arrays: record.pop("tolerances"),
        lambda record, arrays: record["tolerances"].pop(),
        lambda record, arrays: record.update(tolerances=["a", "b"]),
        lambda record, arrays: record.update(inputs=[]),
        lambda record, arrays: record.update(inputs={"kind": "frame", "columns": [1]}),
        lambda record, arrays: record.update(inputs=FRAME | {"n_rows": 10**17}),
        lambda record, arrays: record.update(inputs=FRAME | {"columns": [{"array": "nothing"}]}),
        lambda record, arrays: record.update(inputs=FRAME | {"columns": [GAPS]}),
        lambda record, arrays: arrays.pop("belief"),
        lambda record, arrays: arrays.pop("layer0"),
        lambda record, arrays: arrays.pop("rows"),
        lambda record, arrays: arrays.update(belief=np.full(32, 7)),
        lambda record, arrays: arrays.update(inputs=X[:3]),
        lambda record, arrays: arrays.update(scores=np.zeros(32)),
        lambda record, arrays: arrays.update(scores=np.array(["a"])),
    ],
)
def test_what_no_probe_wrote_is_damage(change):
    from iknow.models.probe import restore_probe

    record, arrays = make_probe(Shifted(), X, Y, ("far",), np.arange(len(X))).store()
    assert restore_probe(record, arrays, ["far"]).find_difference(Shifted()) is None
    change(record, arrays)
    with pytest.raises(BundleError, match="cannot be read"):
        restore_probe(record, arrays, ["far"])
