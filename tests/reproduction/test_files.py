"""Data files: found, downloaded or refused, and never half of one taken for a whole."""

import hashlib
import io
import os
import socket
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from iknow.errors import DataError, MissingExtraError
from reproduction.data import sources
from reproduction.data.files import (
    DataFile,
    Download,
    Source,
    cache_folder,
    content_digest,
    download,
    find_files,
)
from reproduction.data.sources import extract_members, extract_series, rewrite_series

pytestmark = pytest.mark.slow
DATA = os.environ.get("IKNOW_DATA")
real = pytest.mark.skipif(not DATA, reason="IKNOW_DATA names no folder")
CONTENT = bytes(range(256)) * 1000


class Server:
    """A web server on this machine. pages: by path, what to send; requests: the paths asked for."""

    def __init__(self):
        self.pages, self.requests, self.headers, self.announced = {}, [], {}, {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests.append(self.path)
                outer.headers[self.path] = self.headers
                page = outer.pages.get(self.path)
                if page is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(outer.announced.get(self.path, len(page))))
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    it = Server()
    thread = threading.Thread(target=it.http.serve_forever, args=(0.01,))
    thread.start()
    yield it
    it.http.shutdown()
    thread.join()
    it.http.server_close()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and no folder given."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("IKNOW_DATA", raising=False)
    return tmp_path / "cache" / "iknow" / "data"


@pytest.fixture
def given(tmp_path, cache, monkeypatch):
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
    urls = tuple(f"{home}/a.bin" for home in homes)
    file = DataFile("some/a.bin", sha256(content), len(content))
    return Source((file,), (Download(urls, f"sha256:{sha256(content)}"),))


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_given_file_comes_first_then_the_cache_then_a_download_that_is_kept(server, given, cache):
    server.pages["/a.bin"] = CONTENT
    for _ in range(2):
        assert find_files(plain(server.url)) == [cache / "some/a.bin"]
    assert server.requests == ["/a.bin"]
    assert [path.name for path in cache.rglob("*") if path.is_file()] == ["a.bin"]
    assert not list(given.iterdir())
    path = put(given / "some/a.bin", CONTENT)
    assert find_files(plain(server.url)) == [path]
    put(cache / ".unfinished-1" / "a.bin", CONTENT[:10])  # what a crash left
    path.unlink(), (cache / "some/a.bin").unlink()
    assert find_files(plain(server.url))[0].read_bytes() == CONTENT


@pytest.mark.parametrize("where", ["given", "cache"])
@pytest.mark.parametrize("content", [b"", CONTENT[:-1], b"x" + CONTENT[1:]])
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


FAILURES = {
    r"1000 bytes read, 255000 more expected": (CONTENT[:1000], len(CONTENT)),
    "does not match the known hash": (CONTENT[:1000], 1000),
    "does not match": (b"<html>Please sign in</html>", 27),
    "404": None,
}


@pytest.mark.parametrize("reason", FAILURES)
def test_a_failed_download_leaves_nothing_and_the_next_address_is_tried(
    reason, server, dead, cache
):
    if FAILURES[reason] is not None:
        server.pages["/a.bin"], server.announced["/a.bin"] = FAILURES[reason]
    with pytest.raises(DataError, match=reason):
        find_files(plain(server.url))
    assert not list(cache.iterdir())
    server.pages["/mirror/a.bin"] = CONTENT
    (path,) = find_files(plain(dead, server.url, f"{server.url}/mirror"))
    assert path.read_bytes() == CONTENT
    assert server.requests == ["/a.bin"] * 2 + ["/mirror/a.bin"]


def test_offline_the_error_says_what_to_put_where(dead, given, cache, monkeypatch):
    with pytest.raises(DataError) as caught:
        find_files(plain(dead, f"{dead}/mirror"))
    for part in ("some/a.bin", f"{dead}/a.bin", f"{dead}/mirror/a.bin", given, cache, "IKNOW_DATA"):
        assert str(part) in str(caught.value)
    monkeypatch.setenv("IKNOW_DATA", str(given / "nowhere"))
    with pytest.raises(DataError, match=r"nowhere.*unset"):
        find_files(plain(dead))
    monkeypatch.delenv("IKNOW_DATA")
    cache.rmdir()
    put(cache, b"")  # a file where the cache should be
    with pytest.raises(DataError, match=r"some/a\.bin"):
        find_files(plain(dead))


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


