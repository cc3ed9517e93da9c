"""How a bundle's model is read, so that `load` reads it the same way: pool, scores and embed.

Text, whole numbers and mappings of text to these are stored. A function is not, as nothing in a
bundle may run: the record names the option, and `load` asks for it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from iknow.core.text import NO_NUMBERS
from iknow.errors import BundleError
from iknow.models.adapt import OPTIONS
from iknow.storage.schema import check_list, check_record, misfit

KEYS = (*OPTIONS, "functions")
AS_USUAL: dict[str, Any] = {**dict.fromkeys(OPTIONS), "functions": []}
"""The reading of a model that needs no options."""
LONGEST = 20_000
"""Characters of an option."""


def make_reading(classifier: Any) -> dict[str, Any]:
    """How a classifier's model is read: the options that are plain values, the names of others."""
    if not classifier.model_.options:  # without its model it has none
        return dict(classifier.plan_.bundled.get("reading") or AS_USUAL)
    record: dict[str, Any] = {**AS_USUAL, "functions": []}
    for option, value in classifier.model_.options.items():
        plain = _as_plain(value)
        record[option] = plain
        if plain is None:
            record["functions"].append(option)
    return record


def check_reading(record: object) -> dict[str, Any]:
    """A record of `make_reading`."""
    where = "settings.reading"
    reading = check_record(record, where, KEYS)
    functions = check_list(reading["functions"], f"{where}.functions")
    if functions != [option for option in OPTIONS if option in functions]:
        raise misfit(f"{where}.functions", f"some of {', '.join(OPTIONS)}", str(functions))
    for option in OPTIONS:
        value = reading[option]
        if value is None:
            continue
        if option in functions or option == "embed" or _as_plain(value) != value:
            raise misfit(f"{where}.{option}", "text, a whole number or an object of these", value)
        if len(str(value)) > LONGEST:
            raise misfit(f"{where}.{option}", f"at most {LONGEST} characters long", "longer")
    return reading


def read_again(reading: Mapping[str, Any], path: object) -> dict[str, Any]:
    """The options to read a model by, as they were stored."""
    if missing := reading["functions"]:
        listed = ", ".join(f"{name}=..." for name in missing)
        raise BundleError(
            f"{path} was made with {' and '.join(missing)} given as a function, which a bundle "
            f"cannot hold: pass it again, load(path, as_model(model, {listed}))"
        )
    return {name: reading[name] for name in OPTIONS}


def _as_plain(value: Any) -> Any:
    """Text, a whole number or a mapping of text to these, in JSON's types; None for others."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Integral) and not isinstance(value, NO_NUMBERS):
        return int(value)
    if isinstance(value, Mapping):
        plain = {key: _as_plain(each) for key, each in value.items()}
        fits = all(
            isinstance(key, str) and isinstance(each, (str, int)) for key, each in plain.items()
        )
        return plain if fits and plain else None
    return None
