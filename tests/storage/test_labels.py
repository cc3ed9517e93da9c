"""Labels: what was saved comes back the same, or is refused when it is saved."""

import numpy as np
import pytest

from iknow import Ball
from iknow.errors import BundleError, InputError
from iknow.metrics import Euclidean
from iknow.storage.bundle import Bundle, read_bundle, write_bundle
from iknow.storage.manifest import Classes, read_classes
from tests.storage.making import make_settings


def make_bundle(classes):
    return Bundle(
        classes=classes,
        labels=np.array([0, 1]),
        rows=np.arange(2),
        activations={"a": np.eye(2, dtype=np.float32)},
        metrics={"a": Euclidean},
        neighborhoods={"a": Ball(1.0)},
        settings=make_settings([1, 1, *[0] * (len(classes) - 2)]),
    )


def objects(*values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


LABELS = [
    np.array([False, True]),
    np.array([-128, 127], dtype=np.int8),
    np.array([0, 255], dtype=np.uint8),
    np.array([-(1 << 63), (1 << 63) - 1]),
    np.array([(1 << 63) - 1, 1 << 63, (1 << 64) - 1], dtype=np.uint64),
    np.array([0.1, 1e-320, -1e308, 2.0]),
    np.array([0.1, 65504], dtype=np.float16),
    np.array([0.1, 3e38], dtype=np.float32),
    np.array([1, 2], dtype=">i4"),
    np.array(["", "a"]),
    np.array(["a", "b"], dtype="U100"),
    np.array(["a\0b", " a ", "\n", "ü", "😀", "\u2028", '"\\']),
    np.array(["\ud800", "\udfff", "a\udc80b"]),
    objects("", "a", "x" * 1000),
    objects("a", 1, 2.5),
    objects(True, "no"),
    objects("ends in NUL\0", "ends in NUL"),
    objects(np.int64(3), np.float32(0.5), np.str_("x"), np.bool_(False)),
    objects(1 << 63, -(1 << 63), "x"),
    objects(float("inf"), 0),
]


@pytest.mark.parametrize("classes", LABELS, ids=repr)
def test_labels_survive(tmp_path, classes):
    write_bundle(tmp_path / "x.iknow", make_bundle(classes))
    found = read_bundle(tmp_path / "x.iknow").classes
    native = classes.dtype.newbyteorder("=")
    assert found.dtype.kind == native.kind
    assert found.dtype == native or native.kind == "U"  # as wide as need be
    plain = [v.item() if isinstance(v, np.generic) else v for v in classes.tolist()]
    assert found.tolist() == plain
    assert [type(v) for v in found.tolist()] == [type(v) for v in plain]


@pytest.mark.parametrize(
    "classes",
    [
        np.array([b"a", b"b"]),
        np.array([1j, 2]),
        np.array(["2020", "2021"], dtype="M8[Y]"),
        np.array([0.5, 1], dtype=np.longdouble),
        np.array([0.0, np.nan]),
        np.array([0.0, np.inf]),
        np.array(["a", "a"]),
        np.array(["a"]),
        objects((1, 2), None),
        objects("a", None),
        objects("a", float("nan")),
        objects("a", 1 << 64),
        objects("a", 10**5000),
        objects("\ud83d\ude00", "two halves that JSON would join"),
        objects(1, True),
    ],
    ids=lambda classes: f"{classes.dtype}",
)
def test_labels_that_would_not_survive_are_refused_when_they_are_saved(tmp_path, classes):
    with pytest.raises(InputError, match=r"can(not)? be saved"):
        write_bundle(tmp_path / "x.iknow", make_bundle(classes))
    assert list(tmp_path.iterdir()) == []


def test_one_long_label_among_many_takes_no_memory():
    """An array of text gives each label the room of the longest."""
    values = ["x" * 1_000_000, *map(str, range(10_000))]
    with pytest.raises(BundleError, match="labels may take"):
        read_classes(Classes("str", values))


def test_a_hundred_thousand_classes_fit_into_a_bundle(tmp_path):
    n = 100_000
    bundle = Bundle(
        classes=np.array([f"class number {i}" for i in range(n)]),
        labels=np.arange(n),
        rows=np.arange(n),
        activations={name: np.zeros((n, 1), dtype=np.float32) for name in "ab"},
        metrics=dict.fromkeys("ab", Euclidean),
        neighborhoods=dict.fromkeys("ab", Ball(0.5)),
        settings=make_settings([1] * n),
    )
    write_bundle(tmp_path / "x.iknow", bundle)
    found = read_bundle(tmp_path / "x.iknow", verify="now")
    np.testing.assert_array_equal(found.classes, bundle.classes)
    assert found.neighborhoods == bundle.neighborhoods
