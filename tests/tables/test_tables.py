"""What holds for every format: round trips, atomic writing, endings and missing files."""

import errno
import gc
import os
import subprocess
import sys

import numpy as np
import pytest

from iknow.errors import InputError
from iknow.tables import Roles, read_table
from iknow.tables.writing import writing
from tests.tables.making import write_table

WRITABLE = [".csv", ".npz", ".parquet"]
FLOATS = np.array([0.1, -1e-300, np.nan, 1 / 3, np.inf])


@pytest.mark.parametrize("ending", WRITABLE)
@pytest.mark.parametrize(
    "labels", [np.array(["a,b", 'q"q', " é\r", "1", "x\n"]), np.array([3, -1, 0, 2**62, 3])]
)
def test_columns_that_are_written_are_read_back_exactly(tmp_path, ending, labels):
    write_table(tmp_path / f"t{ending}", {"X": FLOATS, "y": labels})
    table = read_table(tmp_path / f"t{ending}", label="y")
    np.testing.assert_array_equal(table.features, FLOATS[:, None])
    np.testing.assert_array_equal(table.labels, labels, strict=True)


def test_an_array_saved_by_numpy_is_read_back_exactly(tmp_path):
    np.save(tmp_path / "X.npy", FLOATS[:, None])
    np.testing.assert_array_equal(read_table(tmp_path / "X.npy").features, FLOATS[:, None])


@pytest.mark.parametrize("ending", WRITABLE)
def test_objects_that_are_strings_are_written_as_strings(tmp_path, ending):
    path = tmp_path / f"t{ending}"
    write_table(path, {"X": [1, 2], "y": np.array(["a", "bcd"], dtype=object)})
    assert read_table(path, label="y").labels.tolist() == ["a", "bcd"]


def test_an_archive_may_have_any_column_name(tmp_path):
    names = ["file", "args", "allow_pickle", "a b", "é"]
    write_table(tmp_path / "t.npz", {name: [j] for j, name in enumerate(names)})
    with np.load(tmp_path / "t.npz", allow_pickle=False) as archive:
        assert {name: archive[name].tolist() for name in archive} == {
            name: [j] for j, name in enumerate(names)
        }


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_ids_of_a_file_that_is_read_in_parts_are_those_of_every_part(tmp_path, monkeypatch, ending):
    monkeypatch.setattr("iknow.tables.table.MOST_ROWS", 2)
    ids = [f"{i:03d}" for i in range(5)]
    write_table(tmp_path / f"t.{ending}", {"a": np.arange(5.0), "n": ids})
    table = read_table(tmp_path / f"t.{ending}", roles=Roles(id="n"))
    assert table.features.shape == (5, 1)
    assert table.ids.to_pylist() == ids


def test_a_column_may_begin_with_nothing_or_with_whole_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr("iknow.tables.columns.JSON_PART", 1)
    lines = ['{"a": 1, "t": null, "n": 7}', '{"a": 1.5, "t": "x", "n": 8.5}']
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    table = read_table(tmp_path / "t.jsonl", roles=Roles(id="n"), mixed=True)
    assert table.features["a"].tolist() == [1, 1.5]
    assert table.features["t"].tolist()[1:] == ["x"]
    assert table.ids.to_pylist() == [7, 8.5]
    with pytest.raises(InputError, match=r"column 't' of .* must hold numbers"):
        read_table(tmp_path / "t.jsonl")


def test_endings_may_be_in_capitals_and_paths_text(tmp_path):
    write_table(str(tmp_path / "T.CSV"), {"a": [1]})
    assert read_table(str(tmp_path / "T.CSV")).feature_names == ("a",)


@pytest.mark.parametrize("ending", WRITABLE)
def test_a_failed_replacement_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, ending):
    path = tmp_path / f"t{ending}"
    write_table(path, {"a": [1]})
    before = path.read_bytes()

    def refuse(*_):
        raise PermissionError("no")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError, match="no"):
        write_table(path, {"a": [2]})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("ending", WRITABLE)
@pytest.mark.parametrize("existed", [True, False])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, ending, existed):
    resource = pytest.importorskip("resource")
    path = tmp_path / f"t{ending}"
    if existed:
        write_table(path, {"a": [1]})
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        # Past this size the kernel refuses to write; Python ignores the signal that goes with it.
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
        with pytest.raises(OSError, match="File too large") as caught:
            write_table(path, {"a": np.random.default_rng(0).normal(size=20_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("ending", [*WRITABLE, ".arrow", ".jsonl"])
def test_a_writer_that_is_interrupted_halfway_leaves_the_old_file_and_says_nothing(
    tmp_path, ending, capfd
):
    path = tmp_path / f"t{ending}"
    write_table(path, {"X": [1]})
    before = path.read_bytes()

    def interrupted():
        with writing(path, ending[1:]) as write:
            write({"X": [2]})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    gc.collect()  # of what was left open, which Python would complain about
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    assert capfd.readouterr().err == ""


def test_writing_through_a_link_keeps_the_link(tmp_path):
    write_table(tmp_path / "real.csv", {"a": [1]})
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    write_table(tmp_path / "link.csv", {"a": [2]})
    assert (tmp_path / "link.csv").is_symlink()
    np.testing.assert_array_equal(read_table(tmp_path / "real.csv").features, [[2]])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "nothing to write"),
        ({"a": [1, 2], "b": [1]}, "samples differ: 'a' has 2, 'b' has 1"),
        ({"a": [[1]]}, r"column 'a' must hold .* along one axis; .* of shape \(1, 1\)"),
        ({"a": np.array([{}])}, "column 'a' must hold numbers, bools or strings .* of object"),
        ({"a": np.array([1j])}, "got an array of complex128"),
    ],
)
def test_columns_that_cannot_be_written_are_refused(tmp_path, columns, message):
    with pytest.raises(InputError, match=message):
        write_table(tmp_path / "t.csv", columns)
    assert list(tmp_path.iterdir()) == []


def test_named_columns_do_not_fit_a_single_array(tmp_path):
    with pytest.raises(
        InputError, match=r"named columns, only one array: expected a file ending in \.csv"
    ):
        write_table(tmp_path / "t.npy", {"a": [1], "b": [2]})


def test_another_ending_names_the_supported_ones(tmp_path):
    with pytest.raises(InputError, match=r"t\.xlsx .* \.csv, .*\.parquet, .*\.npz or \.npy"):
        read_table(tmp_path / "t.xlsx")
    with pytest.raises(InputError, match=r"t\.xlsx .* \.csv, .*\.feather or \.npz"):
        write_table(tmp_path / "t.xlsx", {"a": [1]})


@pytest.mark.parametrize("ending", [*WRITABLE, ".npy"])
def test_a_missing_file_is_named(tmp_path, ending):
    with pytest.raises(InputError, match=rf"there is no file .*nowhere\{ending}"):
        read_table(tmp_path / f"nowhere{ending}")


def test_a_missing_file_of_labels_is_named(tmp_path):
    write_table(tmp_path / "t.csv", {"a": [1]})
    with pytest.raises(InputError, match=r"there is no file .*y\.csv"):
        read_table(tmp_path / "t.csv", labels_path=tmp_path / "y.csv")


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(InputError, match=r"cannot be written: the folder .*nowhere does not exist"):
        write_table(tmp_path / "nowhere" / "t.csv", {"a": [1]})


def test_importing_tables_does_not_load_pyarrow():
    # scikit-learn loads pandas, which loads pyarrow, where they are installed.
    code = "import sys; sys.modules['pandas'] = None; import iknow.tables; "
    code += "sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
