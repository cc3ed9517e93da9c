"""Downloads: the bar, and answers that are no files. The rest is tested through find_files."""

import io
import sys

import pytest

from iknow.errors import DataError
from reproduction.data.download import CHUNK, Download, download

CONTENT = bytes(CHUNK + 1)


class Response(io.BytesIO):
    def __init__(self, content, length):
        super().__init__(content)
        self.headers = {} if length is None else {"Content-Length": length}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def answer(monkeypatch, content, length):
    monkeypatch.setattr(
        "reproduction.data.download.urlopen", lambda *_, **__: Response(content, length)
    )


@pytest.mark.parametrize("length", [None, str(len(CONTENT))])
@pytest.mark.parametrize("stderr", [Terminal, io.StringIO])
def test_a_bar_on_standard_error_where_there_is_a_terminal(
    stderr, length, tmp_path, monkeypatch, capsys
):
    answer(monkeypatch, CONTENT, length)
    monkeypatch.setattr(sys, "stderr", stderr())
    download(Download(("http://somewhere/a.bin",)), tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == CONTENT
    assert ("a.bin" in sys.stderr.getvalue()) == (stderr is Terminal)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("length", [str(len(CONTENT) + 1), str(len(CONTENT) - 1), "many"])
def test_a_length_that_is_not_as_announced(length, tmp_path, monkeypatch):
    answer(monkeypatch, CONTENT, length)
    with pytest.raises(DataError, match="http://somewhere"):
        download(Download(("http://somewhere/a.bin",)), tmp_path / "target")


@pytest.mark.parametrize("url", ["no address", "unknown://somewhere/a", "http://[/a"])
def test_an_address_that_is_none(url, tmp_path):
    with pytest.raises(DataError, match="cannot download"):
        download(Download((url,)), tmp_path / "target")


def test_an_md5_is_a_checksum_too(tmp_path, monkeypatch):
    answer(monkeypatch, b"abc", "3")
    known = "900150983cd24fb0d6963f7d28e17f72"  # of RFC 1321
    download(Download(("http://somewhere/a",), f"md5:{known}"), tmp_path / "target")
    with pytest.raises(DataError, match="expected md5 0" + known[1:]):
        download(Download(("http://somewhere/a",), f"md5:0{known[1:]}"), tmp_path / "target")
