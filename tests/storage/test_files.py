"""Writing: the old file or the new one, and nothing that is no file is replaced."""

import os
import socket
import stat
import subprocess
import sys
import threading

import pytest

from iknow.errors import InputError
from iknow.storage import files as writing
from iknow.storage.files import replacing, write_bytes

as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may do this"
)


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


# Permissions


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_new_file_has_the_permissions_that_open_would_give_it(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_bytes(tmp_path / "a", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o777, 0o400])
def test_a_replaced_file_keeps_its_permissions_at_every_moment(tmp_path, mode):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(mode)
    with replacing(path) as file:
        file.write(b"new")
        (temporary,) = (p for p in tmp_path.iterdir() if p != path)
        assert stat.S_IMODE(temporary.stat().st_mode) == mode
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


@as_root
def test_a_replaced_file_keeps_its_owner_and_group(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    os.chown(path, 1234, 5678)
    path.chmod(0o4750)
    write_bytes(path, b"new")
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1234, 5678, 0o4750)


@pytest.mark.parametrize(
    ("mode", "kept"), [(0o660, 0o600), (0o644, 0o644), (0o754, 0o744), (0o6755, 0o755)]
)
def test_a_group_that_cannot_be_kept_passes_no_rights_to_another(tmp_path, monkeypatch, mode, kept):
    def forbid(*arguments):
        raise PermissionError

    path = tmp_path / "a"
    path.touch()
    existing = path.stat()
    owner = (existing.st_uid + 1, existing.st_gid + 1)
    other = os.stat_result((mode, *existing[1:4], *owner, 0, 0, 0, 0))
    monkeypatch.setattr(writing.os, "fchown", forbid)
    with path.open("r+b") as file:
        writing._keep_owner_and_mode(file.fileno(), other)
    assert stat.S_IMODE(path.stat().st_mode) == kept


# What is no file


def read_in_background(pipe):
    """Start to read a named pipe; the list holds what came once the thread has ended."""
    found = []
    thread = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    thread.start()
    return thread, found


@pytest.mark.parametrize("by_link", [False, True])
def test_a_named_pipe_is_written_into_and_stays_a_pipe(tmp_path, by_link):
    pipe = path = tmp_path / "pipe"
    os.mkfifo(pipe)
    if by_link:
        path = tmp_path / "link"
        path.symlink_to("pipe")
    thread, found = read_in_background(pipe)
    with replacing(path) as file:
        file.write(b"bbb")
        file.seek(0)  # as writers of some formats do
        file.write(b"a")
    thread.join(10)
    assert found == [b"abb"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert {p.name for p in tmp_path.iterdir()} <= {"pipe", "link"}


def test_nothing_goes_into_a_pipe_if_writing_fails(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    thread, found = read_in_background(tmp_path / "pipe")

    def write_half():
        with replacing(tmp_path / "pipe") as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    thread.join(10)
    assert found == [b""]


@as_root
@pytest.mark.parametrize("by_link", [False, True])
def test_a_device_is_written_into_and_stays_a_device(tmp_path, by_link):
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device.write_bytes(b"")
    except PermissionError:
        pytest.skip("devices cannot be made here")
    (tmp_path / "link").symlink_to("null")
    write_bytes(tmp_path / "link" if by_link else device, b"gone")
    assert stat.S_ISCHR(device.stat().st_mode)
    assert device.stat().st_rdev == os.makedev(1, 3)
    assert len(list(tmp_path.iterdir())) == 2


def test_dev_null_takes_everything():
    before = os.stat("/dev/null")
    if before.st_uid == os.geteuid():
        pytest.skip("the test above does this with a device of its own")
    write_bytes(writing.Path("/dev/null"), b"gone")
    assert os.path.samestat(before, os.stat("/dev/null"))


WRITE_TO_DESCRIPTORS = """
from pathlib import Path
from iknow.storage.files import write_bytes

print("first")
for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/dev/../dev/stdout"):
    write_bytes(Path(name), name.encode() + bytes([10]))
"""


@pytest.mark.parametrize("into", ["pipe", "file"])
def test_standard_output_goes_where_the_shell_sent_it(tmp_path, into):
    """Also if that is a file to which the shell appends."""
    command = [sys.executable, "-c", WRITE_TO_DESCRIPTORS]
    expected = b"first\n/dev/stdout\n/dev/fd/1\n/proc/self/fd/1\n/dev/../dev/stdout\n"
    if into == "pipe":
        assert subprocess.run(command, capture_output=True, check=True).stdout == expected
    else:
        log = tmp_path / "log"
        log.write_bytes(b"old ")
        inode = log.stat().st_ino
        with log.open("ab") as stream:
            subprocess.run(command, stdout=stream, check=True)
        assert log.read_bytes() == b"old " + expected
        assert log.stat().st_ino == inode
        assert list(tmp_path.iterdir()) == [log]


def test_a_folder_or_socket_is_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "socket"))
    server.close()
    for name, kind in [("folder", "a folder"), ("socket", "a socket")]:
        with pytest.raises(InputError, match=f"{name} cannot be written: it is {kind}"):
            write_bytes(tmp_path / name, b"new")
    assert {p.name for p in tmp_path.iterdir()} == {"folder", "socket"}


