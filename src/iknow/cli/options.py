"""The options that several commands take, each stated once, and a file of them.

Options that belong together are a record. A command names the record among its parameters, gets
its fields as options, and asks the record for what they come to.

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
import inspect
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import typer
from sklearn.frozen import FrozenEstimator

from iknow.classifier.estimator import EpistemicClassifier
from iknow.cli.data import DataFile, load_classifier
from iknow.cli.model_files import MODEL_HELP
from iknow.core.arrays import Labels
from iknow.core.text import names, shown
from iknow.errors import InputError
from iknow.metrics.defaults import SHORT_NAMES
from iknow.models.adapt import as_model, is_estimator
from iknow.tables.reading import READABLE, WRITABLE
from iknow.tables.table import Roles, as_integers

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


def command(work: Callable[..., None]) -> Callable[..., None]:
    """A command with `--config`, whose parameters that are records become options of their own."""
    hints = get_type_hints(work)
    parameters, records = list[inspect.Parameter](), dict[str, Any]()
    for given in inspect.signature(work).parameters.values():
        kind = hints[given.name]
        if is_dataclass(kind):
            records[given.name] = kind
            own = get_type_hints(kind)
            options: Any = [(each.name, own[each.name], each.default) for each in fields(kind)]
        else:
            options = [(given.name, kind, given.default)]
        for name, annotation, default in options:
            if annotation is bool and default.default is None:  # a flag, off unless it is given
                default.default = False
                default.param_decls = (f"--{name.replace('_', '-')}",)
            parameters.append(
                inspect.Parameter(name, given.KEYWORD_ONLY, default=default, annotation=annotation)
            )
    parameters.append(
        inspect.Parameter("config", given.KEYWORD_ONLY, default=CONFIG, annotation=Path | None)
    )

    @wraps(work)
    def run(config: Path | None = None, **values: Any) -> None:
        for name, kind in records.items():
            values[name] = kind(**{each.name: values.pop(each.name) for each in fields(kind)})
        work(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def option(
    text: str, panel: str | None = None, *names: str, default: Any = None, **more: Any
) -> Any:
    """An option with its help, which stands in a panel; with `...` for its default it is needed."""
    return typer.Option(default, *names, help=text, rich_help_panel=panel, **more)


def argument(text: str, default: Any = ..., **more: Any) -> Any:
    """An argument with its help, needed unless it has a default."""
    return typer.Argument(default, help=text, **more)


DATA, COLUMNS, MODELS, SEARCH = "Data", "Columns", "Model", "Search"
ABOUT, LOG = "About the bundle", "The log"
"""Panels of the help."""
FILES = "a .csv, .jsonl, .parquet, .arrow, .npz or .npy file"

BUNDLE = argument("The bundle that `iknow fit` wrote.")
SAMPLES = argument(f"Samples: {FILES}, or - for a pipe.")
NEW_BUNDLE = option("The bundle to write.", None, "--output", "-o", default=...)
CONFIG = option(
    "Take options from a TOML file; those given here win.",
    None,
    "--config",
    callback=use_config,
    is_eager=True,
    expose_value=False,
)
INPUT_FORMAT = option(
    f"Format of DATA, if not by its ending: {', '.join(READABLE)}. csv for a pipe.",
    DATA,
    metavar="FORMAT",
)
OUTPUT_FORMAT = option(
    f"Format of the output, if not by its ending: {', '.join(WRITABLE)}.", DATA, metavar="FORMAT"
)
LABELS = option("File of labels: .npy or .csv.", DATA)
MODEL = option(MODEL_HELP, MODELS, metavar="FILE")
BATCH_SIZE = option("Samples to ask the model about at a time.", MODELS, min=1)
DEVICE = option("Search by torch: cuda, cuda:1, mps, cpu.", SEARCH, metavar="DEVICE")
LEVEL = option(
    "IK from this level on, 0 to 1, not from the tuned one; no guarantee holds there.",
    metavar="LEVEL",
)
SEED = option("Seed of split and training.", default=0, min=0, max=2**32 - 1)
AS_JSON = option("As JSON, for programs.")


@dataclass(frozen=True)
class ColumnOptions:
    """What the columns of a file are for."""

    label: str | None = option("Column or array that holds the labels.", COLUMNS, metavar="COLUMN")
    identifier: str | None = option(
        "Column that names the samples, no feature; for add, whole numbers.",
        COLUMNS,
        "--id",
        metavar="COLUMN",
    )
    drop: list[str] | None = option("A column to ignore; repeatable.", COLUMNS, metavar="COLUMN")
    features: list[str] | None = option(
        "The only features: names with commas between them; repeatable.", COLUMNS, metavar="A,B,..."
    )
    text: list[str] | None = option(
        "A column that is text even where it looks like numbers; repeatable.",
        COLUMNS,
        metavar="COLUMN",
    )

    @property
    def roles(self) -> Roles:
        """The same for a table. A name with a comma in it stands in double quotes."""
        try:
            rows = [row for each in self.features or () for row in csv.reader([each])]
        except csv.Error as error:  # a line break, or a NUL character
            raise typer.BadParameter(
                f"no list of names: {error}", param_hint="--features"
            ) from error
        chosen = tuple(name for row in rows for name in row)
        drop, text = tuple(self.drop or ()), tuple(self.text or ())
        return Roles(self.label, self.identifier, drop, chosen or None, text)


@dataclass(frozen=True)
class SampleOptions(ColumnOptions):
    """What the columns of a file are for, where its labels are if not in it, and its format."""

    labels: Path | None = LABELS
    input_format: str | None = INPUT_FORMAT

    def source(self, path: Path) -> DataFile:
        return DataFile(path, self.roles, self.labels, self.input_format)


@dataclass(frozen=True)
class ModelOptions:
    """How to read a model, and which of its layers by which metric."""

    layer: list[str] | None = option("A layer to search; repeatable.", SEARCH, metavar="LAYER")
    metric: list[str] | None = option(
        f"Distance: {', '.join(SHORT_NAMES)}; for all layers, or LAYER=cosine.",
        SEARCH,
        metavar="[LAYER=]NAME",
    )
    classes: list[str] | None = option(
        "Label of the model's next score, if it does not know them; repeatable.",
        MODELS,
        "--class",
        metavar="LABEL",
    )
    pool: list[str] | None = option(
        "One vector from a layer's activations: mean, cls or last, for all or LAYER=mean.",
        MODELS,
        metavar="[LAYER=]NAME",
    )
    scores: str | None = option(
        "Which output holds the scores; logit or probability for a single number.",
        MODELS,
        metavar="NAME|POSITION",
    )
    batch_size: int | None = BATCH_SIZE

    def check(self) -> None:
        """Refuse what cannot be, before any file is read."""
        _by_layer(self.metric, "--metric")
        _by_layer(self.pool, "--pool")

    def make(self, model: Any, y: Labels, **more: Any) -> EpistemicClassifier:
        """A classifier around a model, with the names of classes as ints if the labels are."""
        if is_estimator(model):  # frozen, so that an unfitted one is refused and not trained
            model = FrozenEstimator(model)
        number = re.fullmatch(r"-?[0-9]{1,6}", self.scores or "")
        scores = int(self.scores) if number and self.scores is not None else self.scores
        how = given(pool=_by_layer(self.pool, "--pool"), scores=scores)
        classes: Any = self.classes or None
        if classes and y.dtype.kind != "U":
            classes = as_integers(np.array(classes, dtype=np.str_))
        metric = _by_layer(self.metric, "--metric")
        more |= given(metric=metric, classes=classes, batch_size=self.batch_size)
        return EpistemicClassifier(
            as_model(model, **how) if how else model, self.layer or None, **more
        )


@dataclass(frozen=True)
class BundledModel:
    """The model of a bundle, if that is not in it."""

    model: str | None = MODEL
    no_check_model: bool = option(
        "Accept any model, even one whose answers differ from the bundle's.", MODELS
    )

    def load(self, bundle: Path, device: str | None = None) -> EpistemicClassifier:
        """The classifier of a bundle, around this model."""
        return load_classifier(bundle, self.model, device, check_model=not self.no_check_model)


@dataclass(frozen=True)
class AboutOptions:
    """What a bundle says about itself."""

    name: str | None = option("What to call the bundle.", ABOUT)
    version: str | None = option(
        "Its version, such as 1.3 or 2026-11-01.", ABOUT, metavar="VERSION"
    )
    note: str | None = option("What others should know about it.", ABOUT)

    @property
    def given(self) -> dict[str, Any]:
        return given(name=self.name, version=self.version, note=self.note)


def _by_layer(texts: Sequence[str] | None, option: str) -> str | dict[str, str] | None:
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


def given(**parameters: Any) -> dict[str, Any]:
    """The parameters that are not None."""
    return {name: value for name, value in parameters.items() if value is not None}
