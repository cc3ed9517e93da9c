"""Modules: the page's ES modules → one script, ordered by what they import.

A page opened from disk may not load modules, so they travel as one classic script: each becomes a
function that returns its exports, called after those that it imports. Only these forms are
understood, at the beginning of a line; others are refused:

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
        path = waiting.pop()
        if path not in sources:
            raise InputError(f"no module {path}: expected one of {', '.join(sorted(sources))}")
        if path not in imports:
            imports[path] = [_resolve(path, found[3]) for found in IMPORT.finditer(sources[path])]
            waiting += imports[path]
    try:
        order = list(TopologicalSorter(imports).static_order())
    except CycleError as error:
        raise InputError(f"modules import each other: {' → '.join(error.args[1])}") from error
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
