"""The options that several commands share, what their texts mean, and a file of them.

The file, for runs that can be repeated, is TOML with a table for each command. Its keys are the
names of the command's arguments and options, without the dashes in front; its values are what one
would type, so paths are relative to the working folder. What is given on the command line wins.

    [assess]
    bundle = "signs.iknow"
    data = "new.csv"
    model = "signs.onnx"
    drop = ["comment", "date"]
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from iknow.cli.model_files import MODEL_HELP
from iknow.core.rule import Rule
from iknow.core.text import names, shown
from iknow.errors import InputError
from iknow.metrics.defaults import SHORT_NAMES
from iknow.rules import RULES, RelativeBall
from iknow.storage.files import is_stream
from iknow.tables.reading import READABLE, STDIN, WRITABLE
from iknow.tables.table import Roles

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


def option(text: str, panel: str, *names: str, **more: Any) -> Any:
    """An option with its help, which stands in a panel."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


DATA, COLUMNS, MODELS, SEARCH = "Data", "Columns", "Model", "Search"
ABOUT = "About the bundle"
"""Panels of the help."""
FILES = "a .csv, .jsonl, .parquet, .arrow, .npz or .npy file"

BundleArgument = Annotated[Path, typer.Argument(help="The bundle that `iknow fit` wrote.")]
DataArgument = Annotated[Path, typer.Argument(help=f"Samples: {FILES}, or - for a pipe.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="Take options from a TOML file; those given here win.",
        callback=use_config,
        is_eager=True,
        expose_value=False,
    ),
]
InputFormatOption = Annotated[
    str | None,
    option(
        f"Format of DATA, if not by its ending: {', '.join(READABLE)}. csv for a pipe.",
        DATA,
        metavar="FORMAT",
    ),
]
OutputFormatOption = Annotated[
    str | None,
    option(
        f"Format of the output, if not by its ending: {', '.join(WRITABLE)}.",
        DATA,
        metavar="FORMAT",
    ),
]
LabelOption = Annotated[
    str | None, option("Column or array that holds the labels.", COLUMNS, metavar="COLUMN")
]
LabelsOption = Annotated[Path | None, option("File of labels: .npy or .csv.", DATA)]
IdOption = Annotated[
    str | None,
    option("Column that names the samples: no feature.", COLUMNS, "--id", metavar="COLUMN"),
]
PassedIdOption = Annotated[
    str | None,
    option(
        "Column that names the samples: no feature, and the first column of the output.",
        COLUMNS,
        "--id",
        metavar="COLUMN",
    ),
]
DropOption = Annotated[
    list[str] | None, option("A column to ignore; repeatable.", COLUMNS, metavar="COLUMN")
]
FeaturesOption = Annotated[
    list[str] | None,
    option(
        "The only features: names with commas between them; repeatable.", COLUMNS, metavar="A,B,..."
    ),
]
TextOption = Annotated[
    list[str] | None,
    option(
        "A column that is text even where it looks like numbers; repeatable.",
        COLUMNS,
        metavar="COLUMN",
    ),
]
ModelOption = Annotated[str | None, option(MODEL_HELP, MODELS, metavar="FILE")]
ClassOption = Annotated[
    list[str] | None,
    option(
        "Label of the model's next score, if it does not know them; repeatable.",
        MODELS,
        "--class",
        metavar="LABEL",
    ),
]
PoolOption = Annotated[
    list[str] | None,
    option(
        "One vector from a layer's activations: mean, cls or last, for all or LAYER=mean.",
        MODELS,
        metavar="[LAYER=]NAME",
    ),
]
ScoresOption = Annotated[
    str | None,
    option(
        "Which output holds the scores; logit or probability for a single number.",
        MODELS,
        metavar="NAME|POSITION",
    ),
]
BatchOption = Annotated[
    int | None, option("Samples to ask the model about at a time.", MODELS, min=1)
]
LayerOption = Annotated[
    list[str] | None, option("A layer to search; repeatable.", SEARCH, metavar="LAYER")
]
MetricOption = Annotated[
    list[str] | None,
    option(
        f"Distance: {', '.join(SHORT_NAMES)}; for all layers, or LAYER=cosine.",
        SEARCH,
        metavar="[LAYER=]NAME",
    ),
]
DeviceOption = Annotated[
    str | None, option("Search by torch: cuda, cuda:1, mps, cpu.", SEARCH, metavar="DEVICE")
]
LevelOption = Annotated[
    float | None,
    typer.Option(
        help="IK from this level on, 0 to 1, not from the tuned one; no guarantee holds there.",
        metavar="LEVEL",
    ),
]
NoCheckOption = Annotated[
    bool,
    option(
        "Accept any model, even one whose answers differ from the bundle's.",
        MODELS,
        "--no-check-model",
    ),
]
NameOption = Annotated[str | None, option("What to call the bundle.", ABOUT)]
VersionOption = Annotated[
    str | None, option("Its version, such as 1.3 or 2026-11-01.", ABOUT, metavar="VERSION")
]
NoteOption = Annotated[str | None, option("What others should know about it.", ABOUT)]
SeedOption = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of split and training.")]
RULE_NAMES = "|".join(rule.command_name() for rule in RULES.values())
KIND = f"The kind of rule; {RelativeBall.command_name()} by default."


