"""The settings of a bundle: what a classifier saves besides its evidence, checked when read."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from iknow.core.rule import Rule
from iknow.core.text import names
from iknow.errors import BundleError, InputError
from iknow.selection import Selection
from iknow.storage import schema
from iknow.storage.about_record import check_about
from iknow.storage.bundle import Bundle
from iknow.storage.parameter_record import KEYS as PARAMETERS
from iknow.storage.parameter_record import check_parameters
from iknow.storage.reading_record import check_reading

KEYS = (
    *PARAMETERS,
    *("selection", "n_features_in", "feature_names_in", "probe", "about", "reading"),
)


def read_settings(path: str | os.PathLike[str], bundle: Bundle) -> dict[str, Any]:
    """The checked settings of a bundle."""
    try:
        settings = schema.check_record(bundle.settings, "settings", KEYS)
        _check(settings, bundle)
    except (BundleError, ValueError) as error:
        raise BundleError(f"{path} cannot be loaded: manifest.json: {error}") from error
    return settings


def check_layers(
    layers: Collection[str], rules: Mapping[str, Rule], selection: Selection | None
) -> None:
    """Check that all layers have a rule, or none, but for those that are left out."""
    left_out = {} if selection is None else selection.left_out
    if unknown := [layer for layer in left_out if layer not in layers]:
        raise InputError(f"the selection leaves out {names(unknown)}, which are not layers")
    if rules and set(rules) != set(layers) - set(left_out):
        raise InputError("either all layers or none must have a rule, or be left out")
    if selection is None or selection.levels is None:
        return
    if any(rule.quorum != selection.levels.quorum for rule in rules.values()):
        raise InputError(f"the levels have the quorum {selection.levels.quorum}, the rules do not")


def _check(settings: dict[str, Any], bundle: Bundle) -> None:
    check_parameters(settings, bundle)
    check_about(settings["about"], len(bundle.labels), len(bundle.classes))
    check_reading(settings["reading"])
    if settings["n_features_in"] is not None:
        schema.check_whole(settings["n_features_in"], "settings.n_features_in", 0)
    if settings["feature_names_in"] is not None:
        for name in schema.check_list(settings["feature_names_in"], "settings.feature_names_in"):
            schema.check_text(name, "a name in settings.feature_names_in")
    if not isinstance(settings["probe"], str):
        schema.check_record(settings["probe"], "settings.probe", ("inputs", "tolerances"))
    selection = None
    if settings["selection"] is not None:
        record = schema.check_mapping(settings["selection"], "settings.selection")
        selection = _check_selection(record, bundle)
    check_layers(bundle.activations, bundle.neighborhoods, selection)


def _check_selection(record: dict[str, Any], bundle: Bundle) -> Selection:
    selection = Selection.from_dict(record)
    used = [layer for layer in bundle.activations if layer not in selection.left_out]
    if sorted(selection.neighborhoods) != sorted(used):
        raise InputError(f"settings.selection must be about the layers {names(used)}")
    if selection.watch is not None and selection.watch.belief.max() >= len(bundle.classes):
        raise InputError(f"the watch believes in more than the {len(bundle.classes)} classes")
    return selection
