"""FaissIndex: proposals by FAISS, one index for each class."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from iknow.core.arrays import Floats32, Ints
from iknow.errors import MissingExtraError
from iknow.locking import unforked
from iknow.search.approximate.index import ApproximateIndex, Mode
from iknow.search.approximate.plan import Kind, Plan, make_plan
from iknow.search.approximate.proposing import Proposer


class FaissIndex(ApproximateIndex):
    """Activations of one layer with their class codes, in FAISS indexes, one for each class.

    FAISS only proposes rows; their distances are measured in float64 from the stored ones. See
    `iknow.search.approximate` for what each mode promises. Parameters that a kind does not have
    must be left out.

    Args:
        activations: Of shape (n_rows, n_features).
        labels: Class codes of shape (n_rows,).
        n_classes: Number of classes.
        rows: Numbers that identify the rows, of shape (n_rows,). Default: their positions.
        kind: "hnsw", a graph of near rows; "ivf", cells around centers; or "ivfpq", cells whose
            rows are compressed. A class with too few rows for its kind is searched whole.
        mode: "exact", "verified" or "fast".
        links: Of a graph: neighbors that each row is linked to. Default: 32.
        ef: Of a graph: how many candidates a search keeps. Default: 64.
        lists: Of cells: how many. Default: four times the root of the number of rows.
        probes: Of cells: how many to search. Default: 16.
        codes: Of compressed rows: into how many parts to cut a row. It must divide the number of
            features. Default: parts of at least 4 features.
        bits: Of compressed rows: for each part, 4 to 12. Default: 8.

    Examples:
        >>> from iknow.search.approximate import FaissIndex
        >>> index = FaissIndex(rows, labels, n_classes=2, kind="hnsw", mode="verified")
        >>> index.find_support([[4.0]], RelativeBall(2.0, 1.5), np.array([1]))
        array([[False,  True]])
    """

    def __init__(
        self,
        activations: Any,
        labels: Any,
        n_classes: int,
        rows: Ints | None = None,
        *,
        kind: Kind = "hnsw",
        mode: Mode = "verified",
        links: int | None = None,
        ef: int | None = None,
        lists: int | None = None,
        probes: int | None = None,
        codes: int | None = None,
        bits: int | None = None,
    ) -> None:
        given = {"links": links, "ef": ef, "lists": lists, "probes": probes}
        plan = make_plan(kind, {**given, "codes": codes, "bits": bits})
        _load_faiss()
        arrays = activations, labels, n_classes, rows
        super().__init__(*arrays, make=partial(_propose, plan=plan), mode=mode)
        plan.check_features(self.n_features)
        self.plan = plan

    def __repr__(self) -> str:
        options = {name: value for name, value in asdict(self.plan).items() if value is not None}
        said = {"kind": options.pop("kind"), "mode": self.mode, **options}
        return f"FaissIndex({', '.join(f'{name}={value!r}' for name, value in said.items())})"


def _propose(points: Floats32, plan: Plan) -> Proposer:
    proposer: Proposer = _load_faiss().FaissProposer(points, plan)
    return proposer


def _load_faiss() -> Any:
    """The module that imports FAISS, which only its users should pay for."""
    try:
        with unforked():
            import iknow.search.approximate.faiss as found
    except ImportError as error:
        raise MissingExtraError("FaissIndex", "faiss") from error
    return found
