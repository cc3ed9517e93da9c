"""Files that only this user can have written; all else is refused."""

import os
import resource

import pytest

from iknow.search.cpu import trusted_files as caching
from iknow.search.cpu.trusted_files import TrustedFolder, UnsafeError, make_user_cache

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept"


@pytest.fixture
def folder(path):
    trusted = TrustedFolder(path)
    trusted.write("x", b"content")
    return trusted


def test_what_is_written_is_read_and_private(folder, path):
    assert folder.read("x") == b"content"
    folder.write("x", b"other")
    assert folder.read("x") == b"other"
    assert path.stat().st_mode & 0o777 == 0o700
    assert (path / "x").stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.iterdir()] == ["x"]


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_folder_that_others_may_write_is_refused(folder, path, mode):
    path.chmod(mode)
    with pytest.raises(UnsafeError, match=r"others can write to .*kept \(mode d"):
        folder.read("x")
    with pytest.raises(UnsafeError):
        folder.write("y", b"")
    assert [file.name for file in path.iterdir()] == ["x"]


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_is_refused(folder, path, mode):
    (path / "x").chmod(mode)
    with pytest.raises(UnsafeError, match=r"others can write to .*kept/x"):
        folder.read("x")


@needs_root
@pytest.mark.parametrize("name", [".", "x"])
def test_what_belongs_to_somebody_else_is_refused(folder, path, name):
    os.chown(path / name, 12345, -1)
    with pytest.raises(UnsafeError, match="belongs to user 12345; this process runs as user 0"):
        folder.read("x")


def test_links_are_not_followed(folder, path, tmp_path):
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OSError, match="link"):
        TrustedFolder(tmp_path / "link").read("x")
    (path / "y").symlink_to(path / "x")
    with pytest.raises(OSError, match="y"):
        folder.read("y")


@pytest.mark.parametrize("n_bytes", [0, 10, 32, 38])
def test_a_file_cut_short_is_damaged(folder, path, n_bytes):
    os.truncate(path / "x", n_bytes)
    with pytest.raises(OSError, match="is damaged"):
        folder.read("x")


def test_a_full_disk_leaves_what_was_there_and_nothing_else(folder, path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            folder.write("x", bytes(1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert folder.read("x") == b"content"
    assert [file.name for file in path.iterdir()] == ["x"]


def test_the_users_folder_is_made_private_and_refused_if_others_may_write_it(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a" / "b"))
    folder = make_user_cache()
    assert folder == tmp_path / "a" / "b" / "iknow"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert make_user_cache() == folder
    folder.chmod(0o775)
    with pytest.raises(UnsafeError, match=r"others can write to .*iknow"):
        make_user_cache()


def test_without_owners_and_descriptors_names_are_used(monkeypatch, path):
    """As on Windows."""
    monkeypatch.setattr(caching, "_HAS_OWNERS", False)
    folder = TrustedFolder(path)
    folder.write("x", b"content")
    folder.write("x", b"other")
    assert folder.read("x") == b"other"
