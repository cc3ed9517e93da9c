"""The settings of a bundle: what a classifier writes beside its evidence, checked when read."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

from iknow.errors import BundleError
from iknow.rules.registry import neighborhood_from_dict, rule_named
from iknow.selection import Certificate, Selection
from iknow.selection.selection import ACCURACIES
from iknow.storage.bundle import Bundle
from iknow.storage.schema import (
    check_fields,
    check_flag,
    check_list,
    check_mapping,
    check_record,
    check_text,
    check_whole,
)

KEYS = (
    "rule",
    "fixed",
    "k",
    "batch_size",
    "selection",
    "n_features_in",
    "feature_names_in",
    "probe",
)


def check_settings(path: str | os.PathLike[str], bundle: Bundle) -> None:
    """Refuse settings that no classifier wrote."""
    try:
        _check(check_record(bundle.settings, "settings", KEYS), bundle)
    except (BundleError, ValueError) as error:
        raise BundleError(f"{path} is damaged: manifest.json: {error}") from error


def _check(settings: dict[str, Any], bundle: Bundle) -> None:
    rule_named(check_text(settings["rule"], "settings.rule"))
    if check_flag(settings["fixed"], "settings.fixed") and not bundle.neighborhoods:
        raise BundleError("settings.fixed needs a neighborhood in every layer; there are none")
    check_whole(settings["k"], "settings.k", 1)
    if settings["batch_size"] is not None:
        check_whole(settings["batch_size"], "settings.batch_size", 1)
    if settings["n_features_in"] is not None:
        check_whole(settings["n_features_in"], "settings.n_features_in", 0)
    if settings["feature_names_in"] is not None:
        for name in check_list(settings["feature_names_in"], "settings.feature_names_in"):
            check_text(name, "a name in settings.feature_names_in")
    if not isinstance(settings["probe"], str):
        check_record(settings["probe"], "settings.probe", ("inputs", "tolerances"))
    if settings["selection"] is not None:
        _check_selection(check_mapping(settings["selection"], "settings.selection"), bundle)


def _check_selection(record: dict[str, Any], bundle: Bundle) -> None:
    where = "settings.selection"
    keys = [field.name for field in fields(Selection) if field.name != "curves"]
    check_record(record, where, keys)
    undefined = [name for name in ACCURACIES if record[name] is None]
    check_fields(Selection, record, where, ("neighborhoods", "certificate", "curves", *undefined))
    rules = check_record(record["neighborhoods"], f"{where}.neighborhoods", bundle.activations)
    for rule in rules.values():
        neighborhood_from_dict(check_mapping(rule, f"{where}.neighborhoods"))
    if record["certificate"] is not None:
        certificate = check_mapping(record["certificate"], f"{where}.certificate")
        check_fields(Certificate, certificate, f"{where}.certificate")
