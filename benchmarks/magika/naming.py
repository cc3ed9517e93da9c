"""Naming: which type a file's name promises.

magika lists the extensions of each type. We believe one that its list gives to a single type, and
none of `UNSURE`, which mean several things in practice. A few names mean one type without being in
the list (`NAMES`, `ADDED`). No file is judged by magika.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

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
