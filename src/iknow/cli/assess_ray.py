"""`iknow assess --ray`: a Parquet file, or a folder of them, on all cores of a cluster.

The actors of `iknow.integrations.ray` read row groups of the files themselves, in the same parts as
without Ray, and send back what each part comes to, or the error that stopped it. So the answers,
their order and the first error are the same.
"""

from __future__ import annotations

import logging
import os
import pickle
import warnings
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from iknow.classifier.estimator import EpistemicClassifier
from iknow.cli.assess import Said, Setup, assess_parts
from iknow.cli.data import DataFile, takes_text
from iknow.cli.errors import UNNAMED
from iknow.core.text import names as quoted
from iknow.errors import ClusterError, InputError, MissingExtraError
from iknow.tables.table import DataTable, Roles, decoding, existing

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


@contextmanager
def assess_by_ray(
    setup: Setup, classifier: EpistemicClassifier, source: DataFile, address: str | None
) -> Iterator[Iterator[Said]]:
    """The parts of a source, assessed by the actors of a cluster. address: as for `join`."""
    is_parquet = source.path.is_dir() or source.path.suffix.lower() == ".parquet"
    if not is_parquet or source.form not in (None, "parquet"):
        raise InputError(
            f"--ray reads a Parquet file, or a folder of them; got {source.name}: leave out --ray, "
            "or convert it"
        )
    if source.labels_path is not None:
        raise InputError("--ray takes labels from a column, --label, and not from --labels")
    groups = find_groups(source.path)
    with reading_group(*groups[0], source.roles, classifier.model) as parts:
        next(parts)  # a missing column is found before Ray starts
    ours = not ray.is_initialized()
    try:
        join(address)
        with closing(_spread(setup, groups, source.roles)) as said:
            yield said
    finally:
        if ours:
            ray.shutdown()


def find_groups(source: Path) -> list[tuple[Path, int]]:
    """The row groups of a Parquet file, or of all in a folder by the order of their names."""
    files = [existing(source)] if not source.is_dir() else sorted(source.glob("*.parquet"))
    if not files:
        raise InputError(f"{source} holds no file ending in .parquet")
    groups, first = list[tuple[Path, int]](), None
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
def reading_group(
    path: Path, group: int, roles: Roles, model: Any
) -> Iterator[Iterator[DataTable]]:
    """The samples of a row group, part by part; text may be a feature if the model takes it."""
    with path.open("rb") as file:
        opened = open_parquet(file, path, [group])
        yield read_parts(opened, path, roles, labelled=True, mixed=takes_text(model))


def _spread(setup: Setup, groups: list[tuple[Path, int]], roles: Roles) -> Generator[Said]:
    """What the actors say, in the order of the row groups."""
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # errors are ours to tell
    ray.data.DataContext.get_current().enable_progress_bars = False
    items = [{"path": str(path), "group": group} for path, group in groups]
    said = assess(
        ray.data.from_items(items, override_num_blocks=min(len(items), MOST_BLOCKS)),
        partial(_load, setup, Path.cwd()),
        answer=partial(_answer, roles=roles, written=setup.written),
        batch_format="numpy",
        batch_size=None,
        num_gpus=int((setup.device or "").startswith("cuda")),
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


def _load(setup: Setup, here: Path) -> EpistemicClassifier:
    """An actor's classifier. here: the folder that relative names start from."""
    os.chdir(here)
    warnings.filterwarnings("ignore", message=UNNAMED)
    return setup.load()[0]


def _answer(
    classifier: EpistemicClassifier, batch: dict[str, Any], *, roles: Roles, written: bool
) -> Generator[dict[str, Any]]:
    """What each part of some row groups comes to, or an error, pickled in a row each."""
    try:
        for path, group in zip(batch["path"], batch["group"], strict=True):
            with (
                reading_group(Path(path), int(group), roles, classifier.model) as parts,
                closing(assess_parts(classifier, parts, written=written)) as assessed,
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
