"""Assembling: text, data, style and script → one page, and the policy that guards it.

A page opened from disk may not load modules, so the ES modules travel as one classic script: each
becomes a function that returns its exports, called after those that it imports. Only these forms
are understood, at the beginning of a line; others are refused:

    import { a, b } from "./x.js";      import * as X from "./x.js";
    export const a = ...                export function a(...)      export async function a(...)
    export { a, b };

Arrays are compressed text inside the page, and data is JSON that cannot break out of it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import posixpath
import re
from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.cards import SHADES
from iknow.errors import InputError
from iknow.report.album import Album, compress

STATIC = Path(__file__).parent / "static"


def assemble(
    prose: Mapping[str, str],
    facts: Mapping[str, Any],
    columns: Mapping[str, NDArray[Any]],
    album: Album,
) -> str:
    """The whole page. prose: markup by the name of its place in page.html."""
    arrays, packed = pack_arrays(columns)
    style = read_style()
    script = bundle({path.name: path.read_text("utf-8") for path in STATIC.glob("*.js")}, "main.js")
    parts = {
        **prose,
        "style": style,
        "script": script,
        "policy": "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src {_fingerprint(style)}; script-src {_fingerprint(script)}",
        "facts": to_json({**facts, "arrays": arrays, "names": list(album.names)}),
        "arrays": packed,
        "pictures": "\n".join(
            f'<script type="application/octet-stream" id="pictures-{place}">{part}</script>'
            for place, part in enumerate(album.parts)
        ),
    }
    # In one pass: what is inserted is not searched again.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _read("page.html"))


def read_style() -> str:
    """The style sheet of every page."""
    shades = (  # of the assertions, under names for the style sheet to choose from
        f"--{assertion.name.lower()}-{on.replace('_', '-')}: {shade}; "
        for assertion, colors in SHADES.items()
        for on, shade in colors._asdict().items()
    )
    return f":root {{ {''.join(shades)}}}\n{_read('page.css')}"


def _read(name: str) -> str:
    return (STATIC / name).read_text("utf-8")


def _fingerprint(text: str) -> str:
    """How a content security policy names an inline style or script."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


NAMES = r"\{\s*(\w+(?:\s*,\s*\w+)*),?\s*\}"
IMPORT = re.compile(rf'^import (?:\* as (\w+)|{NAMES}) from "(\.[\w./-]+)";$', re.M)
EXPORT = re.compile(r"^export (?=(?:const|function|async function) (\w+))", re.M)
EXPORTS = re.compile(rf"^export {NAMES};$", re.M)
REFUSED = re.compile(r"^[ \t]*(?:import|export)\b.*|</script|<!--", re.M | re.I)


def bundle(sources: Mapping[str, str], entry: str) -> str:
    """One script that runs the module `entry` after everything it imports; sources: by path."""
    imports: dict[str, list[str]] = {}
    waiting = [entry]
    while waiting:
        if (path := waiting.pop()) not in imports:
            imports[path] = [_resolve(path, found[3]) for found in IMPORT.finditer(sources[path])]
            waiting += imports[path]
    order = TopologicalSorter(imports).static_order()  # a circle of imports is an error
    parts = [_wrap(path, sources[path]) for path in order]
    return "\n".join(['"use strict";', "const modules = {};", *parts])


def _resolve(importer: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(importer), path))


def _wrap(path: str, source: str) -> str:
    """A module as the call of a function that returns its exports."""
    names = ", ".join([*EXPORT.findall(source), *EXPORTS.findall(source)])
    body = IMPORT.sub(
        lambda found: (
            f'const {found[1] or f"{{ {found[2]} }}"} = modules["{_resolve(path, found[3])}"];'
        ),
        EXPORTS.sub("", EXPORT.sub("", source)),
    )
    if refused := REFUSED.search(body):
        raise InputError(f"the page cannot hold what is in {path}: {refused[0].strip()}")
    return f'modules["{path}"] = (() => {{\n{body}\nreturn {{ {names} }};\n}})();'


ALIGNMENT = 8  # a browser's typed array must begin at a multiple of its item's size


def pack_arrays(arrays: Mapping[str, NDArray[Any]]) -> tuple[dict[str, Any], str]:
    """Where each array is, by name, and all of them as one compressed text."""
    entries, packed = {}, bytearray()
    for name, array in arrays.items():
        data = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()
        kind = f"{'Big' if array.dtype == np.int64 else ''}{array.dtype.name.capitalize()}Array"
        entries[name] = {"type": kind, "offset": len(packed), "length": int(array.size)}
        packed += data + bytes(-len(data) % ALIGNMENT)
    return entries, compress(packed)


def to_json(value: Any) -> str:
    """JSON for a <script>: no text can end the element; infinity is text that `Number` reads."""
    return json.dumps(_finite(value), allow_nan=False).replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None if np.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value
