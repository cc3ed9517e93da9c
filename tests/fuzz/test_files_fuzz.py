"""Bundles of a table with levels, their samples and a model inside: mutated, with right checksums.

Whoever forges checksums can forge evidence too, so answers may differ. But whatever is in a file,
using it answers every sample or raises an `IknowError` in words; and a file whose checksums are
left alone is refused or answers as before.
"""

import copy
import hashlib
import io
import json
import random

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from iknow import EpistemicClassifier
from iknow.errors import IknowError
from iknow.npy import encode_array
from tests.models.onnx.test_file import damage
from tests.storage.making import pack, unpack, write_manifest
from tests.storage.test_bundle_hostile import mutate

pytestmark = pytest.mark.filterwarnings("ignore")  # what is strange may be warned of

RNG = np.random.default_rng(0)
Y = RNG.integers(2, size=160)
FRAME = pd.DataFrame(
    {
        "age": np.where(RNG.random(160) < 0.2, np.nan, RNG.normal(40, 9, 160) + 15 * Y),
        "income": np.exp(RNG.normal(10, 1, 160)),
        "city": RNG.choice(["Bern", "Rome"], 160),
    }
)


def boosting():
    cities = make_column_transformer((OrdinalEncoder(), ["city"]), remainder="passthrough")
    return make_pipeline(cities, HistGradientBoostingClassifier(max_iter=3)), FRAME


def linear():
    known = FRAME.fillna(40)
    steps = make_column_transformer(
        (StandardScaler(), ["age", "income"]), (OneHotEncoder(), ["city"])
    )
    return make_pipeline(steps, LogisticRegression()), known


@pytest.fixture(scope="module", params=[boosting, linear])
def made(request, tmp_path_factory):
    """The model, what to ask, the contents of the bundle, and its answers."""
    model, X = request.param()
    model.fit(X, Y)
    ec = EpistemicClassifier(FrozenEstimator(model), progress=False).fit(X[:100], Y[:100])
    path = tmp_path_factory.mktemp("made") / "x.iknow"
    ec.tune(X[100:140], coverage=0.7).save(path, onnx=request.param is linear)
    return model, X[120:], unpack(path), ec.assess(X[120:])


def change_array(content, chance):
    """The same array with other values, of another shape or of another type."""
    array = np.load(io.BytesIO(content), allow_pickle=False)
    values, at = array.copy(), chance.randrange(max(1, array.size))
    way = chance.randrange(7)
    if way == 0 and array.size:
        odd = [0, -1, 1, np.nan, np.inf, -np.inf, 1e300, 2**31, -(2**63), "x", "2024"]
        try:
            values.flat[at] = chance.choice(odd)
        except (ValueError, OverflowError):
            values.flat[at] = values.flat[0]
    elif way == 1:
        values = values[::-1]
    elif way == 2:
        values = values[: at % (len(values) + 1)] if values.ndim else values
    elif way == 3:
        values = np.concatenate([values, values]) if values.ndim else values
    elif way == 4 and values.dtype.kind in "fiu":
        values = values.astype(chance.choice(["<f2", "<f4", "<f8", "<i8", "|i1", "<u8"]))
    elif way == 5 and values.ndim:
        values = values.reshape(-1, 1) if values.ndim == 1 else values.reshape(-1)
    elif values.dtype.kind in "fiu":
        values = (values * chance.choice([0, -1, 1e-30, 1e30])).astype(values.dtype)
    return b"".join(encode_array(np.ascontiguousarray(values)))


def forge(contents, chance):
    """The contents with one of them mutated and its checksum set right."""
    manifest = json.loads(contents["manifest.json"])
    name = chance.choice(sorted(contents))
    if name == "manifest.json":
        for _ in range(5):
            manifest = {key: mutate(value, chance) for key, value in manifest.items()}
        return contents | {"manifest.json": write_manifest(manifest)}
    whole = copy.copy(contents[name])
    is_array = name.endswith(".npy")
    changed = change_array(whole, chance) if is_array else damage(whole, chance.randrange(10**6))
    digest = hashlib.sha256(changed).hexdigest()
    text = json.dumps(manifest).replace(hashlib.sha256(whole).hexdigest(), digest)
    return contents | {name: changed, "manifest.json": write_manifest(json.loads(text))}


def use(path, model, asked):
    """What a bundle answers, as if from its maker; None if it is refused in words."""
    try:
        loaded = EpistemicClassifier.load(path, model)
        loaded.progress = False
        found = loaded.assess(asked)
        assert len(found.level) == len(found.reason) == len(asked)
        assert found.explain(0)
        assert f"{loaded.selection_} {loaded.selection_.note}"
        loaded.assess(asked.assign(age=1e9))
        loaded.assess(asked[:1])
        loaded.save(path.with_name("again.iknow"))
    except IknowError:
        return None
    return found


N = [pytest.param(40, id="some"), pytest.param(1_000, id="many", marks=pytest.mark.slow)]


@pytest.mark.parametrize("n", N)
def test_a_forged_bundle_answers_or_is_refused_in_words(made, tmp_path, n):
    model, asked, contents, _ = made
    inside = any(name.endswith(".onnx") for name in contents)
    chance, refused = random.Random(n), 0
    for _ in range(n):
        pack(tmp_path / "x.iknow", forge(contents, chance))
        given = None if inside and chance.random() < 0.7 else FrozenEstimator(model)
        refused += use(tmp_path / "x.iknow", given, asked) is None
    assert 0.3 * n < refused < n


@pytest.mark.parametrize("n", N)
def test_a_damaged_bundle_is_refused_or_answers_as_before(made, tmp_path, n):
    model, asked, contents, before = made
    pack(tmp_path / "x.iknow", contents)
    whole, refused = (tmp_path / "x.iknow").read_bytes(), 0
    for seed in range(n):
        (tmp_path / "x.iknow").write_bytes(damage(whole, seed))
        found = use(tmp_path / "x.iknow", FrozenEstimator(model), asked)
        refused += found is None
        if found is not None:
            np.testing.assert_array_equal(found.level, before.level)
            np.testing.assert_array_equal(found.assertion, before.assertion)
    assert refused > 0.9 * n
