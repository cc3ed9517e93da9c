"""What commands read and write: samples in a model's form and order, bundles, and outputs.

Numbers go to a model as an array. Text, and a pipeline that chooses columns by name, needs a data
frame; boosted trees take its text as categories; a pipeline that begins with a vectorizer of texts
takes its only column. No output replaces an input, and what cannot be written is found out before
the work begins.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from iknow.classifier.estimator import EpistemicClassifier
from iknow.cli.model_files import files_of, load_model
from iknow.core.arrays import Ints, Labels
from iknow.core.text import names as quoted
from iknow.core.text import visible
from iknow.errors import InputError
from iknow.models import PrecomputedModel
from iknow.models.adapt import is_torch_module
from iknow.storage.files import is_stream, write_bytes
from iknow.tables import DataTable, Roles, read_table, reading
from iknow.tables.reading import STDIN
from iknow.tables.table import make_frame

TREES = ("xgboost", "lightgbm")
"""Packages whose models take categories, but no text."""
BY_CATEGORY = ("HistGradientBoostingClassifier",)


@dataclass(frozen=True)
class DataFile:
    """A data file, what its columns are for, and where its labels are.

    path: "-" for standard input. form: the format, if the ending does not tell it.
    """

    path: Path
    roles: Roles = field(default_factory=Roles)
    labels_path: Path | None = None
    form: str | None = None

    @property
    def name(self) -> str:
        return "standard input" if self.path == STDIN else str(self.path)

    def read(self, model: Any = None) -> DataTable:
        """All samples; text may be a feature if the model takes it."""
        how: dict[str, Any] = {"roles": self.roles, "form": self.form, "mixed": takes_text(model)}
        return read_table(self.path, labels_path=self.labels_path, **how)

    def parts(self, model: Any) -> AbstractContextManager[Iterator[DataTable]]:
        """The samples part by part; labels of .csv cells are text."""
        mixed = takes_text(model)
        return reading(self.path, self.labels_path, self.roles, form=self.form, mixed=mixed)

    def read_labeled(self, model: Any = None) -> tuple[DataTable, Labels]:
        table = self.read(model)
        if table.labels is None:
            raise InputError(
                f"{self.name} has no labels: name a column with --label, or a file with --labels"
            )
        return table, table.labels


def load_classifier(
    bundle: Path, model: str | None, device: str | None = None, *, check_model: bool = True
) -> EpistemicClassifier:
    """The classifier of a bundle, around the model of a file."""
    wrapped = None if model is None else load_model(model)
    loaded = EpistemicClassifier.load(bundle, wrapped, search=device, check_model=check_model)
    loaded.progress = False
    return loaded


def takes_text(model: Any) -> bool:
    """Whether a model may take columns of text: one that has steps, or that is unknown to us."""
    inner = _unwrap(model)
    package = type(inner).__module__.partition(".")[0]
    if getattr(inner, "takes_text", False):  # a bundle's own model
        return True
    if inner is None or isinstance(inner, str) or is_torch_module(inner):
        return False
    if package in ("keras", "torch", "iknow"):
        return False
    return hasattr(inner, "steps") or package != "sklearn" or _by_category(inner)


def trained_names(fitted: Any) -> tuple[str, ...] | None:
    """The column names that a classifier or model was fitted on, if it knows them."""
    names = getattr(fitted, "feature_names_in_", None)
    return None if names is None else tuple(names)


def inputs_of(
    model: Any, table: DataTable, names: tuple[str, ...] | None, rows: Ints | None = None
) -> Any:
    """These samples of a table, or all, as a model takes them, which was trained on these names."""
    chosen = slice(None) if rows is None else rows
    if table.features is None:
        layers = {layer: values[chosen] for layer, values in table.activations.items()}
        return table.scores[chosen], layers  # type: ignore[index]
    features = in_order(table, names)
    wanted = getattr(model, "n_features_in_", None)
    # catboost's wanted 0 is that of a model from a file.
    if features.ndim == 2 and isinstance(wanted, int) and wanted not in (0, features.shape[1]):
        raise InputError(
            f"the model takes {wanted} features; the file has {features.shape[1]} (name the labels "
            "by --label, and other columns by --id or --drop)"
        )
    known = table.feature_names if names is None else names
    found = _in_form(features, known, _unwrap(model))
    return found.iloc[chosen] if hasattr(found, "iloc") else found[chosen]


def inputs_for(classifier: EpistemicClassifier, table: DataTable) -> Any:
    """The samples of a table as the model of a fitted classifier takes them."""
    if table.features is not None and isinstance(classifier.model_, PrecomputedModel):
        raise InputError("the file holds inputs, but the bundle no model: name it with --model")
    return inputs_of(classifier.model, table, trained_names(classifier))


def in_order(table: DataTable, names: tuple[str, ...] | None) -> Any:
    """The features of a table in the order of these names, None for any."""
    known, features = table.feature_names, table.features
    if names is None or known is None or known == names:
        return features
    missing = [name for name in names if name not in set(known)]
    extra = [name for name in known if name not in set(names)]
    if missing or extra:
        raise InputError(
            f"the columns must be the same as in training; missing: {quoted(missing)}; unknown: "
            f"{quoted(extra)} (name the label column with --label, an identifier with --id, others "
            "with --drop)"
        )
    at = {name: place for place, name in enumerate(known)}
    places = [at[name] for name in names]
    return features.iloc[:, places] if hasattr(features, "iloc") else features[:, places]


def _in_form(features: Any, names: tuple[str, ...] | None, model: Any) -> Any:
    """The same samples in the form that a model takes."""
    steps = getattr(model, "steps", None) or [("", model)]
    if not hasattr(features, "iloc"):
        by_name = any(hasattr(step, "transformers") for _, step in steps)
        if not by_name or names is None or features.ndim != 2:
            return features
        return make_frame(dict(zip(names, features.T, strict=True)))
    first = steps[0][1]
    if hasattr(first, "build_analyzer"):  # of texts
        if features.shape[1] != 1:
            raise InputError(
                f"{type(first).__name__} takes one column of text; the file has "
                f"{features.shape[1]} columns: choose one with --features"
            )
        return features.iloc[:, 0].fillna("")
    if not _by_category(model):
        return features
    from pandas.api.types import is_string_dtype

    text = [name for name in features.columns if is_string_dtype(features[name].dtype)]
    return features.astype(dict.fromkeys(text, "category"))


def _by_category(model: Any) -> bool:
    package, name = type(model).__module__.partition(".")[0], type(model).__name__
    return package in TREES or name in BY_CATEGORY


def _unwrap(model: Any) -> Any:
    """The estimator inside a frozen one."""
    while type(model).__name__ == "FrozenEstimator":
        model = model.estimator
    return model


def check_output(output: Path, reads: Sequence[Path] = ()) -> None:
    """Refuse a file that cannot be written, or an input, however it is spelled."""
    if output == STDIN:  # standard output
        return
    with suppress(FileNotFoundError):
        output.stat()  # the system refuses a loop of links
    if output.is_dir():
        raise InputError(f"{output} is a folder: name the file to write in it")
    for path in reads:
        if _is_same(output, path):
            raise InputError(f"{output} is an input and would be lost: write to another file")
        if _is_within(output, path) or _is_within(path, output):
            raise InputError(
                f"the input {path} would be lost, as {output} holds it or is in it: write elsewhere"
            )


def check_page(output: Path, reads: Sequence[Path] = ()) -> None:
    """Refuse a report that is not an HTML file: a table's name there is a mistake."""
    is_page = output.suffix.lower() in (".html", ".htm") or _is_stream(output)
    if not is_page and not output.is_dir():
        raise InputError(f"{output} cannot be written: the name of a report must end in .html")
    check_output(output, reads)


