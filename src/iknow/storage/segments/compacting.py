"""Compacting: a bundle's changes folded into its arrays, in a new file that replaces the old one.

Nothing of a removed sample is left in the new file: its rows are not copied, nor are inputs of the
probe that may be its. Of the changes, the log stays: who changed which samples, when and why.
Readers of the old file keep it, and a killed compaction leaves the old file as it was.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from iknow.core.rule import Rule
from iknow.errors import BundleError
from iknow.storage.bundle import as_path, encode_bundle, read_bundle, replace_bundle
from iknow.storage.change import Change
from iknow.storage.files import locked
from iknow.storage.saved_settings import read_settings
from iknow.storage.segments.folding import fold_changes
from iknow.version import __version__


class Chosen(NamedTuple):
    """What was chosen anew: the record of a selection, and by layer a rule."""

    selection: Mapping[str, Any] | None
    neighborhoods: Mapping[str, Rule]


def compact_bundle(path: str | os.PathLike[str]) -> str:
    """Fold the changes of a bundle into its arrays, and return its new sha256.

    Raises:
        BundleError: The bundle is damaged.
        OSError: The new file could not be written; the old one is as it was.
    """
    source = as_path(path)
    with locked(source, in_place=True) as descriptor:
        if descriptor is None:
            raise BundleError(f"{source} is not a bundle: the file does not exist")
        return rewrite_bundle(source)


def rewrite_bundle(
    source: Path, further: Iterable[Change] = (), chosen: Chosen | None = None
) -> str:
    """Write a bundle anew; whoever may append must be locked out.

    further: changes that follow those in the bundle. chosen: the selection and the rules to use
    from now on; None for those that are there.
    """
    bundle = read_bundle(source, verify="now", copied_up_to=0)
    settings = read_settings(source, bundle)
    folded = fold_changes(replace(bundle, settings=settings), (*bundle.changes, *further))
    if chosen is not None:
        settings = {**folded.settings, "selection": chosen.selection}
        folded = replace(folded, settings=settings, neighborhoods=chosen.neighborhoods)
    replace_bundle(source, encode_bundle(folded, __version__))
    return read_bundle(source, verify=False, copied_up_to=0).sha256
