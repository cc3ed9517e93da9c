"""The settings of a bundle: what a classifier saves besides its evidence, checked when read."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

from iknow.errors import BundleError
from iknow.rules.registry import neighborhood_from_dict
from iknow.selection import Certificate, Selection
from iknow.selection.selection import ACCURACIES
from iknow.storage import schema
from iknow.storage.bundle import Bundle
from iknow.storage.parameter_record import KEYS as PARAMETERS
from iknow.storage.parameter_record import check_parameters, upgrade

KEYS = (*PARAMETERS, "selection", "n_features_in", "feature_names_in", "probe")


def read_settings(path: str | os.PathLike[str], bundle: Bundle) -> dict[str, Any]:
    """The checked settings of a bundle."""
    try:
        settings = schema.check_record(upgrade(bundle.settings, bundle), "settings", KEYS)
        _check(settings, bundle)
    except (BundleError, ValueError) as error:
        raise BundleError(f"{path} cannot be loaded: manifest.json: {error}") from error
    return settings


def _check(settings: dict[str, Any], bundle: Bundle) -> None:
    check_parameters(settings, bundle)
    if settings["n_features_in"] is not None:
        schema.check_whole(settings["n_features_in"], "settings.n_features_in", 0)
    if settings["feature_names_in"] is not None:
        for name in schema.check_list(settings["feature_names_in"], "settings.feature_names_in"):
            schema.check_text(name, "a name in settings.feature_names_in")
    if not isinstance(settings["probe"], str):
        schema.check_record(settings["probe"], "settings.probe", ("inputs", "tolerances"))
    if settings["selection"] is not None:
        _check_selection(schema.check_mapping(settings["selection"], "settings.selection"), bundle)


def _check_selection(record: dict[str, Any], bundle: Bundle) -> None:
    where = "settings.selection"
    keys = [each.name for each in fields(Selection) if each.name != "curves"]
    schema.check_record(record, where, keys)
    undefined = [name for name in ACCURACIES if record[name] is None]
    others = ("neighborhoods", "certificate", "curves", *undefined)
    schema.check_fields(Selection, record, where, others)
    place, rules = f"{where}.neighborhoods", record["neighborhoods"]
    for rule in schema.check_record(rules, place, bundle.activations).values():
        neighborhood_from_dict(schema.check_mapping(rule, place))
    if record["certificate"] is not None:
        where += ".certificate"
        schema.check_fields(Certificate, schema.check_mapping(record["certificate"], where), where)
