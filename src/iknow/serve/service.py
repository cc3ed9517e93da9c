"""The service itself, without HTTP: what starts and stops, how a request becomes an answer.

    rows → shaped → assessed, in a batch → recorded → answered → watched

What fails on this way is a `Refusal`. Nothing is answered that the audit does not hold.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from iknow.classifier.memory import follow
from iknow.errors import AuditError, BundleError, IknowError
from iknow.serve.audit import AuditWriter, Call, Retention, now, open_journal
from iknow.serve.changing import Asked, change_served, renew_served, state_on_disk, sync_bundle
from iknow.serve.computing import Computing, InProcesses, InThread
from iknow.serve.desk import Desk, Moment
from iknow.serve.desks import Desks, make_batcher, open_desk
from iknow.serve.labels import learn_labels
from iknow.serve.refusal import Refusal
from iknow.serve.room import Room
from iknow.serve.rows import Rows, shape_rows
from iknow.serve.said import Recorded, Said, Wanted
from iknow.serve.served import Served, Source, load_served
from iknow.serve.settings import Settings
from iknow.storage.changes import Logged
from iknow.storage.info import describe_bundle
from iknow.version import __version__

log = logging.getLogger("iknow.serve")
KEEP_EVERY = 1.0
"""Seconds between two writings of the alarms' state: what a killed process forgets."""


