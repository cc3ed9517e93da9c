"""Parsing: whether a file's content keeps the promise of its name.

What should be text is UTF-8 without NUL, and what should be binary is not; formats that the
standard library reads are read; others begin with their signature. It rules out what Git stores for
a large file, broken fixtures, templates and other things of the same name.
"""

from __future__ import annotations

import ast
import io
import json
import tomllib
import warnings
import zipfile
from collections.abc import Callable, Sequence
from xml.etree import ElementTree

SIGNATURES: dict[str, Sequence[bytes]] = {
    "bmp": [b"BM"],
    "bzip": [b"BZh"],
    "cab": [b"MSCF", b"ISc("],
    "deb": [b"!<arch>"],
    "dex": [b"dex\n"],
    "elf": [b"\x7fELF"],
    "flac": [b"fLaC", b"ID3"],
    "flv": [b"FLV"],
    "gif": [b"GIF8"],
    "gzip": [b"\x1f\x8b"],
    "h5": [b"\x89HDF"],
    "icns": [b"icns"],
    "ico": [b"\0\0\1\0"],
    "javabytecode": [b"\xca\xfe\xba\xbe"],
    "jpeg": [b"\xff\xd8"],
    "midi": [b"MThd"],
    "mkv": [b"\x1aE\xdf\xa3"],
    "mp3": [b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xfa", b"\xff\xf2"],
    "npy": [b"\x93NUMPY"],
    "ogg": [b"OggS"],
    "otf": [b"OTTO"],
    "pcap": [b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x0a\x0d\x0d\x0a", b"M<\xb2\xa1"],
    "pdf": [b"%PDF"],
    "pebin": [b"MZ"],
    "png": [b"\x89PNG"],
    "postscript": [b"%!"],
    "ppt": [b"\xd0\xcf\x11\xe0"],
    "psd": [b"8BPS"],
    "rar": [b"Rar!"],
    "rpm": [b"\xed\xab\xee\xdb"],
    "sevenzip": [b"7z\xbc\xaf"],
    "sqlite": [b"SQLite format 3"],
    "swf": [b"FWS", b"CWS", b"ZWS"],
    "tiff": [b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"],
    "ttf": [b"\0\1\0\0", b"true", b"ttcf"],
    "wasm": [b"\0asm"],
    "wav": [b"RIFF", b"RIFX", b"RF64"],
    "webp": [b"RIFF"],
    "woff": [b"wOFF"],
    "woff2": [b"wOF2"],
    "xls": [b"\xd0\xcf\x11\xe0", b"\x09\x08"],
    "xz": [b"\xfd7zXZ"],
}
ZIPPED = {
    "apk", "docx", "epub", "jar", "npz", "nupkg", "odp", "ods", "odt", "pptx", "xlsb", "xlsx",
    "xpi", "zip",
}  # fmt: skip
XML = {"appleplist", "csproj", "mum", "rdf", "svg", "vcxproj", "xml"}
TEXT_OR_BINARY = {"pdf", "postscript"}


def keeps_promise(content: bytes, kind: str, is_text: bool) -> bool:
    """Whether content may be of a type, as far as can be told without a classifier."""
    text = as_text(content)
    if kind not in TEXT_OR_BINARY and (text is not None) != is_text:
        return False
    if kind in SIGNATURES and not content.startswith(tuple(SIGNATURES[kind])):
        return False
    if kind in ZIPPED and not zipfile.is_zipfile(io.BytesIO(content)):
        return False
    parse = ElementTree.fromstring if kind in XML else PARSERS.get(kind)
    return parse is None or (text is not None and _parses(parse, text))


def as_text(content: bytes) -> str | None:
    """Content as text; None if it is not UTF-8, or holds a NUL."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in somebody's Python
            return parse(text) is not False
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False


PARSERS: dict[str, Callable[[str], object]] = {
    "html": lambda text: "{{" not in text and "{%" not in text,  # else a template for HTML
    "ipynb": lambda text: not {"cells", "worksheets"}.isdisjoint(dict(json.loads(text))),
    "json": json.loads,
    "python": ast.parse,
    "toml": tomllib.loads,
    "typescript": lambda text: (
        not text.lstrip("\ufeff \n\r\t").startswith("<")
    ),  # as Qt's translations
}
