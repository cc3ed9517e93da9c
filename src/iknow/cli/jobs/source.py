"""Where a job's samples come from: a file, with its columns in the model's order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iknow.cli.tables import Table, read_table
from iknow.core.arrays import Ints, Labels
from iknow.core.text import names as quoted
from iknow.errors import InputError


@dataclass(frozen=True)
class Source:
    """A data file and where its labels are."""

    path: Path
    label: str | None = None
    labels_path: Path | None = None

    def read(self) -> Table:
        return read_table(self.path, label=self.label, labels_path=self.labels_path)

    def read_labelled(self) -> tuple[Table, Labels]:
        table = self.read()
        if table.labels is None:
            raise InputError(
                f"{self.path} has no labels: name a column with --label, or a file with --labels"
            )
        return table, table.labels


def trained_names(fitted: Any) -> tuple[str, ...] | None:
    """The column names that a classifier or model was fitted on, if it knows them."""
    names = getattr(fitted, "feature_names_in_", None)
    return None if names is None else tuple(names)


def take_inputs(table: Table, names: tuple[str, ...] | None, rows: Ints) -> Any:
    """These rows of a table as a model's inputs, with columns in the model's order."""
    if table.features is None:
        activations = {layer: values[rows] for layer, values in table.activations.items()}
        return table.scores[rows], activations  # type: ignore[index]
    features = table.features[rows]
    if names is None or table.feature_names is None or table.feature_names == names:
        return features
    places = {name: place for place, name in enumerate(table.feature_names)}
    missing = [name for name in names if name not in places]
    known = set(names)
    extra = [name for name in table.feature_names if name not in known]
    if missing or extra:
        raise InputError(
            f"the columns must be the same as in training; missing: {quoted(missing)}; unknown: "
            f"{quoted(extra)} (name the label column with --label)"
        )
    return features[:, [places[name] for name in names]]


def check_width(table: Table, model: Any) -> None:
    """Refuse samples with more or fewer features than the model expects, if it tells."""
    wanted = getattr(model, "n_features_in_", None)
    if table.features is None or table.features.ndim != 2 or not isinstance(wanted, int):
        return
    if (width := table.features.shape[1]) != wanted:
        raise InputError(
            f"the model takes {wanted} features; the file has {width} (name the labels by --label)"
        )
