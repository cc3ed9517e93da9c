"""Where a job's samples come from: a file or a pipe, with its columns in the model's order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from iknow.core.arrays import Ints, Labels
from iknow.core.text import names as quoted
from iknow.errors import InputError
from iknow.tables import Roles, Table, read_table, reading


@dataclass(frozen=True)
class Source:
    """A data file, what its columns are for, and where its labels are.

    path: "-" for standard input. form: the format, if the ending does not tell it.
    """

    path: Path
    roles: Roles = field(default_factory=Roles)
    labels_path: Path | None = None
    form: str | None = None

    @property
    def name(self) -> str:
        return "standard input" if str(self.path) == "-" else str(self.path)

    def read(self, *, mixed: bool = False) -> Table:
        """All samples. mixed: whether text may be a feature."""
        how: dict[str, Any] = {"roles": self.roles, "form": self.form, "mixed": mixed}
        return read_table(self.path, labels_path=self.labels_path, **how)

    def parts(self, *, mixed: bool = False) -> AbstractContextManager[Iterator[Table]]:
        """The samples part by part; labels of .csv cells are text."""
        return reading(self.path, self.labels_path, self.roles, form=self.form, mixed=mixed)

    def read_labelled(self, *, mixed: bool = False) -> tuple[Table, Labels]:
        table = self.read(mixed=mixed)
        if table.labels is None:
            raise InputError(
                f"{self.name} has no labels: name a column with --label, or a file with --labels"
            )
        return table, table.labels

    def without_labels(self, path: Path) -> Source:
        """Another file of samples with the same columns, but no labels."""
        roles = replace(self.roles, label=None, id=None)
        return Source(path, roles)


def trained_names(fitted: Any) -> tuple[str, ...] | None:
    """The column names that a classifier or model was fitted on, if it knows them."""
    names = getattr(fitted, "feature_names_in_", None)
    return None if names is None else tuple(names)


def take_inputs(table: Table, names: tuple[str, ...] | None, rows: Ints | None = None) -> Any:
    """These rows of a table, or all, as a model's inputs, with columns in the model's order."""
    chosen = slice(None) if rows is None else rows
    if table.features is None:
        activations = {layer: values[chosen] for layer, values in table.activations.items()}
        return table.scores[chosen], activations  # type: ignore[index]
    places = _find_places(table, names)
    if hasattr(table.features, "iloc"):
        features = table.features.iloc[chosen]
        return features if places is None else features.iloc[:, places]
    features = table.features[chosen]
    return features if places is None else features[:, places]


def _find_places(table: Table, names: tuple[str, ...] | None) -> list[int] | None:
    """Where the columns of the model are in a table; None if they are in their order."""
    if names is None or table.feature_names is None or table.feature_names == names:
        return None
    places = {name: place for place, name in enumerate(table.feature_names)}
    missing = [name for name in names if name not in places]
    known = set(names)
    extra = [name for name in table.feature_names if name not in known]
    if missing or extra:
        raise InputError(
            f"the columns must be the same as in training; missing: {quoted(missing)}; unknown: "
            f"{quoted(extra)} (name the label column with --label, an identifier with --id, others "
            "with --drop)"
        )
    return [places[name] for name in names]


def check_width(table: Table, model: Any) -> None:
    """Refuse samples with more or fewer features than the model expects, if it tells."""
    wanted = getattr(model, "n_features_in_", None)
    if table.features is None or table.features.ndim != 2 or not isinstance(wanted, int):
        return
    if wanted == 0:  # catboost's, of a model from a file
        return
    if (width := table.features.shape[1]) != wanted:
        raise InputError(
            f"the model takes {wanted} features; the file has {width} (name the labels by --label, "
            "and other columns by --id or --drop)"
        )
