"""Downloads: the bar, and answers that are no files. The rest is tested through find_files."""

import io
import sys

import pytest

from iknow.errors import DataError, MissingExtraError
from reproduction.data.checksum import DataFile
from reproduction.data.files import find_files
from reproduction.data.making import Download, Source
from reproduction.data.pooch import download

CONTENT = bytes(range(256)) * 300


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stderr", [Terminal, io.StringIO])
def test_a_bar_on_standard_error_where_there_is_a_terminal(
    stderr, server, tmp_path, monkeypatch, capsys
):
    server.pages["/a.bin"] = CONTENT
    monkeypatch.setattr(sys, "stderr", stderr())
    download([f"{server.url}/a.bin"], None, tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == CONTENT
    assert ("100%" in sys.stderr.getvalue()) == (stderr is Terminal)
    assert stderr is Terminal or sys.stderr.getvalue() == ""
    assert capsys.readouterr().out == ""


def test_a_compressed_file_arrives_as_it_is_published(server, tmp_path):
    server.pages["/a.gz"] = CONTENT
    download([f"{server.url}/a.gz"], None, tmp_path / "target")
    assert server.headers["/a.gz"]["Accept-Encoding"] == "identity"


def test_a_length_that_is_not_as_announced(server, tmp_path):
    server.pages["/a.bin"], server.announced["/a.bin"] = CONTENT, len(CONTENT) + 1
    with pytest.raises(DataError, match=rf"{server.url}/a.bin: .* 1 more expected"):
        download([f"{server.url}/a.bin"], None, tmp_path / "target")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("url", ["no address", "unknown://somewhere/a", "http://[/a"])
def test_an_address_that_is_none(url, tmp_path):
    with pytest.raises(DataError, match="cannot download"):
        download([url], None, tmp_path / "target")


def test_an_md5_is_a_checksum_too(server, tmp_path):
    server.pages["/a"] = b"abc"
    known = "900150983cd24fb0d6963f7d28e17f72"  # of RFC 1321
    download([f"{server.url}/a"], f"md5:{known}", tmp_path / "target")
    with pytest.raises(DataError, match="expected md5:0" + known[1:]):
        download([f"{server.url}/a"], f"md5:0{known[1:]}", tmp_path / "other")


def test_without_pooch_the_extra_to_install_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("IKNOW_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "reproduction.data.pooch", None)
    with pytest.raises(MissingExtraError, match=r"downloading data .*'iknow\[reproduction\]'"):
        find_files(Source((DataFile("a", ""),), (Download(("http://somewhere/a",)),)))
