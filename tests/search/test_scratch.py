"""Scratch files: what they hold, what they leave behind, and what they say of a full disk."""

import errno
import gc
import os

import numpy as np
import pytest

from iknow.errors import InputError
from iknow.pages import find_map
from iknow.search import scratch


def test_rows_are_written_where_they_belong_and_mapped(tmp_path):
    rows = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    order = np.random.default_rng(1).permutation(50)
    pieces = (rows[start : start + 8] for start in range(0, 50, 8))
    written = scratch.write_rows(tmp_path / "new" / "folder", order, 3, pieces)
    np.testing.assert_array_equal(written, rows[order])
    assert find_map(written) is not None
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    assert scratch.write_rows(None, order[:0], 3, ()).shape == (0, 3)


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="only Linux lists open files")
def test_a_file_is_closed_with_its_last_user(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    rows = scratch.write_rows(tmp_path, np.arange(9), 1, [np.zeros((9, 1))])
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) > before
    del rows
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_disk_without_room_is_told_before_anything_is_written(tmp_path, monkeypatch):
    usage = scratch.shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(scratch.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(InputError, match=r"needs room for 14,400 bytes; 1,000 are free: choose"):
        scratch.write_rows(tmp_path, np.arange(300), 12, ())


def test_a_disk_that_fills_up_meanwhile_is_told(tmp_path):
    file = scratch.ScratchFile(tmp_path)
    file._file = FullDisk(file._file)
    with pytest.raises(InputError, match="is full: make room, or choose"):
        file.write(np.zeros(9), 0)


class FullDisk:
    def __init__(self, real):
        self.seek = real.seek

    def write(self, content):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_what_is_no_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be used as a folder"):
        scratch.as_folder(tmp_path / "file")
    with pytest.raises(InputError, match="folder must be the name of a folder; got 3"):
        scratch.as_folder(3)
