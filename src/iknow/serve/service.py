"""The service itself, without HTTP: what starts and stops, how a request becomes an answer.

    rows → shaped → assessed, in a batch → recorded → answered → watched

What fails on this way is a `Refusal`. Nothing is answered that the audit does not hold.

The evidence of a model changes without a restart:

    asked → a copy that shares the rest → changed → announced in the audit → committed to the bundle
          → warm → served

The copy answers what comes after the bundle is on disk; what is under way is answered by the model
as it was. The alarm and the figures go on: they are about the stream, not about one state. What a
crash can leave between the audit and the bundle, `iknow.serve.audit.announced` says.

Labels come later: was what we knew true? A label names the request and the row that it belongs to.
The recorded answer says whether that was IK, and what was believed; only IKs count against their
certificate. A label that came before for the same row is not counted twice.
"""

from __future__ import annotations

import asyncio
import copy
import errno
import json
import logging
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from iknow.classifier.memory import follow
from iknow.core.text import shown
from iknow.errors import AuditError, BundleError, ConflictError, IknowError, InputError
from iknow.serve import schema
from iknow.serve.answers import RequestAnswers, Wanted
from iknow.serve.audit import (
    AuditWriter,
    Call,
    Event,
    Journal,
    Label,
    Retention,
    now,
    open_journal,
)
from iknow.serve.audit.announced import MADE, UNDONE, announce, conclude
from iknow.serve.audit.records import make_event
from iknow.serve.batching import Batcher
from iknow.serve.bodies import ByteBudget, Rows, as_inputs, as_rows, shape_rows
from iknow.serve.compute import Compute
from iknow.serve.schema import Refusal
from iknow.serve.served import BundleSource, Models, ServedModel, load_model
from iknow.serve.settings import Settings
from iknow.serve.watcher import open_watcher
from iknow.storage.archive import open_file
from iknow.storage.changes import Logged
from iknow.storage.info import describe_bundle
from iknow.storage.saving import commit_changes
from iknow.version import __version__

log = logging.getLogger("iknow.serve")
KEEP_EVERY = 1.0
"""Seconds between two writings of the alarms' state: what a killed process forgets."""
Announce = Callable[[str, Sequence[Logged]], None]
"""Takes the sha256 that the bundle will have, and the changes; an AuditError prevents them."""


