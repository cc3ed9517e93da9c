"""Files of known type, from folders of projects, each content once.

**Names.** magika lists the extensions of each type. We believe one that its list gives to a single
type, and none of `UNSURE`, which mean several things in practice. A few names mean one type without
being in the list (`NAMES`, `ADDED`). No file is judged by magika.

**Content** must keep the promise of its name. What should be text is UTF-8 without NUL, and what
should be binary is not; formats that the standard library reads are read; others begin with their
signature. It rules out what Git stores for a large file, broken fixtures, templates and other
things of the same name.

**Projects.** Every subfolder of a folder is one; files directly in it belong to none and are left
out. From each project we take at most `MOST` files of a type, drawn at random, so that no project
decides the figures. Two files that magika cannot tell apart, since it reads the same bytes of
them, are one: the copy in the project that comes first by name stays.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import random
import tomllib
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any
from xml.etree import ElementTree

UNSURE = {
    # magika gives each to one type, and the world to several.
    "ai", "asm", "cat", "cer", "cl", "crt", "csx", "cts", "dcm", "der", "dm", "doc", "gpg", "hlp",
    "htm", "jsonld", "l", "lsp", "mm", "mts", "o", "obj", "one", "p", "pkg", "pp", "pro", "pt",
    "pth", "pub", "s", "sgml", "snap", "sum", "txt", "v", "vb", "vba", "vh", "xht", "xhtml",
}  # fmt: skip
ADDED = {
    "bazel": "bazel",
    "dll": "pebin",
    "ex": "elixir",
    "exe": "pebin",
    "pm": "perl",
    "so": "elf",
    "ts": "typescript",
    "tsv": "tsv",
}
NAMES = {
    ".ds_store": "dsstore",
    ".gitattributes": "gitattributes",
    ".gitignore": "ignorefile",
    ".gitmodules": "gitmodules",
    ".htaccess": "htaccess",
    "authors": "txt",
    "cmakelists.txt": "cmake",
    "copying": "txt",
    "copying.txt": "txt",
    "dockerfile": "dockerfile",
    "gemfile": "gemfile",
    "go.sum": "sum",
    "license": "txt",
    "license.txt": "txt",
    "makefile": "makefile",
    "notice": "txt",
    "notice.txt": "txt",
    "workspace": "bazel",
}
FOREIGN = {
    # Formats and languages that no class of magika's covers.
    "adb": "Ada", "ads": "Ada", "aif": "AIFF", "aiff": "AIFF", "amr": "AMR", "ape": "APE",
    "au": "AU", "avif": "AVIF", "cr": "Crystal", "djvu": "DjVu", "elm": "Elm", "fs": "F#",
    "gd": "GDScript", "gleam": "Gleam", "heic": "HEIC", "hx": "Haxe", "idr": "Idris",
    "jxl": "JPEG XL", "jxr": "JPEG XR", "lz4": "LZ4", "mng": "MNG", "mo": "gettext catalog",
    "mxf": "MXF", "nim": "Nim", "nix": "Nix", "odin": "Odin", "purs": "PureScript",
    "sml": "Standard ML", "thrift": "Thrift", "vala": "Vala", "wma": "WMA", "wv": "WavPack",
    "xcf": "XCF", "zst": "Zstandard",
}  # fmt: skip


def type_by_extension(
    kinds: Mapping[str, Mapping[str, Any]], known: Sequence[str]
) -> dict[str, str]:
    """From extension to type, by magika's list of types and the `known` ones of its model."""
    claims: dict[str, set[str]] = {}
    for name, kind in kinds.items():
        for extension in kind["extensions"]:
            claims.setdefault(extension.lower(), set()).add(name)
    single = {e: next(iter(names)) for e, names in claims.items() if len(names) == 1}
    sure = {e: name for e, name in single.items() if name in known and e not in UNSURE}
    return sure | ADDED


def promised_type(path: PurePath, extensions: Mapping[str, str]) -> str | None:
    """The type that a file's name promises; None if it promises none."""
    return NAMES.get(path.name.lower()) or extensions.get(path.suffix[1:].lower())


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


MOST = 10  # files of one type from one project
LARGEST = 3_000_000  # bytes
OTHER = "other: "  # before the name of a type that the model does not have


@dataclass(frozen=True)
class File:
    """A file of known type.

    Attributes:
        project: The folder that it comes from.
        kind: Its type, one of magika's or a foreign one, which begins with `OTHER`.
        content: Its bytes.
    """

    project: str
    kind: str
    content: bytes


@dataclass(frozen=True)
class Types:
    """What names mean: `extensions` to types, and which types are `textual`."""

    extensions: dict[str, str]
    textual: frozenset[str]

    def of(self, path: Path) -> str | None:
        foreign = FOREIGN.get(path.suffix[1:].lower())
        return promised_type(path, self.extensions) or (foreign and OTHER + foreign)

    def fits(self, content: bytes, kind: str) -> bool:
        return kind.startswith(OTHER) or keeps_promise(content, kind, kind in self.textual)


def collect(folders: Sequence[Path], types: Types, read: Callable[[bytes], bytes]) -> list[File]:
    """The files of all projects in folders; `read` gives what the model sees of a content."""
    found: list[File] = []
    seen: set[bytes] = set()
    for project in sorted(p for folder in folders for p in folder.iterdir() if p.is_dir()):
        taken: dict[str, int] = {}
        for path, kind in _candidates(project, types):
            if taken.get(kind, 0) == MOST:
                continue
            content = path.read_bytes()
            view = read(content)
            digest = hashlib.sha256(view).digest()
            if not view or digest in seen or not types.fits(content, kind):
                continue
            seen.add(digest)
            taken[kind] = taken.get(kind, 0) + 1
            found.append(File(project.name, kind, content))
    return found


def _candidates(project: Path, types: Types) -> Iterator[tuple[Path, str]]:
    """Files whose names promise a type, in a random order that is the same each time."""
    paths = [
        path
        for folder, _, names in os.walk(project)
        for path in (Path(folder, name) for name in names)
        if types.of(path) and path.is_file() and not path.is_symlink()
    ]
    paths.sort()
    random.Random(0).shuffle(paths)
    for path in paths:
        kind = types.of(path)
        if kind and path.stat().st_size <= LARGEST and os.access(path, os.R_OK):
            yield path, kind