def write_page(output: Path, page: str) -> None:
    """Write a report as a file, or to standard output."""
    if output == STDIN:
        sys.stdout.buffer.write(page.encode())
    else:
        write_bytes(output, page.encode())


def paths_read(*sources: DataFile | None, model: str | None = None) -> list[Path]:
    """All files that hold samples, labels and the model."""
    given = [source for source in sources if source is not None]
    paths = [path for source in given for path in (source.path, source.labels_path)]
    found = [path for path in (*files_of(model or ""), *paths) if path is not None]
    if found.count(STDIN) > 1:
        raise InputError("'-' can be read once: only one of the inputs may come from a pipe")
    return [path for path in found if path != STDIN]


def _is_same(one: Path, other: Path) -> bool:
    """Whether two names mean the same file: by a link, a hard link, or another spelling."""
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them does not exist
        return os.path.realpath(one) == os.path.realpath(other)


def _is_within(inner: Path, outer: Path) -> bool:
    """Whether a file is inside a folder, or inside a path that is about to become one."""
    return Path(os.path.realpath(outer)) in Path(os.path.realpath(inner)).parents and (
        not outer.exists() or outer.is_dir()
    )


def _is_stream(output: Path) -> bool:
    return output == STDIN or is_stream(output)


def console_for(*outputs: Path | None) -> Console:
    """The console for messages: not the stream that a result goes to."""
    return Console(stderr=any(_is_stream(path) for path in outputs if path is not None))


def show_written(output: Path, console: Console) -> None:
    """Print where the result is; what went to a pipe, its reader has."""
    if output != STDIN:
        console.print(Text(f"Written to {visible(output)}"), soft_wrap=True)


def show_page(output: Path, console: Console) -> None:
    """Print where the page is, as a link if the terminal supports links."""
    if _is_stream(output):  # it leaves nothing to open
        show_written(output, console)
        return
    console.print(
        Text("Open in any browser, with sliders, samples and their evidence: ").append(
            visible(output), style=Style(link=output.resolve().as_uri())
        ),
        soft_wrap=True,
    )


def shown_table(*headings: str, right: Sequence[str] = ()) -> Table:
    """An empty table for a terminal. right: the headings of columns of numbers."""
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left")
    return table