class Service:
    """Models that answer, with an audit, alarms and everything else but HTTP.

    Args:
        models: Bundles to load when it starts, or models that are loaded.
        settings: How to serve.
    """

    def __init__(
        self, models: Sequence[BundleSource | ServedModel], settings: Settings | None = None
    ) -> None:
        self.settings = Settings() if settings is None else settings
        self.models, self.budget = Models(), ByteBudget(self.settings.most_held)
        self.ready = self.stopping = False
        self.failure: Exception | None = None  # why it could not start
        self.started, self._clock = now(), time.monotonic()
        self.audit: AuditWriter | None = None
        self.n_reloads = self.n_reload_failures = 0
        self._given, self._compute = tuple(models), Compute(self.settings.workers)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._reloading, self._learning = asyncio.Lock(), asyncio.Lock()

    async def start(self) -> None:
        """Open the audit, load and warm all models; it is ready afterwards."""
        if self.settings.audit is not None:
            self.audit = await asyncio.to_thread(_open_audit, self.settings)
        for given in self._given:
            await self._open(given)
        for model in self.models:
            log.info("serving %s (%s)", model.title, model.sha256[:12])
            if self.audit is not None:
                await self._complete(self.audit, model)
                await self.audit.note(make_event("start", model))
        self.start_task(self._keep())
        self.ready = True

    async def stop(self) -> None:
        """Finish what is under way, within `drain` seconds, and close everything."""
        self.ready, self.stopping = False, True
        for model in self.models:
            try:
                async with asyncio.timeout(self.settings.drain):
                    await model.batcher.drain()
            except TimeoutError:
                log.error(
                    "requests to %s were under way when the time to drain was over", model.title
                )
            await asyncio.to_thread(model.watcher.close)
            await asyncio.to_thread(model.watcher.monitors.close)
        if self.audit is not None:
            await asyncio.to_thread(_close_audit, self.audit)
        await asyncio.to_thread(self._compute.close)

    def find(self, name: str, version: str | None = None) -> ServedModel:
        """A model by its name. Raises a `Refusal`: 404, or 503 while models are loaded."""
        if not self.ready:
            raise Refusal(503, "the models are being loaded: wait for /readyz", 2)
        return self.models.find(name, version)

    async def answer(
        self, model: ServedModel, rows: Rows, wanted: Wanted, call: Call
    ) -> RequestAnswers:
        """The answers about some rows, recorded. Raises a `Refusal`: 422 if the rows do not fit the
        model, 429 if too many wait, 503 if the answer cannot be recorded or the bundle was damaged,
        504 if it takes too long.
        """
        start = time.perf_counter()
        if self.stopping:
            raise Refusal(503, "the service is stopping: ask another one", 5)
        with refusing("given"):
            async with asyncio.timeout(self.settings.timeout):
                shaped = shape_rows(model.classifier, rows)
                if self.audit is None:
                    answers = await model.batcher.submit(shaped, wanted)
                else:  # which holds the exemplars too
                    answers = await model.batcher.submit(shaped, wanted._replace(exemplars=True))
                    await self.audit.record(model, call, shaped.values, answers)
        model.watcher.put(answers, call.request, time.perf_counter() - start, call.watch)
        return answers

    async def reload(self) -> tuple[schema.Reloaded, ...]:
        """Load the bundles that changed on disk; one that cannot be loaded leaves the old one."""
        async with self._reloading:
            return tuple([await self._reload(model) for model in self.models])

    async def learn(self, call: Call, labels: Sequence[schema.TrueLabel]) -> schema.LabelCounts:
        """Record labels that came late, and let the monitors of their models learn from them.
        Raises a `Refusal`: 409, 422 or 503; then nothing is recorded.
        """
        if self.audit is None:
            raise Refusal(409, "labels are compared with recorded answers: serve with --audit FILE")
        if len(labels) > (most := self.settings.most_rows):
            raise Refusal(413, f"a request may have {most:,} labels; got {len(labels):,}")
        for i, each in enumerate(labels):
            if isinstance(each.label, float) and not isfinite(each.label):
                raise Refusal(422, f"labels[{i}]: a number must be finite; got {each.label}")
        served = {
            (each.name, sha256): each.watcher
            for each in self.models
            for sha256 in each.watcher.bundles
        }
        async with self._learning:  # a label that comes twice at once counts once
            with refusing("counted"):
                told, records, right = await asyncio.to_thread(
                    _compare, self.audit.journal, labels, call, served
                )
                if records:
                    await self.audit.write(records)
            for key, outcomes in right.items():
                await asyncio.to_thread(served[key].learn, np.array(outcomes, dtype=bool))
        return told

    async def change(self, name: str, asked: schema.ChangeRequest, call: Call) -> schema.Changed:
        """Change the evidence of a model, in its bundle and as it is served. Raises a `Refusal`:
        404, 409, 422, 503 or 507; then nothing has changed.
        """
        # Whoever asked may leave, but a change must not end halfway.
        return await asyncio.shield(self.start_task(self._change(name, asked, call)))

    async def _change(self, name: str, asked: schema.ChangeRequest, call: Call) -> schema.Changed:
        async with self._reloading:
            before = self.models.find(name)
            check_change(asked, before.labels, self.settings.most_rows)
            model, announced = await self._commit(before, asked, call)
            made = model.classifier.memory.log[len(before.classifier.memory.log) :]
            log.info("%s changed: %s", model.title, "; ".join(each.sentence() for each in made))
            if self.audit is not None:
                await self.audit.note(conclude(announced, MADE))
            await self._follow(before, model)
        entries = tuple(schema.ChangeEntry(**each.to_dict()) for each in made)
        return schema.Changed(model.name, model.version, model.sha256, before.sha256, entries)

    async def _commit(
        self, before: ServedModel, asked: schema.ChangeRequest, call: Call
    ) -> tuple[ServedModel, Event]:
        """Change a model's bundle: announced before, and said to be undone if it failed then."""
        announced: list[Event] = []

        def tell(sha256: str, made: Sequence[Logged]) -> None:
            event = announce(before, sha256, made)
            if self.audit is not None:
                self.audit.announce(event)
            announced.append(event)

        try:
            model = await asyncio.to_thread(change_served, before, asked, call.caller, tell)
            return model, announced[0]
        except Exception as error:
            if not announced:
                raise
            if await asyncio.to_thread(state_on_disk, before) != before.sha256:
                raise Refusal(
                    503,
                    "the disk failed, and it is not known whether the change was made: POST "
                    "/v1/reload, then look at the changes of the model",
                ) from error
            if self.audit is not None:
                await self.audit.note(conclude(announced[0], UNDONE))
            raise

    async def _complete(self, audit: AuditWriter, model: ServedModel) -> None:
        """Compare the audit with the log of a bundle, as it is on disk."""
        await asyncio.to_thread(sync_bundle, model)
        await audit.complete(model, model.classifier.memory.log)

    def status(self) -> dict[str, Any]:
        """What the page shows."""
        waiting = sum(model.batcher.waiting for model in self.models)
        return {
            "server": {
                "version": __version__,
                "started": self.started,
                "uptime": time.monotonic() - self._clock,
                "ready": self.ready,
                "queue": {"waiting": waiting, "most": self.settings.most_waiting},
                "audit": {"on": False} if self.audit is None else self.audit.status(),
            },
            "models": [model.status() for model in self.models],
        }

    async def _open(
        self, given: BundleSource | ServedModel, old: ServedModel | None = None
    ) -> ServedModel:
        """Serve a model, loaded if it is not, in the place of an old one if there is one."""
        if isinstance(given, BundleSource):
            model = await asyncio.to_thread(load_model, given)
        else:
            model = replace(given)  # the queue and the watcher are this service's own
        await self._compute.prepare(model)
        model.batcher = self._make_batcher(model)
        loop = asyncio.get_running_loop()

        def tell(*what: Any) -> None:
            loop.call_soon_threadsafe(self._raise_alarm, *what)

        before = None if old is None else old.watcher
        model.watcher = await asyncio.to_thread(open_watcher, model, self.settings, tell, before)
        try:
            self.models.put(model, old)
        except InputError:
            if before is None or before.monitors is not model.watcher.monitors:
                model.watcher.monitors.close()  # lets go of its file
            raise
        return model

    def _make_batcher(self, model: ServedModel) -> Batcher:
        settings, assess = self.settings, partial(self._compute.assess, model)
        return Batcher(assess, settings.most_waiting, settings.batch_rows, settings.workers)

    async def _follow(self, old: ServedModel, new: ServedModel) -> None:
        """Serve the same model with changed evidence from now on; its figures and alarm go on."""
        try:
            await self._compute.prepare(new)
        except Exception as error:  # it is committed: workers load it with their next batch
            log.error("a worker could not load %s yet: %s", new.title, error)
        new.batcher, new.watcher = self._make_batcher(new), old.watcher
        self.models.put(new, old)
        new.watcher.follow(new)

    async def _reload(self, old: ServedModel) -> schema.Reloaded:
        new, reason = old, None
        try:
            if old.source is not None:
                new = await self._load_again(old, old.source)
        except Exception as error:  # whatever is wrong with the new one, the old one goes on
            self.n_reload_failures += 1
            log.error("%s goes on as it is: %s", old.title, error)
            reason = str(error) if isinstance(error, IknowError) else "it cannot be loaded"
        if new is not old:
            self.n_reloads += 1
            log.info("%s replaces %s", new.title, old.title)
            if self.audit is not None:
                await self._complete(self.audit, new)
                await self.audit.note(make_event("reload", new, before=old.sha256))
        return schema.Reloaded(new.name, new.version, new.sha256, new is not old, reason)

    async def _load_again(self, old: ServedModel, source: BundleSource) -> ServedModel:
        """What is served in the place of an old model: itself if its bundle is as it was."""
        sha256 = (await asyncio.to_thread(describe_bundle, source.path)).sha256
        if sha256 == old.sha256:
            return old
        later = await asyncio.to_thread(follow, old.classifier, sha256)
        if later is not None:  # others appended changes: no other model, but this one
            new = replace(old, classifier=later)
            await self._follow(old, new)
        else:
            new = await self._open(source, old)
            self.start_task(self._retire(old, new))
        return new

    async def _retire(self, old: ServedModel, new: ServedModel) -> None:
        """Close what belongs to a model that another bundle replaced."""
        await old.batcher.drain()
        await asyncio.to_thread(old.watcher.close)
        if new.watcher.monitors is not old.watcher.monitors:
            await asyncio.to_thread(old.watcher.monitors.close)

    def start_task(self, work: Any) -> asyncio.Task[Any]:
        """Do something in the background."""
        task = asyncio.create_task(work)
        self._tasks.add(task)  # a task that nobody holds may end early
        task.add_done_callback(self._tasks.discard)
        return task

    def _raise_alarm(self, model: ServedModel, what: str, details: dict[str, Any]) -> None:
        """Tell an alarm to the log and to the audit."""
        log.warning("ALARM (%s) for %s: %s", what, model.title, details.get("text", details))
        if self.audit is not None:
            event = make_event("alarm", model, alarm=what, details=details)
            self.start_task(self.audit.note(event))

    async def _keep(self) -> None:
        while not self.stopping:
            await asyncio.sleep(KEEP_EVERY)
            for model in self.models:
                await asyncio.to_thread(model.watcher.monitors.keep)


