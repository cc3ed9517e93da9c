"""Assessing by Ray: the pieces of a dataset on all cores of a cluster, in their order.

Ray Data hands the pieces to a pool of actors. Each loads the bundle once, reads its pieces itself,
and sends back what each part comes to, or the error that stopped it. So the answers, their order
and the first error are those of `assess_here`.
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

from iknow.classifier.epistemic import EpistemicClassifier
from iknow.cli.jobs.assess import Said, Setup, assess_parts
from iknow.cli.jobs.forms import takes_text
from iknow.cli.jobs.source import Source
from iknow.errors import ClusterError, InputError, MissingExtraError
from iknow.tables.roles import Roles

try:
    import ray
    import ray.data

    from iknow.search.ray import join
    from iknow.tables.pyarrow.pieces import Piece, find_pieces, reading_piece
except ImportError as error:
    raise MissingExtraError("assessing with --ray", "ray") from error


@dataclass(frozen=True)
class RayPool:
    """A way to assess: by the actors of a cluster. address: as for `join`."""

    address: str | None = None

    @contextmanager
    def __call__(
        self, setup: Setup, classifier: EpistemicClassifier, data: Source, written: bool
    ) -> Iterator[Iterator[Said]]:
        _check(data)
        pieces = find_pieces(data.path)
        mixed = takes_text(classifier.model)
        with reading_piece(pieces[0], data.roles, mixed=mixed) as parts:
            next(parts)  # a missing column is found before Ray starts
        work = Work(setup, pieces, data.roles, mixed, written, Path.cwd())
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
    pieces: list[Piece]
    roles: Roles
    mixed: bool
    written: bool
    here: Path


class Assessor:
    """An actor that assesses pieces, given by their numbers."""

    def __init__(self, work: Work) -> None:
        os.environ["LOKY_MAX_CPU_COUNT"] = "1"  # there is an actor for every core
        self._work, self._classifier, self._failure = work, None, None
        try:
            os.chdir(work.here)
            self._classifier = work.setup.load()[0]
        except Exception as error:
            self._failure = error

    def __call__(self, batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """What each part of the pieces comes to, or an error, pickled in a row each."""
        try:
            if self._failure is not None:
                raise self._failure
            for number in batch["item"].tolist():
                for said in self._assess(self._work.pieces[number]):
                    yield _row(said)
        except Exception as error:
            yield _row(error)

    def _assess(self, piece: Piece) -> Iterator[Said]:
        assert self._classifier is not None
        work = self._work
        with (
            reading_piece(piece, work.roles, mixed=work.mixed) as parts,
            closing(assess_parts(self._classifier, parts, written=work.written)) as said,
        ):
            yield from said


def _row(found: Said | Exception) -> dict[str, Any]:
    row = np.empty(1, dtype=object)
    try:
        row[0] = pickle.dumps(found)
    except Exception:  # of the user's code
        row[0] = pickle.dumps(InputError(f"{type(found).__name__}: {found}"))
    return {"part": row}


def _spread(work: Work) -> Generator[Said]:
    """What the actors say, in the order of the pieces."""
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # errors are ours to tell
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    needed: dict[str, Any] = {"num_cpus": 1}
    if (work.setup.device or "").startswith("cuda"):
        needed["num_gpus"] = 1
    size = _pool_size(needed, len(work.pieces))
    numbers = range(len(work.pieces))
    said = ray.data.from_items(list(numbers), override_num_blocks=len(numbers)).map_batches(
        Assessor,
        fn_constructor_args=(work,),
        batch_size=1,
        batch_format="numpy",
        concurrency=(1, size),
        **needed,
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


def _pool_size(needed: dict[str, Any], n_pieces: int) -> int:
    """How many actors a cluster has room for; an error if there is none for any."""
    there = ray.cluster_resources()
    held = [int(there.get(name, 0)) for name in ("CPU", "GPU")[: len(needed)]]
    if min(held) < 1:
        raise ClusterError(
            f"an actor needs {len(needed) - 1} GPUs and 1 core; the cluster has "
            f"{held[-1] if len(held) > 1 else 0} and {held[0]}"
        )
    return min(n_pieces, *held)


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
