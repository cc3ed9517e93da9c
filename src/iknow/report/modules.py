"""Modules: the page's ES modules → one script, ordered by what they import.

A page opened from disk may not load modules, so they travel as one classic script: each becomes a
function that returns what it exports, called after all that it imports. Only the forms below are
understood, and any other is refused: what a browser would read differently must not pass.

    import { a, b } from "./x.js";      import * as X from "./x.js";
    export const a = ...                export function a(...)      export async function a(...)
    export { a, b };
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

from iknow.errors import InputError

IMPORT = re.compile(
    r"^import (?:(?P<names>\{[\w,\s]+\})|\* as (?P<whole>\w+)) from \"(?P<path>\.[\w./-]+)\";$", re.M
)
EXPORT = re.compile(r"^export (?=(?:const|function|async function) (\w+)\b)", re.M)
EXPORTS = re.compile(r"^export \{([\w,\s]+)\};$", re.M)
NOT_UNDERSTOOD = re.compile(r"^\s*(?:import\b(?!\()|export\b).*", re.M)


def bundle(sources: Mapping[str, str], entry: str) -> str:
    """One script that runs the module `entry` after all that it imports, directly or not.

    sources: the text of each module by its path. In the script `modules` holds their exports.
    """
    imports: dict[str, list[str]] = {}
    waiting = [entry]
    while waiting:
        path = waiting.pop()
        if path not in sources:
            raise InputError(f"no module {path}: expected one of {', '.join(sorted(sources))}")
        if path not in imports:
            imports[path] = [_resolve(path, found["path"]) for found in _imports(sources[path])]
            waiting += imports[path]
    try:
        # Sorted, so that the same modules always make the same script.
        order = TopologicalSorter({path: imports[path] for path in sorted(imports)}).static_order()
        parts = [_wrap(path, sources[path]) for path in order]
    except CycleError as error:
        raise InputError(f"modules import each other: {' → '.join(error.args[1])}") from error
    return "\n".join(['"use strict";', "const modules = {};", *parts])


def _imports(source: str) -> list[re.Match[str]]:
    return list(IMPORT.finditer(source))


def _resolve(importer: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(importer), path))


def _wrap(path: str, source: str) -> str:
    """A module as a call of a function."""

    def take(found: re.Match[str]) -> str:
        return f'const {found["names"] or found["whole"]} = modules["{_resolve(path, found["path"])}"];'

    exported = [*EXPORT.findall(source), *(names.strip(" ,") for names in EXPORTS.findall(source))]
    body = EXPORTS.sub("", EXPORT.sub("", IMPORT.sub(take, source)))
    left = NOT_UNDERSTOOD.search(body)
    if left or "</script" in body.lower() or "<!--" in body:
        raise InputError(f"cannot put {path} into a page: {left[0].strip() if left else '</script'}")
    return f'modules["{path}"] = (() => {{\n{body}\nreturn {{ {", ".join(exported)} }};\n}})();'
