"""Short: results that name their methods once, not in every cell, so that the file stays small.

A mapping by method, {"iknow": 0.1, "softmax": 0.2}, becomes a list in the order of the variant's
`methods`; nothing else changes.
"""

from __future__ import annotations

from typing import Any

MAPPED = ("wrong", "asserted", "augrc")


def by_position(results: dict[str, Any]) -> dict[str, Any]:
    """The results with lists in the place of mappings by method."""
    return _change(results, _to_lists)


def by_name(results: dict[str, Any]) -> dict[str, Any]:
    """The results with mappings by method again; those that have them stay as they are."""
    return _change(results, _to_mappings)


def _change(results: dict[str, Any], change: Any) -> dict[str, Any]:
    runs = {
        problem: {
            seed: {name: _change_variant(part, change) for name, part in run.items()}
            for seed, run in seeds.items()
        }
        for problem, seeds in results["runs"].items()
    }
    return results | {"runs": runs}


def _change_variant(part: Any, change: Any) -> Any:
    return change(part) if isinstance(part, dict) and part.get("cells") else part


def _to_lists(part: dict[str, Any]) -> dict[str, Any]:
    methods = list(next(iter(part["cells"].values()))["wrong"])
    cells = {
        name: cell | {key: [cell[key][method] for method in methods] for key in MAPPED}
        for name, cell in part["cells"].items()
    }
    return part | {"methods": methods, "cells": cells}


def _to_mappings(part: dict[str, Any]) -> dict[str, Any]:
    if "methods" not in part:
        return part
    cells = {
        name: cell | {key: dict(zip(part["methods"], cell[key], strict=True)) for key in MAPPED}
        for name, cell in part["cells"].items()
    }
    return {key: each for key, each in part.items() if key != "methods"} | {"cells": cells}
