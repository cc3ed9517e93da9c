"""Data files: found, downloaded or refused, and never half of one taken for a whole."""

import hashlib
import io
import socket
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import reproduction.data
from iknow.errors import DataError, MissingExtraError
from reproduction.data import sources
from reproduction.data.checksum import DataFile, content_digest
from reproduction.data.files import cache_folder, find_files
from reproduction.data.making import Download, Source

CONTENT = bytes(range(256)) * 1000


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, and no folder given."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("IKNOW_DATA", raising=False)
    return tmp_path / "cache" / "iknow" / "data"


@pytest.fixture
def given(tmp_path, monkeypatch):
    """A folder that IKNOW_DATA names."""
    monkeypatch.setenv("IKNOW_DATA", str(tmp_path / "given"))
    (tmp_path / "given").mkdir()
    return tmp_path / "given"


@pytest.fixture
def dead():
    """The address of a server that is not there."""
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        port = it.getsockname()[1]
    return f"http://127.0.0.1:{port}"


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def plain(*homes, content=CONTENT):
    """A source of one file, published as it is used."""
    return Source(
        files=(DataFile("some/a.bin", sha256(content), len(content)),),
        downloads=(
            Download(tuple(f"{home}/a.bin" for home in homes), f"sha256:{sha256(content)}"),
        ),
    )


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def files_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_given_file_is_used_and_nothing_is_asked_for(given, cache, server):
    path = put(given / "some/a.bin", CONTENT)
    put(cache / "some/a.bin", CONTENT)
    assert find_files(plain(server.url)) == [path]
    assert not server.requests


def test_a_cached_file_is_used_and_nothing_is_asked_for(given, cache, server):
    path = put(cache / "some/a.bin", CONTENT)
    assert find_files(plain(server.url)) == [path]
    assert not server.requests


def test_a_download_is_kept(server, given, cache):
    server.pages["/a.bin"] = CONTENT
    for _ in range(2):
        assert find_files(plain(server.url)) == [cache / "some/a.bin"]
    assert (cache / "some/a.bin").read_bytes() == CONTENT
    assert server.requests == ["/a.bin"]
    assert files_in(cache) == ["some/a.bin"]
    assert not files_in(given)


@pytest.mark.parametrize("where", ["given", "cache"])
@pytest.mark.parametrize(
    "content", [b"", CONTENT[:-1], b"x" + CONTENT[1:]], ids=["empty", "truncated", "changed"]
)
def test_a_damaged_file_is_refused_and_left_alone(where, content, server, given, cache):
    path = put({"given": given, "cache": cache}[where] / "some/a.bin", content)
    server.pages["/a.bin"] = CONTENT
    with pytest.raises(DataError) as caught:
        find_files(plain(server.url))
    for part in (path, "256,000 bytes", sha256(CONTENT), f"{len(content):,} bytes", "replace"):
        assert str(part) in str(caught.value)
    assert sha256(content) in str(caught.value)
    assert path.read_bytes() == content
    assert not server.requests


def truncated(server):
    server.pages["/a.bin"], server.announced["/a.bin"] = CONTENT[:1000], len(CONTENT)


def truncated_unannounced(server):
    server.pages["/a.bin"] = CONTENT[:1000]


def sign_in_page(server):
    server.pages["/a.bin"] = b"<html>Please sign in</html>"


def nothing(server):
    pass


@pytest.mark.parametrize(
    ("fail", "reason"),
    [
        (truncated, r"1000 bytes read, 255000 more expected"),
        (truncated_unannounced, "does not match the known hash"),
        (sign_in_page, "does not match the known hash"),
        (nothing, "404"),
    ],
)
def test_a_failed_download_leaves_nothing_and_can_be_repeated(fail, reason, server, cache):
    fail(server)
    with pytest.raises(DataError, match=reason):
        find_files(plain(server.url))
    assert not list(cache.iterdir())
    server.pages["/a.bin"], server.announced = CONTENT, {}
    assert find_files(plain(server.url))[0].read_bytes() == CONTENT


@pytest.mark.parametrize("fail", [truncated, sign_in_page, nothing])
def test_the_next_address_is_tried(fail, server, dead, cache):
    fail(server)
    server.pages["/mirror/a.bin"] = CONTENT
    (path,) = find_files(plain(dead, server.url, f"{server.url}/mirror"))
    assert path.read_bytes() == CONTENT
    assert server.requests == ["/a.bin", "/mirror/a.bin"]


def test_offline_the_error_says_what_to_put_where(dead, given, cache):
    with pytest.raises(DataError) as caught:
        find_files(plain(dead, f"{dead}/mirror"))
    for part in ("some/a.bin", f"{dead}/a.bin", f"{dead}/mirror/a.bin", given, cache, "IKNOW_DATA"):
        assert str(part) in str(caught.value)


def test_an_interrupted_download_leaves_nothing(server, cache, monkeypatch):
    server.pages["/a.bin"] = CONTENT

    def interrupted(response, chunk_size):
        yield response.raw.read(1000)
        raise KeyboardInterrupt

    monkeypatch.setattr("requests.Response.iter_content", interrupted)
    with pytest.raises(KeyboardInterrupt):
        find_files(plain(server.url))
    assert server.requests == ["/a.bin"]
    assert not list(cache.iterdir())