def check_change(asked: schema.ChangeRequest, classes: list[Any], most_samples: int) -> None:
    """Refuse a change that asks for nothing, for too much, or with labels of another kind. Raises a
    `Refusal`: 422 or 413, with what is wrong.
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
    served: ServedModel, asked: schema.ChangeRequest, who: str, announce: Announce
) -> ServedModel:
    """The model after a change, which is in its bundle when this returns.

    announce: is called before the bundle is touched.

    Raises:
        Refusal: 409, 422, 503 or 507; then nothing has changed.
    """
    if served.classifier.plan_.uncommitted != ():
        raise Refusal(409, f"{served.title} is not served from a bundle: there is none to change")
    if asked.after not in (None, served.sha256):
        raise Refusal(409, f"{served.title} is {served.sha256} by now: look again, then decide")
    changed, why = copy.copy(served.classifier), asked.why
    with refusing("made"):
        if asked.remove:
            changed.memory.remove(asked.remove, who, why)
        if asked.relabel:
            labels = [each.label for each in asked.relabel]
            changed.memory.relabel([each.id for each in asked.relabel], labels, who, why)
        if asked.add is not None:
            rows = shape_rows(changed, as_rows(asked.add.rows, len(asked.add.rows)))
            inputs = as_inputs(changed, rows)
            changed.memory.add(inputs, asked.add.labels, asked.add.ids, who, why)
        changed.warm_up()  # now, as later nothing may fail any more
        made = changed.memory.log[len(served.classifier.memory.log) :]
        changed.plan_ = commit_changes(changed.plan_, None, lambda sha256: announce(sha256, made))
    return replace(served, classifier=changed)


@contextmanager
def refusing(done: str) -> Iterator[None]:
    """Errors as a `Refusal` that tells the caller what to do; done: what is not."""
    try:
        yield
    except Refusal:
        raise
    except TimeoutError as error:
        raise Refusal(504, "there was no answer in time: send fewer rows", 5) from error
    except AuditError as error:
        log.error("the audit: %s", error)
        raise Refusal(503, f"it could not be recorded, so it is not {done}", 5) from error
    except ConflictError as error:
        problem = "the bundle was changed on disk meanwhile: POST /v1/reload, then try again"
        raise Refusal(409, problem) from error
    except BundleError as error:
        log.error("a bundle: %s", error)
        problem = "the bundle was changed or damaged on disk: the service's log has the details"
        raise Refusal(503, problem, 30) from error
    except OSError as error:
        log.error("the disk: %s", error)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        problem = "the disk is full" if full else f"the disk failed ({error.strerror})"
        raise Refusal(507 if full else 503, f"{problem}: nothing was {done}") from error
    except IknowError as error:  # what came does not fit, and the message says why
        raise Refusal(422, str(error)) from error


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


def _open_audit(settings: Settings) -> AuditWriter:
    assert settings.audit is not None
    days, size = settings.retain_days, settings.retain_bytes
    retention = Retention(None if days is None else timedelta(days=days), size)
    journal = open_journal(settings.audit, retention)
    required, keep = settings.audit_required, settings.keep_inputs
    audit = AuditWriter(journal, required=required, keep_inputs=keep)
    audit.tell_head()
    return audit


def _close_audit(audit: AuditWriter) -> None:
    audit.close()
    audit.tell_head()
    audit.journal.close()


def _compare(
    journal: Journal,
    labels: Sequence[schema.TrueLabel],
    call: Call,
    served: Collection[tuple[str, str]],
) -> tuple[schema.LabelCounts, list[Label], dict[tuple[str, str], list[bool]]]:
    """Compare labels with recorded answers.

    served: names of models, and their bundles. Returns what became of the labels, those to record,
    and by model and bundle whether IKs were right.
    """
    told, records = Counter[str](), dict[tuple[str, int], Label]()
    right: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for each in labels:
        place = each.request, each.row
        answer = journal.find(*place)
        if answer is None:
            told["unknown"] += 1
        elif place in records or journal.labelled(*place):
            told["repeated"] += 1
        else:
            records[place] = Label(now(), *place, call.caller, json.dumps(each.label))
            key = answer.model, answer.bundle
            if answer.assertion == "IK" and key in served:
                told["counted"] += 1
                believed = json.loads(answer.belief)  # 1 and 1.0 are the same, 1 and true are not
                same_kind = isinstance(believed, bool) == isinstance(each.label, bool)
                right[key].append(bool(believed == each.label) and same_kind)
            else:
                told["others"] += 1
    return schema.LabelCounts(**told), list(records.values()), right
