"""Where a job's samples come from: a file, and its columns in the order that a model knows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iknow.core.arrays import Ints
from iknow.errors import InputError
from iknow.tables import Table, read_table


@dataclass(frozen=True)
class Source:
    """A data file and where its labels are."""

    path: Path
    label: str | None = None
    labels_path: Path | None = None

    def read(self) -> Table:
        return read_table(self.path, label=self.label, labels_path=self.labels_path)

    def read_labelled(self) -> Table:
        table = self.read()
        if table.labels is None:
            raise InputError(
                f"{self.path} holds no labels: name their column with --label, or their file with "
                "--labels"
            )
        return table


def trained_names(fitted: Any) -> tuple[str, ...] | None:
    """The names of the columns that a classifier or a model was fitted on, if it knows them."""
    names = getattr(fitted, "feature_names_in_", None)
    return None if names is None else tuple(names)


def take_inputs(table: Table, names: tuple[str, ...] | None, rows: Ints) -> Any:
    """Some rows of a table as a model's inputs, columns in the order the model knows."""
    if table.features is None:
        activations = {layer: values[rows] for layer, values in table.activations.items()}
        return table.scores[rows], activations  # type: ignore[index]
    features = table.features[rows]
    if names is None or table.feature_names is None or table.feature_names == names:
        return features
    missing = [name for name in names if name not in table.feature_names]
    extra = [name for name in table.feature_names if name not in names]
    if missing or extra:
        raise InputError(
            f"the columns must be those of training; missing: {', '.join(missing) or 'none'}; "
            f"not known: {', '.join(extra) or 'none'} (name the label column with --label)"
        )
    return features[:, [table.feature_names.index(name) for name in names]]
