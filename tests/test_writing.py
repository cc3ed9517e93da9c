import pytest

from iknow import writing
from iknow.writing import write_bytes


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_file_is_the_old_one_or_the_new_one(tmp_path, monkeypatch, step):
    path = tmp_path / "new" / "folder" / "a"
    assert write_bytes(path, b"old") == path
    assert path.read_bytes() == b"old"

    def fail(*arguments):
        raise OSError("disk full")

    monkeypatch.setattr(writing.os, step, fail)
    with pytest.raises(OSError, match="disk full"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]
    monkeypatch.undo()
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
