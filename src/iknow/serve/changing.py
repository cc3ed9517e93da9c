"""Changing: a served model whose evidence changes, without a restart.

    asked → a copy that shares the rest → changed → announced in the audit → committed to the bundle
          → warm → served

The copy answers what comes after the bundle is on disk; what is under way is answered by the model
as it was. The alarm and the figures go on: they are about the stream, not about one state. What a
crash can leave between the audit and the bundle, `iknow.serve.audit.writer` says.
"""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.text import names, shown
from iknow.errors import AuditError, BundleError, ConflictError, IknowError
from iknow.serve.refusal import Refusal
from iknow.serve.rows import Rows, as_inputs, as_rows, shape_rows
from iknow.serve.said import labels_of
from iknow.serve.served import Served, promises_of
from iknow.storage.archive import open_file
from iknow.storage.changes import Logged
from iknow.storage.saving import commit_changes

Announce = Callable[[str, Sequence[Logged]], None]
"""Takes the sha256 that the bundle will have, and the changes; raises an AuditError to prevent it.
"""
KEYS = ("remove", "relabel", "add", "why", "after")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Asked:
    """A change that somebody asks for: samples to remove, to relabel and to add, in this order.

    after: the sha256 of the bundle that they saw, if they say so.
    """

    remove: list[int]
    relabel: list[tuple[int, Any]]
    rows: Rows | None
    labels: list[Any]
    ids: list[int] | None
    why: str
    after: str | None

    def __len__(self) -> int:
        return len(self.remove) + len(self.relabel) + len(self.labels)


def read_asked(said: Any, most_rows: int) -> Asked:
    """What the body of a request asks for.

    Raises:
        Refusal: 422 or 413, with what is wrong.
    """
    if not isinstance(said, Mapping) or not said or not set(said) <= set(KEYS):
        got = names(said) if isinstance(said, Mapping) else shown(said, 60)
        raise Refusal(422, f"expected an object with some of {names(KEYS)}; got {got}")
    add = said.get("add")
    if add is not None and (not isinstance(add, Mapping) or not {"rows", "labels"} <= set(add)):
        raise Refusal(422, 'add must be an object {"rows": [...], "labels": [...], "ids": [...]}')
    if add is not None and (strange := set(add) - {"rows", "labels", "ids"}):
        raise Refusal(422, f"add has rows, labels and perhaps ids; got {names(strange)}")
    why, after = said.get("why", ""), said.get("after")
    if not isinstance(why, str) or not (after is None or isinstance(after, str)):
        raise Refusal(422, "why must be text, and after the sha256 of a bundle")
    asked = Asked(
        remove=_as_ids(said.get("remove", []), "remove"),
        relabel=_as_pairs(said.get("relabel", [])),
        rows=None if add is None else as_rows(add["rows"]),
        labels=[] if add is None else _as_list(add["labels"], "add.labels"),
        ids=None if add is None or add.get("ids") is None else _as_ids(add["ids"], "add.ids"),
        why=why,
        after=after,
    )
    for label in (*asked.labels, *(label for _, label in asked.relabel)):
        if not isinstance(label, (str, int, float)) or label != label:
            raise Refusal(422, f"a label is text, a number, true or false; got {shown(label, 60)}")
    if asked.rows is not None and len(asked.rows) != len(asked.labels):
        raise Refusal(422, f"{len(asked.rows)} rows need as many labels; got {len(asked.labels)}")
    if not len(asked):
        raise Refusal(422, "nothing is asked for: name samples to add, to remove or to relabel")
    if len(asked) > most_rows:
        raise Refusal(413, f"a request may change {most_rows:,} samples; got {len(asked):,}")
    return asked


def change_served(served: Served, asked: Asked, who: str, announce: Announce) -> Served:
    """The model after a change, which is in its bundle when this returns.

    announce: is called before the bundle is touched.

    Raises:
        Refusal: 409, 422, 503 or 507; then nothing has changed.
    """
    classifier = served.classifier
    if classifier.plan_.uncommitted != ():
        raise Refusal(409, f"{served.title} is not served from a bundle: there is none to change")
    if asked.after not in (None, served.sha256):
        raise Refusal(409, f"{served.title} is {served.sha256} by now: look again, then decide")
    changed = copy.copy(classifier)
    known = len(classifier.memory.log)
    try:
        _apply(changed, asked, who)
        changed.warm_up()  # now, as later nothing may fail any more
        made = changed.memory.log[known:]
        changed.plan_ = commit_changes(changed.plan_, None, lambda sha256: announce(sha256, made))
    except AuditError as error:
        raise Refusal(503, "the change could not be recorded, so it is not made", 5) from error
    except ConflictError as error:
        raise Refusal(
            409, "the bundle was changed on disk meanwhile: POST /v1/reload, then try again"
        ) from error
    except BundleError as error:
        raise Refusal(503, f"the bundle of {served.title} cannot be changed: {error}") from error
    except OSError as error:
        full = error.errno in FULL
        why = "the disk is full" if full else f"the bundle cannot be written ({error.strerror})"
        raise Refusal(507 if full else 503, f"{why}: nothing was changed") from error
    except Refusal:
        raise
    except IknowError as error:
        raise Refusal(422, str(error)) from error
    return renew_served(served, changed)


def state_on_disk(served: Served) -> str | None:
    """The sha256 of a model's bundle as it is now; None if it cannot be read."""
    try:
        return open_file(Path(served.classifier.plan_.bundled["path"]), copied_up_to=0).sha256
    except (BundleError, KeyError):
        return None


def sync_bundle(served: Served) -> None:
    """Wait until the bundle is on disk as we read it: its writer may have been killed before."""
    if "path" not in served.classifier.plan_.bundled:
        return
    with suppress(OSError):
        descriptor = os.open(served.classifier.plan_.bundled["path"], os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def renew_served(served: Served, classifier: EpistemicClassifier) -> Served:
    """The same model with another state of its evidence."""
    return replace(
        served,
        classifier=classifier,
        sha256=str(classifier.plan_.bundled["sha256"]),
        labels=labels_of(classifier),
        promises=promises_of(classifier) or served.promises,
    )


def _apply(classifier: EpistemicClassifier, asked: Asked, who: str) -> None:
    if asked.remove:
        classifier.memory.remove(asked.remove, who, asked.why)
    if asked.relabel:
        ids, labels = zip(*asked.relabel, strict=True)
        classifier.memory.relabel(list(ids), list(labels), who, asked.why)
    if asked.rows is not None:
        inputs = as_inputs(classifier, shape_rows(classifier, asked.rows))
        classifier.memory.add(inputs, asked.labels, asked.ids, who, asked.why)


def _as_list(values: Any, where: str) -> list[Any]:
    if not isinstance(values, list):
        raise Refusal(422, f"{where} must be a list; got {shown(values, 60)}")
    return values


def _as_ids(values: Any, where: str) -> list[int]:
    for value in _as_list(values, where):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
            raise Refusal(422, f"{where} must hold numbers of samples; got {shown(value, 60)}")
    return list(values)


def _as_pairs(values: Any) -> list[tuple[int, Any]]:
    pairs = []
    for value in _as_list(values, "relabel"):
        if not isinstance(value, Mapping) or set(value) != {"id", "label"}:
            raise Refusal(422, f"relabel holds objects with id and label; got {shown(value, 60)}")
        pairs.append((_as_ids([value["id"]], "the id in relabel")[0], value["label"]))
    return pairs
