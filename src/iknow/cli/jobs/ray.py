"""Assessing by Ray: a Parquet file, or a folder of them, on all cores of a cluster.

The actors of `iknow.integrations.ray` read row groups of the files themselves, in the same parts as
`assess_here`, and send back what each part comes to, or the error that stopped it. So the answers,
their order and the first error are the same.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from iknow.classifier.estimator import EpistemicClassifier
from iknow.cli.jobs.assess import Said, Setup, assess_parts
from iknow.cli.jobs.forms import takes_text
from iknow.cli.jobs.source import Source
from iknow.core.text import names as quoted
from iknow.errors import ClusterError, InputError, MissingExtraError
from iknow.tables.table import Roles, Table, decoding, existing

try:
    import pyarrow.parquet as pq
    import ray
    import ray.data

    from iknow.integrations.ray import assess
    from iknow.search.ray import join
    from iknow.tables.columns import open_parquet, read_parts
except ImportError as error:
    raise MissingExtraError("assessing with --ray", "ray") from error


MOST_BLOCKS = 1_000
"""Into how many pieces of work the row groups are cut, at most."""
RowGroup = tuple[Path, int]


def find_groups(source: Path) -> list[RowGroup]:
    """The row groups of a Parquet file, or of all in a folder by the order of their names."""
    files = [existing(source)] if not source.is_dir() else sorted(source.glob("*.parquet"))
    if not files:
        raise InputError(f"{source} holds no file ending in .parquet")
    groups, first = list[RowGroup](), None
    for path in files:
        with decoding(path):
            meta = pq.read_metadata(existing(path))
            names = meta.schema.to_arrow_schema().names
        first = names if first is None else first
        if names != first:
            raise InputError(
                f"all files of {source} must have the same columns in the same order: {path.name} "
                f"has {quoted(names)}, and {files[0].name} has {quoted(first)}"
            )
        groups += [(path, i) for i in range(meta.num_row_groups) if meta.row_group(i).num_rows]
    if not groups:
        raise InputError(f"{source} is empty: it has columns but no rows")
    return groups


@contextmanager
def reading_group(group: RowGroup, roles: Roles, *, mixed: bool) -> Iterator[Iterator[Table]]:
    """The samples of a row group, part by part. mixed: whether text may be a feature."""
    path, number = group
    with path.open("rb") as file:
        yield read_parts(
            open_parquet(file, path, [number]), path, roles, labelled=True, mixed=mixed
        )


@dataclass(frozen=True)
class RayPool:
    """A way to assess: by the actors of a cluster. address: as for `join`."""

    address: str | None = None

    @contextmanager
    def __call__(
        self, setup: Setup, classifier: EpistemicClassifier, data: Source, written: bool
    ) -> Iterator[Iterator[Said]]:
        _check(data)
        groups, mixed = find_groups(data.path), takes_text(classifier.model)
        with reading_group(groups[0], data.roles, mixed=mixed) as parts:
            next(parts)  # a missing column is found before Ray starts
        work = Work(setup, groups, data.roles, mixed, written, Path.cwd())
        ours = not ray.is_initialized()
        try:
            join(self.address)
            with closing(_spread(work)) as said:
                yield said
        finally:
            if ours:
                ray.shutdown()


@dataclass(frozen=True)
class Work:
    """What the actors need to know. here: the folder that relative names start from."""

    setup: Setup
    groups: list[RowGroup]
    roles: Roles
    mixed: bool
    written: bool
    here: Path

    def load(self) -> EpistemicClassifier:
        os.chdir(self.here)
        return self.setup.load()[0]

    def answer(
        self, classifier: EpistemicClassifier, batch: dict[str, Any]
    ) -> Generator[dict[str, Any]]:
        """What each part of some row groups comes to, or an error, pickled in a row each."""
        try:
            for item in batch["item"].tolist():
                with (
                    reading_group(self.groups[item], self.roles, mixed=self.mixed) as parts,
                    closing(assess_parts(classifier, parts, written=self.written)) as assessed,
                ):
                    for said in assessed:
                        yield _row(said)
        except Exception as error:
            yield _row(error)


def _row(found: Said | Exception) -> dict[str, Any]:
    row = np.empty(1, dtype=object)
    try:
        row[0] = pickle.dumps(found)
    except Exception:  # of the user's code
        row[0] = pickle.dumps(InputError(f"{type(found).__name__}: {found}"))
    return {"part": row}


def _spread(work: Work) -> Generator[Said]:
    """What the actors say, in the order of the row groups."""
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # errors are ours to tell
    ray.data.DataContext.get_current().enable_progress_bars = False
    numbers = range(len(work.groups))
    said = assess(
        ray.data.from_items(list(numbers), override_num_blocks=min(len(numbers), MOST_BLOCKS)),
        work.load,
        answer=work.answer,
        batch_format="numpy",
        batch_size=None,
        num_gpus=int((work.setup.device or "").startswith("cuda")),
    )
    try:
        for batch in said.iter_batches(batch_size=None, batch_format="numpy"):
            for part in batch["part"]:
                found = pickle.loads(part)
                if isinstance(found, Exception):
                    raise found
                yield found
    except ray.exceptions.RayError as error:
        raise ClusterError(f"Ray lost a part of the work: {error}; run it again") from error


def _check(data: Source) -> None:
    """Refuse what Ray cannot read."""
    is_parquet = data.path.is_dir() or data.path.suffix.lower() == ".parquet"
    if not is_parquet or data.form not in (None, "parquet"):
        raise InputError(
            f"--ray reads a Parquet file, or a folder of them; got {data.name}: leave out --ray, "
            "or convert it"
        )
    if data.labels_path is not None:
        raise InputError("--ray takes labels from a column, --label, and not from --labels")
