"""What is compiled is kept, by the content of its sources; without a place, all still works."""

import hashlib
import os
import pickle
import resource
import subprocess
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest

numba = pytest.importorskip("numba")

from iknow.search.kernels.numba import compile as caching  # noqa: E402
from iknow.search.kernels.numba.compile import (  # noqa: E402
    UnsafeError,
    compiled,
    read_file,
    write_file,
)

COMPILED, READ = (0, 1), (1, 0)


def double(x):
    return 2 * x


def use():
    """Use the function as a new process would: was it compiled, or read?"""
    function = compiled(double)
    assert function(21) == 42
    counts = function.stats.cache_hits, function.stats.cache_misses
    return tuple(sum(count.values()) for count in counts)


@pytest.fixture
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    caching._warn_once.cache_clear()
    return tmp_path


def find_entry(home):
    (folder,) = (home / "iknow").iterdir()
    (entry,) = folder.iterdir()
    return entry


def test_what_was_compiled_is_read_and_heals_where_it_is_damaged(home):
    assert use() == COMPILED
    assert use() == READ
    entry = find_entry(home)
    assert entry.name.startswith("double-")
    assert entry.parent.name.startswith("compiled-")
    whole = entry.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for damaged in (whole[:middle], b"", flipped):
        entry.write_bytes(damaged)
        assert use() == COMPILED
        assert use() == READ


def test_another_process_reads_what_this_one_compiled(home):
    from iknow.search.kernels.numba.products import measure

    program = """
import numpy as np
from iknow.search.kernels.numba.products import measure
points = np.array([[3, 4]], dtype=np.float32)
assert measure(np.zeros((1, 2), dtype=np.float32), 0, points, 0) == 5
print(sum(measure.stats.cache_hits.values()))
"""
    again = compiled(measure.py_func)
    arguments = ("float32[:, ::1]", "int64", "float32[:, ::1]", "int64")
    again.compile(
        tuple(numba.typeof(0) if a == "int64" else numba.float32[:, ::1] for a in arguments)
    )
    command = [sys.executable, "-W", "error", "-c", program]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["1"]


def plant(entry, content):
    entry.write_bytes(hashlib.sha256(content).digest() + content)


def test_what_cannot_be_understood_is_compiled_again(home):
    assert use() == COMPILED
    plant(find_entry(home), pickle.dumps(["of", "another", "time"]))
    assert use() == COMPILED


@contextmanager
def full_disk(monkeypatch):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def no_home(monkeypatch):
    def home(cls):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", classmethod(home))
    yield


@contextmanager
def read_only(monkeypatch):
    def mkdir(self, *args, **options):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", mkdir)
    yield


@pytest.mark.parametrize("trouble", [full_disk, no_home, read_only])
def test_without_a_place_to_keep_it_it_is_compiled_all_the_same(home, trouble, monkeypatch):
    with trouble(monkeypatch), pytest.warns(UserWarning, match="compile") as warned:
        assert use() == use() == COMPILED
    (told,) = warned  # once
    assert "cannot be cached, so each process compiles it again" in str(told.message)
    assert "Set NUMBA_CACHE_DIR or XDG_CACHE_HOME to a folder" in str(told.message)
    assert [file for file in home.rglob("*") if file.is_file()] == []


@pytest.mark.parametrize("name", ["file", "file/iknow"])
def test_a_file_in_the_place_of_the_folder_is_no_obstacle(home, name, monkeypatch):
    (home / name).parent.mkdir(exist_ok=True)
    (home / name).write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "file"))
    with pytest.warns(UserWarning, match="cannot be cached"):
        assert use() == COMPILED


def test_a_folder_chosen_for_numba_is_made(home, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(home / "not" / "there"))
    assert use() == COMPILED
    assert use() == READ
    assert list((home / "not" / "there").iterdir())


def test_a_folder_chosen_for_numba_that_cannot_be_made_is_named(home, monkeypatch):
    (home / "file").write_text("")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(home / "file" / "in"))
    with pytest.warns(UserWarning, match="NUMBA_CACHE_DIR=.*file/in: Not a directory"):
        assert use() == COMPILED