def damaged(content, where):
    return content[:where] + b"damage" + content[where + 6 :]


def test_several_files_of_one_archive_come_together_or_not_at_all(server, given, cache):
    whole = zipped(a="a" * 99, b="b" * 99)
    for wrong in (b"no archive", zipped(a="a" * 99), zipped(a="a" * 99, b="c" * 99), whole[:-30],
                  damaged(whole, 38)):  # fmt: skip
        server.pages["/both.zip"] = wrong
        with pytest.raises(DataError, match=r"some/a and some/b.*both\.zip"):
            find_files(two_of_one(server.url))
        assert not list(cache.iterdir())
    server.pages["/both.zip"] = whole
    put(given / "some/a", b"A" * 99)
    assert find_files(two_of_one(server.url)) == [given / "some/a", cache / "some/b"]
    assert sorted(path.name for path in (cache / "some").iterdir()) == ["a", "b"]


def npz(path, save=np.savez, **content):
    save(path, **content)
    return path


X, Y = np.arange(6, dtype=np.uint8).reshape(2, 3), np.array([0, 1], dtype=np.uint8)


def test_arrays_are_compared_by_their_values_and_damaged_ones_are_refused(given, tmp_path):
    path = npz(given / "a.npz", np.savez_compressed, x=X, y=Y)
    expected = content_digest(path)
    assert content_digest(npz(tmp_path / "b.npz", y=Y, x=X, z=X)) == expected
    assert content_digest(npz(tmp_path / "c.npz", x=np.asfortranarray(X), y=Y)) == expected
    for x, y in [(X + 1, Y), (X, Y + 1), (X.reshape(3, 2), Y), (X.view("i1"), Y)]:
        assert content_digest(npz(tmp_path / "d.npz", x=x, y=y)) != expected
    source = Source((DataFile("a.npz", expected),), ())
    assert find_files(source) == [path]
    whole, bare = path.read_bytes(), io.BytesIO()
    np.save(bare, X)
    without_y = npz(tmp_path / "x.npz", x=X).read_bytes()
    for wrong in (b"", whole[:100], whole[:-1], damaged(whole, 60), bare.getvalue(), without_y):
        path.write_bytes(wrong)
        with pytest.raises(DataError, match=r"a\.npz is damaged or another file.*replace"):
            find_files(source)


def test_a_missing_package_is_named_and_nothing_is_downloaded(cache, monkeypatch):
    monkeypatch.setattr("requests.get", lambda *_, **__: pytest.fail("asked"))
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingExtraError, match=r"downloading data .*'iknow\[reproduction\]'"):
        find_files(plain("http://somewhere"))
    monkeypatch.delattr(sys.modules["reproduction.data"], "gtsrb", raising=False)
    monkeypatch.setitem(sys.modules, "reproduction.data.gtsrb", None)
    for source in (sources.GTSRB_TRAINING, sources.GTSRB_TEST):
        with pytest.raises(MissingExtraError, match=r"iknow\[reproduction\]"):
            find_files(source)


@pytest.mark.parametrize(
    ("platform", "expected"),
    [("linux", ".cache"), ("darwin", "Library/Caches"), ("win32", "AppData/Local")],
)
@pytest.mark.parametrize("chosen", [None, "", "relative"])
def test_the_cache_is_where_the_system_keeps_caches(
    platform, expected, chosen, tmp_path, monkeypatch
):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("LOCALAPPDATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    if chosen is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", chosen)
    assert cache_folder() == tmp_path / expected / "iknow/data"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stderr", [Terminal, io.StringIO])