def rule_by_name(name: str) -> type[Rule]:
    """The rule of a name on the command line."""
    rules = {rule.command_name(): rule for rule in RULES.values()}
    if name not in rules:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(rules)}", param_hint="--rule")
    return rules[name]


def quorum_by_name(text: str | None) -> int | tuple[int, int] | None:
    """The quorum of a text such as "3" or "1,3"."""
    if text is None:
        return None
    numbers = text.split(",")
    if len(numbers) > 2 or not all(re.fullmatch(r"\s*[0-9]{1,6}\s*", each) for each in numbers):
        raise typer.BadParameter(
            f"{text!r} is not a whole number, or two such as 1,3", param_hint="--quorum"
        )
    first, last = int(numbers[0]), int(numbers[-1])
    return first if len(numbers) == 1 else (first, last)


def by_layer(texts: Sequence[str] | None, option: str) -> str | dict[str, str] | None:
    """One name for all layers, or names by layer, from texts such as "mean" or "hidden=mean"."""
    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        return texts[0]
    found: dict[str, str] = {}
    for text in texts:
        layer, equals, name = text.rpartition("=")
        if not (layer and equals and name) or layer in found:
            raise typer.BadParameter(
                f"{text!r} must be LAYER=NAME, once for each layer, or one NAME for all",
                param_hint=option,
            )
        found[layer] = name
    return found


def scores_by_name(text: str | None) -> str | int | None:
    """The name or the position of an output."""
    return int(text) if text is not None and re.fullmatch(r"-?[0-9]{1,6}", text) else text


def roles_of(
    label: str | None,
    identifier: str | None,
    drop: Sequence[str] | None,
    features: Sequence[str] | None,
    text: Sequence[str] | None,
) -> Roles:
    """What the columns are for. A name with a comma in it stands in double quotes."""
    try:
        chosen = [name for each in features or () for row in csv.reader([each]) for name in row]
    except csv.Error as error:  # a line break, or a NUL character
        raise typer.BadParameter(f"no list of names: {error}", param_hint="--features") from error
    return Roles(label, identifier, tuple(drop or ()), tuple(chosen) or None, tuple(text or ()))


def given(**parameters: Any) -> Mapping[str, Any]:
    """The parameters that are not None."""
    return {name: value for name, value in parameters.items() if value is not None}


def console_for(*outputs: Path | None) -> Console:
    """The console for messages: not the stream that a result goes to."""
    streams = [path for path in outputs if path is not None]
    return Console(stderr=any(path == STDIN or is_stream(path) for path in streams))