class Planted:
    """Runs code of the planter's when it is read."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def give_away(path):
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(path, 12345, -1)


TAMPERING = {
    "folder's mode": lambda entry: entry.parent.chmod(0o777),
    "parent's mode": lambda entry: entry.parent.parent.chmod(0o775),
    "file's mode": lambda entry: entry.chmod(0o666),
    "folder's owner": lambda entry: give_away(entry.parent),
    "parent's owner": lambda entry: give_away(entry.parent.parent),
    "file's owner": give_away,
}


@pytest.mark.parametrize("how", TAMPERING)
def test_code_that_somebody_else_may_have_put_there_is_not_run(home, how):
    assert use() == COMPILED
    entry, marker = find_entry(home), home / "marker"
    plant(entry, pickle.dumps(Planted(marker)))
    TAMPERING[how](entry)
    with pytest.warns(UserWarning, match="cannot be cached.*chmod go-w.*XDG_CACHE_HOME") as warned:
        assert use() == COMPILED
    assert not marker.exists()
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert use() in (COMPILED, READ)  # a file of another's was replaced by one of ours


def test_what_is_planted_does_run_where_it_is_trusted(home):
    """Or the test above would show nothing."""
    assert use() == COMPILED
    plant(find_entry(home), pickle.dumps(Planted(home / "marker")))
    assert use() == COMPILED
    assert (home / "marker").exists()


def test_a_folder_chosen_for_numba_is_kept_to(home, monkeypatch):
    (home / "chosen").mkdir()
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(home / "chosen"))
    assert use() == COMPILED
    assert use() == READ
    assert [file.name[:9] for file in (home / "chosen").iterdir()] == ["compiled-"]
    assert not (home / "iknow").exists()


def test_the_folder_changes_with_any_of_the_sources(monkeypatch, tmp_path):
    name_folder = caching._name_folder.__wrapped__
    before = name_folder()
    (tmp_path / "part").mkdir()
    for name in ("cache.py", "part/other.py"):
        (tmp_path / name).write_text("x = 1\n")
    monkeypatch.setattr(caching, "SEARCH", tmp_path)
    one = name_folder()
    (tmp_path / "part" / "other.py").write_text("x = 2\n")
    assert len({before, one, name_folder()}) == 3


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept"


@pytest.fixture
def folder(path):
    write_file(path, "x", b"content")
    return path


def test_what_is_written_is_read_and_private(folder, path):
    assert read_file(folder, "x") == b"content"
    write_file(folder, "x", b"other")
    assert read_file(folder, "x") == b"other"
    assert path.stat().st_mode & 0o777 == 0o700
    assert (path / "x").stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.iterdir()] == ["x"]


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_folder_that_others_may_write_is_refused(folder, path, mode):
    path.chmod(mode)
    with pytest.raises(UnsafeError, match=r"others can write to .*kept \(mode d"):
        read_file(folder, "x")
    with pytest.raises(UnsafeError):
        write_file(folder, "y", b"")
    assert [file.name for file in path.iterdir()] == ["x"]


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_is_refused(folder, path, mode):
    (path / "x").chmod(mode)
    with pytest.raises(UnsafeError, match=r"others can write to .*kept/x"):
        read_file(folder, "x")


@needs_root
@pytest.mark.parametrize("name", [".", "x"])
def test_what_belongs_to_somebody_else_is_refused(folder, path, name):
    os.chown(path / name, 12345, -1)
    with pytest.raises(UnsafeError, match="belongs to user 12345; this process runs as user 0"):
        read_file(folder, "x")


def test_links_are_not_followed(folder, path, tmp_path):
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OSError, match="link"):
        read_file(tmp_path / "link", "x")
    (path / "y").symlink_to(path / "x")
    with pytest.raises(OSError, match="y"):
        read_file(folder, "y")


@pytest.mark.parametrize("n_bytes", [0, 10, 32, 38])
def test_a_file_cut_short_is_damaged(folder, path, n_bytes):
    os.truncate(path / "x", n_bytes)
    with pytest.raises(OSError, match="is damaged"):
        read_file(folder, "x")


def test_a_full_disk_leaves_what_was_there_and_nothing_else(folder, path):
    with full_disk(None), pytest.raises(OSError, match="too large"):
        write_file(folder, "x", bytes(1000))
    assert read_file(folder, "x") == b"content"
    assert [file.name for file in path.iterdir()] == ["x"]


def test_the_users_folder_is_made_private(home, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "a" / "b"))
    assert use() == COMPILED
    assert (home / "a" / "b" / "iknow").stat().st_mode & 0o777 == 0o700
    assert use() == READ


def test_without_owners_and_descriptors_names_are_used(monkeypatch, path):
    """As on Windows."""
    monkeypatch.setattr(caching, "_HAS_OWNERS", False)
    folder = path
    write_file(folder, "x", b"content")
    write_file(folder, "x", b"other")
    assert read_file(folder, "x") == b"other"