def test_a_download_shows_a_bar_and_arrives_as_it_is_published(
    stderr, server, tmp_path, monkeypatch, capsys
):
    server.pages["/a.gz"] = CONTENT
    monkeypatch.setattr(sys, "stderr", stderr())
    download([f"{server.url}/a.gz"], None, tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == CONTENT
    assert server.headers["/a.gz"]["Accept-Encoding"] == "identity"
    assert ("100%" in sys.stderr.getvalue()) == (stderr is Terminal)
    assert stderr is Terminal or sys.stderr.getvalue() == ""
    assert capsys.readouterr().out == ""


def test_addresses_that_are_none_and_checksums_of_other_kinds(server, tmp_path):
    for url in ("no address", "unknown://somewhere/a", "http://[/a"):
        with pytest.raises(DataError, match="cannot download"):
            download([url], None, tmp_path / "target")
    server.pages["/a"], known = b"abc", "900150983cd24fb0d6963f7d28e17f72"  # of RFC 1321
    download([f"{server.url}/a"], f"md5:{known}", tmp_path / "target")
    with pytest.raises(DataError, match="expected md5:0" + known[1:]):
        download([f"{server.url}/a"], f"md5:0{known[1:]}", tmp_path / "other")


values = st.floats(-1e4, 1e4).map(lambda value: float(f"{value:.8g}"))
tables = st.integers(1, 5).flatmap(
    lambda n: st.tuples(
        arrays(np.int64, n, elements=st.integers(1, 60)), arrays(float, (n, 3), elements=values)
    )
)


def written(labels, table, form, between, before=""):
    lines = (
        before + between.join([form % label, *(form % value for value in row)]) + "\n"
        for label, row in zip(labels, table, strict=True)
    )
    return "".join(lines).encode()


@for_all(tables, st.floats(1e-6, 1))
def test_every_form_of_the_same_numbers_is_rewritten_alike_and_others_are_not(data, change):
    labels, table = data
    expected = written(labels, table, "%.8g", "\t")
    for form in (("%.8g", "\t", ""), ("%.7e", "  ", "  "), ("%.16g", " "), ("%+.12e", "\t", " ")):
        assert rewrite_series(written(labels, table, *form)) == expected
    assert rewrite_series(expected.replace(b"\n", b"\r\n\r\n")) == expected
    other = table.copy()
    other[-1, -1] += change * max(1, abs(other[-1, -1]))
    assert rewrite_series(written(labels, other, "%.7e", " ")) != expected


def test_members_are_found_by_name_in_any_folder_and_missing_ones_are_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as it:
        for name, content in {"readme.txt": "about", "A_TRAIN.ts": "@data",
                              "A_TRAIN.txt": " 1.0 2.5e-01\n 2.0 -3\n",
                              "folder/A_TEST.tsv": "2\t1\n",
                              "folder/grid.csv": "x,y\r\n1,2\r\n"}.items():  # fmt: skip
            it.writestr(name, content)
    targets = [tmp_path / name for name in ("A_TRAIN.tsv", "A_TEST.tsv", "grid.csv")]
    extract_series([tmp_path / "a.zip"], targets[:2])
    extract_members([tmp_path / "a.zip"], targets[2:])
    found = [target.read_bytes() for target in targets]
    assert found == [b"1\t0.25\n2\t-3\n", b"2\t1\n", b"x,y\r\n1,2\r\n"]
    with pytest.raises(KeyError, match=r"B_TRAIN\.tsv or B_TRAIN\.txt"):
        extract_series([tmp_path / "a.zip"], [tmp_path / "B_TRAIN.tsv"])
    with pytest.raises(ValueError, match="could not convert"):
        rewrite_series(b"@relation ItalyPowerDemand\n")


def published_form(path):
    """A member of a zip archive for a table, in scientific notation for series; else the file."""
    content = path.read_bytes()
    if path.suffix == ".tsv":
        assert rewrite_series(content) == content
        rows = [map(float, line.split()) for line in content.decode().splitlines()]
        text = "".join("  " + "  ".join(f"{value:.7e}" for value in row) + "\n" for row in rows)
        return f"{path.stem}.txt", text.encode()
    return path.name, content


@real
@pytest.mark.parametrize(
    "name", ["MNIST_TRAIN_IMAGES", "MNIST_TRAIN_LABELS", "MNIST_TEST_IMAGES", "MNIST_TEST_LABELS",
             "GRID_STABILITY", "ITALY_POWER_DEMAND", "SYNTHETIC_CONTROL"],
)  # fmt: skip
def test_what_is_published_gives_the_files(name, cache, monkeypatch):
    source, asked = getattr(sources, name), []
    originals = [Path(DATA) / file.name for file in source.files]

    def fetch(self, url, output_file, pooch):
        asked.append(url)
        members = [published_form(path) for path in originals]
        if not url.endswith(".zip"):
            Path(output_file).write_bytes(members[0][1])
            return
        with zipfile.ZipFile(output_file, "w") as archive:
            for member in members:
                archive.writestr(*member)

    monkeypatch.setattr("pooch.HTTPDownloader.__call__", fetch)
    made = find_files(source)
    assert [path.read_bytes() for path in made] == [path.read_bytes() for path in originals]
    assert [path.stat().st_size for path in made] == [file.size for file in source.files]
    assert asked == [source.downloads[0].urls[0]]
