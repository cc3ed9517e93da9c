"""Numpy's files: features or precomputed outputs, never a pickle, and damage that is reported."""

import re
import zipfile

import numpy as np
import pytest

from iknow.errors import InputError
from iknow.tables import read_table

X = np.arange(12.0).reshape(4, 3)
OBJECTS = np.array([{}, 1, "a", None], dtype=object)


@pytest.fixture
def npz(tmp_path):
    def write(**arrays):
        path = tmp_path / "data.npz"
        # Names such as layer:hidden are no identifiers, but they are keywords all the same.
        np.savez(path, **arrays)
        return path

    return write


@pytest.fixture
def npy(tmp_path):
    def write(array, name="data.npy"):
        np.save(tmp_path / name, array)
        return tmp_path / name

    return write


def outputs(**more):
    return {"scores": np.eye(4, 2), "layer:hidden": X, "layer:conv": np.ones((4, 2, 2, 2)), **more}


@pytest.mark.parametrize(
    ("y", "kind"), [(["a", "b", "a", "c"], "U"), ([0, 1, 2, 1], "i"), ([0.0, 1.0, 2.0, 1.0], "i")]
)
def test_an_archive_gives_features_labels_and_names(npz, y, kind):
    table = read_table(npz(X=X.astype(np.float32), y=np.array(y), feature_names=["p", "q", "r"]))
    assert table.features.dtype == np.float64
    np.testing.assert_array_equal(table.features, X)
    assert table.labels.dtype.kind == kind
    assert table.labels.tolist() == y
    assert table.feature_names == ("p", "q", "r")


def test_labels_and_names_are_optional(npz):
    table = read_table(npz(X=X))
    assert table.labels is None
    assert table.feature_names is None


def test_images_keep_their_shape_and_a_single_axis_becomes_a_column(npz):
    images = np.arange(120, dtype=np.uint8).reshape(4, 2, 3, 5)
    np.testing.assert_array_equal(read_table(npz(X=images)).features, images)
    assert read_table(npz(X=[1, 2])).features.tolist() == [[1], [2]]


def test_another_array_than_y_may_hold_the_labels(npz):
    path = npz(X=X, y=OBJECTS, kind=np.array([True, False, True, True]))
    assert read_table(path, label="kind").labels.tolist() == [1, 0, 1, 1]


def test_precomputed_outputs_give_scores_and_activations(npz):
    table = read_table(npz(**outputs(y=np.array(["n", "p", "n", "n"]), classes=["n", "p"])))
    assert table.features is None
    assert len(table) == 4
    np.testing.assert_array_equal(table.scores, np.eye(4, 2))
    assert list(table.activations) == ["hidden", "conv"]
    np.testing.assert_array_equal(table.activations["hidden"], X)
    assert table.activations["conv"].shape == (4, 2, 2, 2)
    assert table.classes.tolist() == ["n", "p"]
    assert table.labels.tolist() == ["n", "p", "n", "n"]


def test_one_array_gives_features_and_another_file_the_labels(npy):
    table = read_table(npy(X), labels_path=npy(np.array([1, 0, 1, 1]), "y.npy"))
    np.testing.assert_array_equal(table.features, X)
    assert table.labels.tolist() == [1, 0, 1, 1]
    assert read_table(npy(X)).labels is None


def test_labels_from_another_file_replace_those_of_an_archive(npz, npy):
    path = npz(X=X, y=OBJECTS[:3])
    labels = read_table(path, labels_path=npy(np.array(list("abca")), "y.npy")).labels
    assert labels.tolist() == list("abca")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": X, "y": X}, "must hold either X, or scores and .*; its arrays are 'a', 'y'"),
        (outputs(X=X), "must hold either X, or scores"),
        ({"scores": X}, "scores but no layer: expected an array layer:NAME .* are 'scores'"),
        ({"X": X, "y": [1, 2]}, r"differ: X in .*data\.npz has 4, y in .*data\.npz has 2"),
        (outputs(y=[1]), r"scores in .* has 4, y in .* has 1"),
        (outputs(**{"layer:x": X[:3]}), r"scores in .* has 4, layer:x in .* has 3"),
        (outputs(classes=["a", "b", "c"]), "names 3 classes, but scores has 2 columns"),
        (outputs(scores=np.ones((4, 2, 2))), r"shape \(n_samples, n_classes\); got \(4, 2, 2\)"),
        ({"X": X, "feature_names": ["a"]}, r"shape \(4, 3\); got shape \(1,\)"),
        ({"X": X[None], "feature_names": ["a"] * 4}, r"shape \(1, 4, 3\); got shape \(4,\)"),
        ({"X": np.array(["a"])}, r"X in .* must hold numbers; got an array of <U1"),
        ({"X": X * 1j}, "must hold numbers; got an array of complex128"),
        ({"X": X[:0]}, r"X in .* is empty: .* got shape \(0, 3\)"),
        ({"X": X[:, :0]}, r"got shape \(4, 0\)"),
        ({"X": np.float64(1)}, r"got shape \(\)"),
        ({"X": X, "y": X}, r"y in .* must have one axis; got shape \(4, 3\)"),
        ({"X": X, "y": [0, 1, 0.5, 1]}, "y in .* must be ints or strings; got 0.5"),
        ({"X": X, "y": [0, 1, np.nan, 1]}, "must be ints or strings; got nan"),
        (
            {"X": X, "y": np.array([0, 1, 2, 2**64 - 1], dtype=np.uint64)},
            "got 18446744073709551615",
        ),
        ({"X": X, "y": np.array([b"a"] * 4)}, r"must be ints or strings; got an array of \|S1"),
        ({"X": X, "y": ["a", "b", "", "c"]}, "y in .* has no label for sample 2"),
        ({"X": OBJECTS}, r"data\.npz cannot be read: array 'X' holds pickled Python objects"),
        ({"X": X, "y": OBJECTS}, "array 'y' holds pickled Python objects, .*astype"),
    ],
)
def test_an_archive_that_cannot_be_used_says_why(npz, arrays, message):
    with pytest.raises(InputError, match=message):
        read_table(npz(**arrays))