class Service:
    """Models that answer, with an audit, alarms and everything else but HTTP.

    Args:
        models: Bundles to load when it starts, or models that are loaded.
        settings: How to serve.
    """

    def __init__(
        self,
        models: Sequence[Source | Served],
        settings: Settings | None = None,
    ) -> None:
        self.settings = Settings() if settings is None else settings
        self.desks = Desks()
        self.room = Room(self.settings.most_held)
        self.ready = self.stopping = False
        self.started, self._clock = now(), time.monotonic()
        self._models = tuple(models)
        self._computing: Computing | None = None
        self.trail: AuditWriter | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._reloading, self._learning = asyncio.Lock(), asyncio.Lock()
        self.n_reloads = self.n_reload_failures = 0

    async def start(self) -> None:
        """Open the audit, load and warm all models; it is ready afterwards."""
        settings = self.settings
        if settings.audit is not None:
            self.trail = await asyncio.to_thread(_open_audit, settings)
        self._computing = InThread() if settings.workers == 1 else InProcesses(settings.workers)
        for model in self._models:
            self.desks.add(await self._open(model))
        for desk in self.desks:
            log.info("serving %s (%s)", desk.served.title, desk.served.sha256[:12])
            if self.trail is not None:
                await self._complete(self.trail, desk.served)
                await self.trail.note("start", desk.served)
        self._keeping = asyncio.create_task(self._keep())
        self.ready = True

    async def stop(self) -> None:
        """Finish what is under way, within `drain` seconds, and close everything."""
        self.ready, self.stopping = False, True
        if self._keeping is not None:
            self._keeping.cancel()
        for desk in self.desks:
            try:
                async with asyncio.timeout(self.settings.drain):
                    await desk.batcher.drain()
            except TimeoutError:
                log.error(
                    "requests to %s were under way when the time to drain was over",
                    desk.served.title,
                )
            await asyncio.to_thread(desk.close)
            await asyncio.to_thread(desk.monitors.close)
        if self.trail is not None:
            await asyncio.to_thread(_close_audit, self.trail)
        if self._computing is not None:
            await asyncio.to_thread(self._computing.close)

    async def answer(self, desk: Desk, rows: Rows, wanted: Wanted, call: Call) -> Said:
        """The answers about some rows, recorded.

        Raises:
            Refusal: 422 if the rows do not fit the model, 429 if too many wait, 503 if the answer
                cannot be recorded or the bundle was damaged, 504 if it takes too long.
        """
        start = time.perf_counter()
        if self.stopping:
            raise Refusal(503, "the service is stopping: ask another one", 5)
        try:
            async with asyncio.timeout(self.settings.timeout):
                shaped = shape_rows(desk.served.classifier, rows)
                said = await desk.batcher.submit(shaped, wanted)
                if self.trail is not None:
                    await self.trail.record(
                        desk.served, call, shaped.values, Recorded(said, desk.served.labels)
                    )
        except TimeoutError as error:
            raise Refusal(
                504, f"no answer within {self.settings.timeout:g} s: send fewer rows", 5
            ) from error
        except BundleError as error:
            log.error("the bundle of %s: %s", desk.served.title, error)
            raise Refusal(
                503, f"the bundle of {desk.served.title} was changed on disk", 30
            ) from error
        except AuditError as error:
            log.error("the audit: %s", error)
            raise Refusal(503, "the answer could not be recorded, so it is not given", 5) from error
        except Refusal:
            raise
        except IknowError as error:  # the rows do not fit, and the message says why
            raise Refusal(422, str(error)) from error
        desk.watch(Moment(call.request, said, time.perf_counter() - start, call.watch))
        return said

    async def reload(self) -> list[dict[str, Any]]:
        """Load the bundles that changed on disk; one that cannot be loaded leaves the old one."""
        async with self._reloading:
            return [await self._reload(desk) for desk in list(self.desks)]

    async def learn(self, call: Call, labels: Sequence[Mapping[str, Any]]) -> dict[str, int]:
        """Take labels that came late; see `iknow.serve.labels`."""
        if self.trail is None:
            raise Refusal(409, "labels are compared with recorded answers: serve with --audit FILE")
        async with self._learning:  # a label that comes twice at once counts once
            return await learn_labels(self.trail, self.desks, call, labels)

    async def change(self, name: str, asked: Asked, call: Call) -> dict[str, Any]:
        """Change the evidence of a model, in its bundle and as it is served.

        Raises:
            Refusal: 404, 409, 422, 503 or 507; then nothing has changed.
        """
        # Whoever asked may leave, but a change must not end halfway.
        return await asyncio.shield(asyncio.create_task(self._change(name, asked, call)))

    async def _change(self, name: str, asked: Asked, call: Call) -> dict[str, Any]:
        async with self._reloading:
            desk = self.desks.find(name)
            before = desk.served
            served = await self._commit(before, asked, call)
            made = served.classifier.memory.log[len(before.classifier.memory.log) :]
            log.info("%s changed: %s", served.title, "; ".join(each.sentence() for each in made))
            if self.trail is not None:
                await self.trail.tell_made(before, served, made)
            await self._succeed(desk, served)
        told = [each.to_dict() for each in made]
        asyncio.get_running_loop().create_task(self._retire(desk))
        return {"model": served.name, "version": served.version, "bundle": served.sha256,
                "before": before.sha256, "changes": told}  # fmt: skip

    async def _commit(self, before: Served, asked: Asked, call: Call) -> Served:
        """Change a model's bundle: announced before, and said to be undone if it failed then."""
        trail, announced = self.trail, ""

        def announce(sha256: str, made: Sequence[Logged]) -> None:
            nonlocal announced
            if trail is not None:
                trail.announce(before, sha256, made)
            announced = sha256

        try:
            return await asyncio.to_thread(change_served, before, asked, call.caller, announce)
        except Exception as error:
            if not announced:
                raise
            if await asyncio.to_thread(state_on_disk, before) != before.sha256:
                raise Refusal(
                    503,
                    "the disk failed, and it is not known whether the change was made: POST "
                    "/v1/reload, then look at the changes of the model",
                ) from error
            if trail is not None:
                await trail.tell_undone(before, announced)
            raise

    async def _complete(self, trail: AuditWriter, served: Served) -> None:
        """Compare the audit with the log of a bundle, as it is on disk."""
        await asyncio.to_thread(sync_bundle, served)
        await trail.complete(served, served.classifier.memory.log)

    def status(self) -> dict[str, Any]:
        """What the page shows."""
        waiting = sum(desk.batcher.waiting for desk in self.desks)
        return {
            "server": {
                "version": __version__,
                "started": self.started,
                "uptime": time.monotonic() - self._clock,
                "ready": self.ready,
                "queue": {"waiting": waiting, "most": self.settings.most_waiting},
                "audit": {"on": False} if self.trail is None else self.trail.status(),
            },
            "models": [desk.status() for desk in self.desks],
        }

    async def _open(self, model: Source | Served, before: Desk | None = None) -> Desk:
        served = await asyncio.to_thread(load_served, model) if isinstance(model, Source) else model
        computing = self._computing
        assert computing is not None
        await computing.prepare(served)
        tell = self._teller(served)
        return await asyncio.to_thread(open_desk, served, self.settings, computing, tell, before)

    async def _succeed(self, desk: Desk, served: Served) -> Desk:
        """Serve the same model with changed evidence from now on; its figures and alarm go on."""
        computing = self._computing
        assert computing is not None
        try:
            await computing.prepare(served)
        except Exception as error:  # it is committed: workers load it with their next batch
            log.error("a worker could not load %s yet: %s", served.title, error)
        batcher = make_batcher(served, self.settings, computing)
        new = desk.succeed(served, batcher, self._teller(served))
        self.desks.replace(desk, new)
        return new

    def _teller(self, served: Served) -> Callable[[str, Any], None]:
        loop = asyncio.get_running_loop()

        def tell(what: str, details: Any) -> None:
            loop.call_soon_threadsafe(self._tell, what, served, details)

        return tell

    async def _reload(self, desk: Desk) -> dict[str, Any]:
        served, source = desk.served, desk.served.source
        told = {"name": served.name, "version": served.version, "bundle": served.sha256}
        if source is None:
            return told | {"changed": False, "error": None}
        try:
            about = await asyncio.to_thread(describe_bundle, source.path)
            if about.sha256 == served.sha256:
                return told | {"changed": False, "error": None}
            later = await asyncio.to_thread(follow, served.classifier, about.sha256)
            if later is not None:  # others appended changes: no other model, but this one
                new = await self._succeed(desk, renew_served(served, later))
            else:
                new = await self._open(source, desk)
                self.desks.replace(desk, new)
        except Exception as error:  # whatever is wrong with the new one, the old one goes on
            self.n_reload_failures += 1
            log.error("%s goes on as it is: %s", served.title, error)
            reason = str(error) if isinstance(error, IknowError) else "it cannot be loaded"
            return told | {"changed": False, "error": reason}
        self.n_reloads += 1
        log.info("%s replaces %s", new.served.title, served.title)
        if self.trail is not None:
            await self._complete(self.trail, new.served)
            await self.trail.note("reload", new.served, {"before": served.sha256})
        asyncio.get_running_loop().create_task(self._retire(desk))
        return {
            "name": new.served.name,
            "version": new.served.version,
            "bundle": new.served.sha256,
            "changed": True,
            "error": None,
        }

    async def _retire(self, desk: Desk) -> None:
        await desk.batcher.drain()
        await asyncio.to_thread(desk.close)
        if all(each.monitors is not desk.monitors for each in self.desks):
            await asyncio.to_thread(desk.monitors.close)

    def _tell(self, what: str, served: Served, details: Mapping[str, Any]) -> None:
        """Raise an alarm: in the log and in the audit."""
        log.warning("ALARM (%s) for %s: %s", what, served.title, details.get("text", details))
        if self.trail is not None:
            told = {"alarm": what, "time": now(), "model": served.name, "version": served.version,
                    "bundle": served.sha256, "details": dict(details)}  # fmt: skip
            self.trail.note_soon("alarm", served, told)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(KEEP_EVERY)
            for desk in self.desks:
                await asyncio.to_thread(desk.monitors.keep)


def _open_audit(settings: Settings) -> AuditWriter:
    assert settings.audit is not None
    days, size = settings.retain_days, settings.retain_bytes
    retention = Retention(None if days is None else timedelta(days=days), size)
    journal = open_journal(settings.audit, retention)
    required, keep = settings.audit_required, settings.keep_inputs
    trail = AuditWriter(journal, required=required, keep_inputs=keep)
    trail.tell_head()
    return trail


def _close_audit(trail: AuditWriter) -> None:
    trail.close()
    trail.tell_head()
    trail.journal.close()
