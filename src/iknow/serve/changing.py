"""Changing: a served model whose evidence changes, without a restart.

    asked → a copy that shares the rest → changed → announced in the audit → committed to the bundle
          → warm → served

The copy answers what comes after the bundle is on disk; what is under way is answered by the model
as it was. The alarm and the figures go on: they are about the stream, not about one state. What a
crash can leave between the audit and the bundle, `iknow.serve.audit.announced` says.
"""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.text import shown
from iknow.errors import AuditError, BundleError, ConflictError, IknowError
from iknow.serve.bodies import as_inputs, as_rows, shape_rows
from iknow.serve.schema import ChangeRequest, Refusal
from iknow.serve.served import ServedModel
from iknow.storage.archive import open_file
from iknow.storage.changes import Logged
from iknow.storage.saving import commit_changes

Announce = Callable[[str, Sequence[Logged]], None]
"""Takes the sha256 that the bundle will have, and the changes; raises an AuditError to prevent it.
"""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def check_change(asked: ChangeRequest, classes: list[Any], most_samples: int) -> None:
    """Refuse a change that asks for nothing, for too much, or with labels of another kind.

    Raises:
        Refusal: 422 or 413, with what is wrong.
    """
    n_rows, added = (0, []) if asked.add is None else (len(asked.add.rows), asked.add.labels)
    labels = [*added, *(each.label for each in asked.relabel)]
    n_samples = len(asked.remove) + len(labels)
    if n_rows != len(added):
        raise Refusal(422, f"{n_rows} rows need as many labels; got {len(added)}")
    if not n_samples:
        raise Refusal(422, "nothing is asked for: name samples to add, to remove or to relabel")
    if n_samples > most_samples:
        raise Refusal(413, f"a request may change {most_samples:,} samples; got {n_samples:,}")
    known = set(map(_kind_of, classes))
    for label in labels:
        if isinstance(label, float) and not isfinite(label):
            raise Refusal(422, f"a label is text, a finite number or a flag; got {label}")
        if _kind_of(label) not in known:  # Python takes true for 1
            raise Refusal(
                422, f"the label {shown(label, 60)} is of another kind than {shown(classes[0], 60)}"
            )


def _kind_of(label: Any) -> str:
    return "flag" if isinstance(label, bool) else "text" if isinstance(label, str) else "number"


def change_served(
    served: ServedModel, asked: ChangeRequest, who: str, announce: Announce
) -> ServedModel:
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
    return replace(served, classifier=changed)


def state_on_disk(served: ServedModel) -> str | None:
    """The sha256 of a model's bundle as it is now; None if it cannot be read."""
    try:
        return open_file(Path(served.classifier.plan_.bundled["path"]), copied_up_to=0).sha256
    except (BundleError, KeyError):
        return None


def sync_bundle(served: ServedModel) -> None:
    """Wait until the bundle is on disk as we read it: its writer may have been killed before."""
    if "path" in served.classifier.plan_.bundled:
        with suppress(OSError), open(served.classifier.plan_.bundled["path"], "rb") as file:
            os.fsync(file)


def _apply(classifier: EpistemicClassifier, asked: ChangeRequest, who: str) -> None:
    if asked.remove:
        classifier.memory.remove(asked.remove, who, asked.why)
    if asked.relabel:
        ids, labels = [each.id for each in asked.relabel], [each.label for each in asked.relabel]
        classifier.memory.relabel(ids, labels, who, asked.why)
    if asked.add is not None:
        rows = shape_rows(classifier, as_rows(asked.add.rows, len(asked.add.rows)))
        inputs = as_inputs(classifier, rows)
        classifier.memory.add(inputs, asked.add.labels, asked.add.ids, who, asked.why)