@as_root
def test_a_block_device_is_refused(tmp_path):
    try:
        os.mknod(tmp_path / "disk", 0o666 | stat.S_IFBLK, os.makedev(7, 250))
    except PermissionError:
        pytest.skip("devices cannot be made here")
    with pytest.raises(InputError, match="it is a block device"):
        write_bytes(tmp_path / "disk", b"new")
    assert stat.S_ISBLK((tmp_path / "disk").stat().st_mode)


def test_names_that_lead_nowhere_are_refused(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    for name in ("loop", "nul\0", "file/a", "missing/a"):
        with pytest.raises(InputError, match="cannot be written"), replacing(tmp_path / name):
            pass
    assert {p.name for p in tmp_path.iterdir()} == {"loop", "file"}


def test_a_name_as_long_as_the_system_allows_can_be_written_and_cleaned_up_after(tmp_path):
    path = tmp_path / ("é" * 127)
    write_bytes(path, b"old")
    abandoned = tmp_path / f"{writing._stem(path)}0123456789abcdef.tmp"
    abandoned.touch()
    write_bytes(path, b"new")
    assert list(tmp_path.iterdir()) == [path]


# Several writers


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path):
    path = tmp_path / "a"
    (tmp_path / ".a.0123456789abcdef.tmp").write_bytes(b"half")
    others = [".a.0123456789abcde.tmp", ".b.0123456789abcdef.tmp", ".a.tmp", "a.tmp", "xa.0.tmp"]
    for name in others:
        (tmp_path / name).write_bytes(b"precious")
    (tmp_path / ".a.00000000000000ff.tmp").mkdir()
    (tmp_path / ".a.00000000000000fe.tmp").symlink_to("a.tmp")
    write_bytes(path, b"new")
    kept = {"a", ".a.00000000000000ff.tmp", ".a.00000000000000fe.tmp", *others}
    assert {p.name for p in tmp_path.iterdir()} == kept


def test_a_writer_at_work_keeps_its_file_while_another_writes_the_same(tmp_path):
    path = tmp_path / "a"
    with replacing(path) as slow:
        slow.write(b"slow")
        write_bytes(path, b"quick")
        assert path.read_bytes() == b"quick"
        slow.write(b"er")
    assert path.read_bytes() == b"slower"
    assert list(tmp_path.iterdir()) == [path]


def test_a_sibling_removed_before_it_was_locked_is_made_anew(tmp_path, monkeypatch):
    """Another writer may see the file in the moment between its making and its locking."""
    lock = writing.lock
    n_locks = []

    def lock_too_late(descriptor, *, wait):
        n_locks.append(wait)
        if len(n_locks) == 1:
            for sibling in tmp_path.iterdir():
                sibling.unlink()
        return lock(descriptor, wait=wait)

    monkeypatch.setattr(writing, "lock", lock_too_late)
    write_bytes(tmp_path / "a", b"new")
    assert n_locks == [True, True]
    assert (tmp_path / "a").read_bytes() == b"new"
    assert len(list(tmp_path.iterdir())) == 1


def test_without_locks_nothing_is_removed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    (tmp_path / ".a.0123456789abcdef.tmp").write_bytes(b"perhaps at work")
    write_bytes(tmp_path / "a", b"new")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".a.0123456789abcdef.tmp", "a"]