def test_a_missing_label_array_lists_those_that_exist(npz):
    with pytest.raises(InputError, match="has no array 'kind'; its arrays are 'X', 'y'"):
        read_table(npz(X=X, y=X), label="kind")


def test_one_array_has_no_label_column(npy):
    with pytest.raises(InputError, match=r"holds one array, without 'y': give a file of labels"):
        read_table(npy(X), label="y")


def test_labels_of_another_length_are_refused_with_both(npy):
    path, labels_path = npy(X), npy(np.arange(3), "y.npy")
    with pytest.raises(InputError, match=r"differ: .*data\.npy has 4, .*y\.npy has 3"):
        read_table(path, labels_path=labels_path)


def test_labels_come_as_npy_or_csv_only(npy, npz):
    with pytest.raises(InputError, match=r"labels cannot be read from .*npz: .* \.npy or \.csv"):
        read_table(npy(X), labels_path=npz(y=X))


def test_a_pickled_array_is_never_unpickled(npy):
    with pytest.raises(InputError, match=r"data\.npy cannot be read: the array holds pickled"):
        read_table(npy(OBJECTS))


@pytest.mark.parametrize("kept", [0, 2, 50, 0.5, 0.99])
def test_a_truncated_archive_is_reported_and_no_unsafe_loading_advised(npz, kept):
    path = npz(X=X)
    content = path.read_bytes()
    path.write_bytes(content[: kept if isinstance(kept, int) else int(kept * len(content))])
    with pytest.raises(InputError, match=r"data\.npz cannot be read: .*truncated") as caught:
        read_table(path)
    assert "unsafe" not in str(caught.value)


def test_an_archive_with_a_changed_byte_is_reported(npz):
    path = npz(X=X)
    content = bytearray(path.read_bytes())
    content[content.index(X.tobytes()) + 10] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"data\.npz cannot be read: Bad CRC-32 for file 'X.npy'"):
        read_table(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (slice(0, 0), "EOF"),
        (slice(0, 20), "EOF"),
        (slice(0, -5), "is truncated"),
        (slice(30, None), "magic string is not correct"),
    ],
)
def test_a_damaged_array_is_reported_with_the_reason(npy, content, reason):
    path = npy(X)
    path.write_bytes(path.read_bytes()[content])
    with pytest.raises(InputError, match=re.escape("data.npy cannot be read: ") + f".*{reason}"):
        read_table(path)


def head(shape, kind="<f8"):
    """An .npy file that claims a shape, and a little data."""
    text = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text + bytes(64)


@pytest.mark.parametrize(
    "content",
    [
        head((10**15, 4)),
        head((10**6,), ("<f8", (10**8,))),
        head((10**6, 10**6), "|u1"),
    ],
)
def test_an_array_that_claims_more_than_there_is_memory_is_refused_by_its_head(tmp_path, content):
    (tmp_path / "claims.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "claims.npz", "w") as archive:
        archive.writestr("X.npy", content)
    for name in ("claims.npy", "claims.npz"):
        with pytest.raises(InputError, match="GB of memory"):
            read_table(tmp_path / name)


@pytest.mark.parametrize(
    "content",
    [
        head((10**15,), "<U0"),
        head((-4, 2)),
        head((3,), "<U0"),
        b"\x93NUMPY\2\0\xff\xff\xff\x7f" + bytes(100),
    ],
)
def test_an_array_of_no_size_or_with_a_head_of_gigabytes_is_refused(tmp_path, content):
    (tmp_path / "odd.npy").write_bytes(content)
    with pytest.raises(InputError, match="cannot be read"):
        read_table(tmp_path / "odd.npy")


@pytest.mark.parametrize("point", [0xD800, 0xDFFF, 0x110000, 0xFFFFFFFF])
def test_labels_must_be_text(npz, tmp_path, point):
    points = np.full((3, 2), ord("a"), dtype=np.uint32)
    points[1, 1] = point
    np.save(tmp_path / "y.npy", points.view("<U2")[:, 0])
    np.save(tmp_path / "X.npy", np.zeros((3, 1)))
    with pytest.raises(InputError, match="the label of sample 1 is not valid Unicode"):
        read_table(tmp_path / "X.npy", labels_path=tmp_path / "y.npy")


def test_labels_that_int64_cannot_hold_are_refused_and_not_rounded(npz):
    with pytest.raises(InputError, match=r"below 2\^63; got 18446744073709551615"):
        read_table(npz(X=np.zeros((2, 1)), y=np.array([1, 2**64 - 1], dtype=np.uint64)))
    largest = np.array([0, 2**63 - 1], dtype=np.uint64)
    assert read_table(npz(X=np.zeros((2, 1)), y=largest)).labels.tolist() == largest.tolist()
