"""Options from a file, for runs that can be repeated.

A TOML file with a table for each command. Its keys are the names of the command's arguments and
options, without the dashes in front; its values are what one would type, so paths are relative to
the working folder. What is given on the command line wins.

    [assess]
    bundle = "signs.iknow"
    data = "new.csv"
    model = "signs.onnx"
    drop = ["comment", "date"]
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import typer

from iknow.core.text import names, shown
from iknow.errors import InputError

LARGEST = 1 << 20  # bytes


def use_config(context: typer.Context, path: Path | None) -> Path | None:
    """Let the options of a command default to those in a file."""
    if path is not None and not context.resilient_parsing:
        context.default_map = read_config(path, context)
    return path


def read_config(path: Path, context: typer.Context) -> dict[str, Any]:
    """The values for the parameters of a command, by their names in the code."""
    tables = _read_toml(path)
    command = str(context.info_name)
    group: Any = context.parent.command if context.parent is not None else None
    commands = list(group.commands) if group is not None else [command]
    for name, table in tables.items():
        if name not in commands or not isinstance(table, dict):
            raise InputError(
                f"{path} must hold a table for each command, such as [{command}]; {shown(name)} is "
                f"none of {names(commands)}"
            )
    known = {_key_of(each): each for each in context.command.params if each.name != "config"}
    found: dict[str, Any] = {}
    for key, value in tables.get(command, {}).items():
        parameter = known.get(key.replace("_", "-"))
        if parameter is None or key in ("config", "help"):
            keys = [each for each in known if each != "help"]
            raise InputError(
                f"{path}: [{command}] has no option {shown(key)}; it has {names(keys, len(keys))}"
            )
        found[str(parameter.name)] = _check(value, parameter, f"{path}: {command}.{key}")
    return found


def _read_toml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"there is no file {path} to take options from")
    content = path.read_bytes()[: LARGEST + 1]
    try:
        if len(content) > LARGEST:
            raise ValueError(f"it is larger than {LARGEST:,} bytes")
        return tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as TOML: {error}") from error


def _key_of(parameter: Any) -> str:
    """The key of a parameter: its longest option without dashes, or its name."""
    longest = max(parameter.opts, key=len)
    return str(longest.lstrip("-").replace("_", "-"))


def _check(value: Any, parameter: Any, place: str) -> Any:
    """A value as the command line would take it; of the wrong kind, an `InputError`."""
    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            raise InputError(f"{place} must be true or false; got {shown(value)}")
        return value
    many = parameter.multiple if hasattr(parameter, "multiple") else parameter.nargs != 1
    values = value if many and isinstance(value, list) else [value]
    for each in values:
        if isinstance(each, bool) or not isinstance(each, (str, int, float)):
            expected = "texts or numbers" if many else "text or a number"
            raise InputError(f"{place} must be {expected}; got {shown(each)}")
    as_typed = [each if isinstance(each, str) else repr(each) for each in values]
    return as_typed if many else as_typed[0]