def test_what_a_crash_left_is_not_taken_for_data(server, cache):
    put(cache / ".unfinished-1" / "a.bin", CONTENT[:10])
    server.pages["/a.bin"] = CONTENT
    assert find_files(plain(server.url))[0].read_bytes() == CONTENT


def test_a_file_where_the_cache_should_be(server, cache):
    put(cache, b"")
    with pytest.raises(DataError, match=r"some/a\.bin"):
        find_files(plain(server.url))


def test_a_given_folder_that_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("IKNOW_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"nowhere.*unset"):
        find_files(plain("http://somewhere"))


def zipped(**members):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            archive.writestr(f"folder/{name}", member)
    return content.getvalue()


def upper(downloads, targets):
    """Make files of the members of a zip archive, in capitals."""
    with zipfile.ZipFile(downloads[0]) as archive:
        for target in targets:
            target.write_bytes(archive.read(f"folder/{target.name}").upper())


def two_of_one(home):
    files = tuple(DataFile(f"some/{c}", sha256(c.upper().encode() * 99)) for c in "ab")
    return Source(files, (Download((f"{home}/both.zip",)),), lambda: upper)


def test_several_files_of_one_archive_come_together(server, given, cache):
    server.pages["/both.zip"] = zipped(a="a" * 99, b="b" * 99)
    put(given / "some/a", b"A" * 99)
    assert find_files(two_of_one(server.url)) == [given / "some/a", cache / "some/b"]
    assert server.requests == ["/both.zip"]
    assert files_in(cache) == ["some/a", "some/b"]


def damaged(archive, where):
    return archive[:where] + b"damage" + archive[where + 6 :]


@pytest.mark.parametrize(
    "archive",
    [
        b"no archive",
        zipped(a="a" * 99),
        zipped(a="a" * 99, b="c" * 99),
        zipped(a="a" * 99, b="b" * 99)[:-30],
        damaged(zipped(a="a" * 99, b="b" * 99), 38),
    ],
    ids=["foreign", "member missing", "member changed", "truncated", "damaged"],
)
def test_an_archive_that_is_not_as_expected_yields_no_file_at_all(archive, server, cache):
    server.pages["/both.zip"] = archive
    with pytest.raises(DataError, match=r"some/a and some/b.*both\.zip"):
        find_files(two_of_one(server.url))
    assert not list(cache.iterdir())


def npz(path, save=np.savez, **arrays):
    path.parent.mkdir(parents=True, exist_ok=True)
    save(path, **arrays)
    return path


X, Y = np.arange(6, dtype=np.uint8).reshape(2, 3), np.array([0, 1], dtype=np.uint8)


def test_the_digest_of_arrays_does_not_depend_on_their_compression(tmp_path):
    expected = content_digest(npz(tmp_path / "a.npz", x=X, y=Y))
    assert content_digest(npz(tmp_path / "b.npz", np.savez_compressed, y=Y, x=X, z=X)) == expected
    assert content_digest(npz(tmp_path / "c.npz", x=np.asfortranarray(X), y=Y)) == expected
    for i, (x, y) in enumerate([(X + 1, Y), (X, Y + 1), (X.reshape(3, 2), Y), (X.view("i1"), Y)]):
        assert content_digest(npz(tmp_path / f"{i}.npz", x=x, y=y)) != expected


def test_damaged_arrays_are_refused(given, tmp_path):
    path = npz(given / "a.npz", np.savez_compressed, x=X, y=Y)
    source = Source((DataFile("a.npz", content_digest(path)),), ())
    assert find_files(source) == [path]
    whole = path.read_bytes()
    np.save(tmp_path / "bare.npy", X)
    one_array = (tmp_path / "bare.npy").read_bytes()
    without_y = npz(tmp_path / "x.npz", x=X).read_bytes()
    for content in (b"", whole[:100], whole[:-1], damaged(whole, 60), one_array, without_y):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"a\.npz is damaged or another file.*replace"):
            find_files(source)


def test_without_pillow_nothing_is_downloaded(monkeypatch):
    monkeypatch.delattr(reproduction.data, "gtsrb", raising=False)
    monkeypatch.setitem(sys.modules, "reproduction.data.gtsrb", None)
    monkeypatch.setattr("requests.get", lambda *_, **__: pytest.fail("asked"))
    for source in (sources.GTSRB_TRAINING, sources.GTSRB_TEST):
        with pytest.raises(MissingExtraError, match=r"iknow\[reproduction\]"):
            find_files(source)


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("linux", "home/.cache/iknow/data"),
        ("darwin", "home/Library/Caches/iknow/data"),
        ("win32", "home/AppData/Local/iknow/data"),
    ],
)
@pytest.mark.parametrize("chosen", [None, "", "relative"])
def test_the_cache_is_where_the_system_keeps_caches(
    platform, expected, chosen, tmp_path, monkeypatch
):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME")
    if chosen is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", chosen)
    assert cache_folder() == tmp_path / expected
