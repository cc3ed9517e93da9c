"""HTTP: the service as an ASGI application.

    who asks → which model → the body, within limits → rows → answers → JSON or tensors

An error is answered by one sentence in JSON; a traceback goes to the log and never to a caller. The
guard of every request is a plain ASGI application, as it must see requests that no route takes.
On loopback without tokens it answers only to local names, or a page of another site could ask
through the reader's browser.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from uuid import uuid4

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.text import name as visible
from iknow.core.text import shown
from iknow.serve import oip, schema
from iknow.serve.answers import RequestAnswers, Wanted
from iknow.serve.audit import Call
from iknow.serve.bodies import Rows, as_struct, decode, read_json
from iknow.serve.client import is_loopback
from iknow.serve.metrics import Metrics
from iknow.serve.openapi import ENDPOINTS, NO_TOKEN, Endpoint, describe, route
from iknow.serve.page import HEADERS, page_files
from iknow.serve.schema import BYTES, JSON, NPY, REQUEST_ID, Refusal
from iknow.serve.served import ServedModel, serve_classifier
from iknow.serve.service import Service
from iknow.serve.settings import Settings
from iknow.serve.tokens import ANYBODY
from iknow.version import __version__

try:
    from opentelemetry import propagate, trace
except ImportError:  # the extra `telemetry`
    trace = None  # type: ignore[assignment]

LONGEST = 1_000
EXPLAINED = {404: "there is nothing at this path", 405: "this path does not take that method"}
POLICY = b"content-security-policy"
SAFE = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (POLICY, b"default-src 'none'; frame-ancestors 'none'"),
]
NAME, VERSIONED = "/models/{name}", "/models/{name}/versions/{version}"
MOST_EXPLAINED = 100  # rows of a request: each takes some milliseconds
log = logging.getLogger("iknow.serve")


class RequestGuard:
    """Wraps the routes of a service: names each request, refuses in one form, counts what came.

    Args:
        app: The routes.
        service: What they ask.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self.service, self.metrics = app, service, Metrics(service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, start, status = Headers(scope=scope), time.perf_counter(), 0
        given, state = headers.get("X-Request-Id", ""), scope.setdefault("state", {})
        request_id = given if REQUEST_ID.fullmatch(given) else uuid4().hex  # it may be printed
        state["request_id"], state["held"] = request_id, 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                told = message["headers"]
                if POLICY not in dict(told):  # the page has headers of its own
                    told += SAFE
                told.append((b"x-request-id", request_id.encode()))
            await send(message)

        try:
            if not self.service.settings.tokens and not is_local(headers.get("Host", "")):
                raise Refusal(403, "without tokens only localhost is answered: see --tokens")
            await self._app(scope, receive, sending)
        except Exception as error:
            if status:  # it has begun to answer
                raise
            await refuse(error, request_id)(scope, receive, sending)
        finally:
            self.service.budget.give(state["held"])
            route = getattr(scope.get("route"), "path", "other")
            seconds = time.perf_counter() - start
            self.metrics.requested(route, status or 500, seconds)
            told = scope["method"], route, status, 1e3 * seconds, request_id
            log.debug("%s %s %d %.1f ms %s", *told)


def is_local(host: str) -> bool:
    """Whether a Host header names this machine.

    Examples:
        >>> is_local("localhost:8000"), is_local("[::1]:80"), is_local("evil.example")
        (True, True, False)
    """
    name = host.partition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    return is_loopback(name)


def refuse(error: Exception, request_id: str) -> Response:
    """The answer to a request that failed."""
    headers: dict[str, str] = {}
    if isinstance(error, Refusal):
        status, message = error.status, str(error)
        if error.retry_after is not None:
            headers["Retry-After"] = str(error.retry_after)
        if status == 401:
            headers["WWW-Authenticate"] = "Bearer"
    elif isinstance(error, HTTPException):
        status, message = error.status_code, EXPLAINED.get(error.status_code, str(error.detail))
        headers |= error.headers or {}
    else:
        status = 500
        message = f"the service failed; its log has the details under {request_id}"
        log.error("request %s failed because of a bug", request_id, exc_info=error)
    return respond(schema.Failure(visible(message, LONGEST)), status, headers)


def respond(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Structs or plain values as JSON; numbers that JSON does not have become null."""
    return Response(msgspec.json.encode(value), status, headers, JSON)


class Asked(Request):
    """A request that was admitted to a route, the service that it asks, and who asks."""

    def __init__(self, scope: Scope, receive: Receive, service: Service, caller: str) -> None:
        super().__init__(scope, receive)
        self.service, self.settings = service, service.settings
        self.call = Call(caller, scope["state"]["request_id"])

    @property
    def model(self) -> ServedModel:
        """The model that the path names. Raises a `Refusal`, 404 or 503."""
        return self.service.find(**self.path_params)

    def hold(self, n_bytes: int) -> None:
        """Take bytes of the budget until it is answered. Raises a `Refusal`, 413 or 429."""
        self.service.budget.take(n_bytes)
        self.scope["state"]["held"] += n_bytes

    async def read(self) -> bytes:
        """The body, read no further than it may be long, and no longer than it may take. Raises a
        `Refusal`: 408, 413, 429 if the bodies of all requests together take too much, or 415 for a
        compressed one, which may unpack to any size.
        """
        headers, most = self.headers, self.settings.most_body
        if (encoding := headers.get("Content-Encoding", "identity").lower()) != "identity":
            problem = f"compressed bodies are not read: send it plain; got {shown(encoding)}"
            raise Refusal(415, problem)
        announced = headers.get("Content-Length", "0")
        size = int(announced[:20]) if announced.isascii() and announced.isdigit() else 0
        too_long = f"the body may have {most:,} bytes: send fewer rows in several requests"
        if size > most:
            raise Refusal(413, too_long)
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.settings.timeout):
                async for part in self.stream():
                    size += len(part)
                    if size > most:
                        raise Refusal(413, too_long)
                    self.hold(len(part))
                    parts.append(part)
        except ClientDisconnect as error:
            raise Refusal(400, "the connection closed before the body was complete") from error
        except TimeoutError as error:
            problem = f"the body did not come within {self.settings.timeout:g} s"
            raise Refusal(408, problem) from error
        return b"".join(parts)

    async def answer(
        self, model: ServedModel, rows: Rows, wanted: Wanted, *, watch: bool = True
    ) -> RequestAnswers:
        """What a model says about rows of the body."""
        self.hold(rows.n_bytes)
        call = self.call._replace(watch=watch)
        answers = await self.service.answer(model, rows, wanted, call)
        self.app.metrics.answered(model, answers)
        return answers


@contextmanager
def span(title: str, headers: Mapping[str, str], model: str) -> Iterator[None]:
    """A span of the trace that the headers of a request name, or of a new one.

    Nothing where OpenTelemetry is not installed. The tracer provider is the application's own, as
    `opentelemetry-instrument` or the program that calls `create_app` sets it up.
    """
    if trace is None:
        yield
        return
    context = propagate.extract(dict(headers))
    tracer = trace.get_tracer("iknow.serve")
    attributes = {"iknow.model": model}
    with tracer.start_as_current_span(title, context=context, attributes=attributes):
        yield


@route("POST", f"/v1{NAME}/assess", f"/v1{VERSIONED}/assess", scope="assess", flags=schema.Flags,
       body=schema.AssessRequest, bodies=(NPY,))  # fmt: skip
async def assess(asked: Asked) -> schema.AssessReply:
    """Say for each row what the model believes, and how well that is justified."""
    model, settings = asked.model, asked.settings
    flags = as_struct(dict(asked.query_params), schema.Flags, strict=False)
    with span("assess", asked.headers, model.name):
        body, kind = await asked.read(), asked.headers.get("Content-Type", JSON)
        rows = decode(body, kind, settings.most_rows, asked.service.budget)
        if flags.explain and len(rows) > MOST_EXPLAINED:
            asked_for = f"up to {MOST_EXPLAINED} rows are explained at once; got {len(rows)}"
            raise Refusal(413, f"{asked_for}: leave out explain=true, or send fewer")
        wanted = Wanted(
            flags.evidence, flags.exemplars, False, flags.explain, settings.show_training
        )
        answers = await asked.answer(model, rows, wanted, watch=flags.watch)
    said = answers.to_schema(model.labels, exemplars=flags.exemplars)
    return schema.AssessReply(model.name, model.version, model.sha256, asked.call.request, said)


@route("GET", "/v1/models", scope="assess")
async def list_models(asked: Asked) -> schema.ModelList:
    """List the models that are served."""
    return schema.ModelList(tuple(model.about() for model in asked.service.models))


@route("GET", f"/v1{NAME}", scope="assess")
async def tell_model(asked: Asked) -> schema.ModelInfo:
    """Say what a model is and what it promises."""
    return asked.model.about()


@route("POST", "/v1/labels", scope="labels")
async def learn(asked: Asked, body: schema.LabelsRequest) -> schema.LabelCounts:
    """Tell the truth about rows that were answered; IKs are compared with their certificate."""
    return await asked.service.learn(asked.call, body.labels)


@route("POST", f"/v1{NAME}/changes", scope="admin")
async def change(asked: Asked, body: schema.ChangeRequest) -> schema.Changed:
    """Remove, relabel and add samples of a model's evidence, in this order, all or none."""
    return await asked.service.change(asked.model.name, body, asked.call)


@route("GET", f"/v1{NAME}/changes", scope="admin")
async def list_changes(asked: Asked) -> schema.Changes:
    """Tell what happened to a model's evidence: who changed which samples, when and why."""
    log = asked.model.classifier.memory.log
    return schema.Changes(tuple(schema.ChangeEntry(**each.to_dict()) for each in log))


@route("POST", f"/v1{NAME}/alarm/reset", scope="admin")
async def reset_alarm(asked: Asked) -> dict[str, Any]:
    """Start the drift alarm of a model anew, after its cause was found."""
    watcher = asked.model.watcher
    await asyncio.to_thread(watcher.monitors.reset)
    return watcher.reports()["alarm"]


@route("GET", "/v1/status", scope="admin")
async def tell_status(asked: Asked) -> dict[str, Any]:
    """Tell everything that the page shows."""
    return asked.service.status()


@route("POST", "/v1/reload", scope="admin")
async def reload(asked: Asked) -> schema.Reloads:
    """Load bundles that changed on disk, as SIGHUP does; a bad one is refused."""
    return schema.Reloads(await asked.service.reload())


@route("POST", f"/v2{NAME}/infer", f"/v2{VERSIONED}/infer", scope="assess",
       body=oip.InferRequest, bodies=(BYTES,), replies=(JSON, BYTES))  # fmt: skip
async def infer(asked: Asked) -> Response:
    """Assess the rows of tensors, by the Open Inference Protocol."""
    model = asked.model
    with span("infer", asked.headers, model.name):
        body, length = await asked.read(), asked.headers.get(oip.LENGTH_HEADER)
        most_rows, budget = asked.settings.most_rows, asked.service.budget
        inference = oip.read_request(body, length, most_rows, budget)
        wanted = Wanted(scores="scores" in inference.outputs)
        answers = await asked.answer(model, inference.rows, wanted)
    content, text_length = oip.write_reply(inference, answers, model, asked.call.request)
    if text_length is None:
        return Response(content, media_type=JSON)
    return Response(content, 200, {oip.LENGTH_HEADER: str(text_length)}, BYTES)


@route("GET", f"/v2{NAME}/ready", f"/v2{VERSIONED}/ready", scope="assess")
async def model_ready(asked: Asked) -> dict[str, Any]:
    """Say whether a model is loaded."""
    return {"name": asked.model.name, "ready": True}


@route("GET", f"/v2{NAME}", f"/v2{VERSIONED}", scope="assess")
async def tell_tensors(asked: Asked) -> dict[str, Any]:
    """Describe the tensors of a model."""
    return oip.describe_model(asked.model, asked.service.models.versions(asked.model.name))


@route("GET", "/v2", scope=None)
async def tell_server(asked: Asked) -> dict[str, Any]:
    """Say which server this is."""
    return {"name": "iknow", "version": __version__, "extensions": ["binary_tensor_data"]}


@route("GET", "/v2/health/live", "/healthz", scope=NO_TOKEN)
async def live(asked: Asked) -> dict[str, Any]:
    """Say that the server runs."""
    return {"live": True}


@route("GET", "/v2/health/ready", "/readyz", scope=NO_TOKEN)
async def ready(asked: Asked) -> dict[str, Any]:
    """Say whether all models are loaded and warm, and nothing is about to stop."""
    if not asked.service.ready:
        raise Refusal(503, "the models are being loaded, or the service stops", 2)
    return {"ready": True}


@route("GET", "/metrics", scope="admin", replies=("text/plain",))
async def tell_metrics(asked: Asked) -> Response:
    """Tell the metrics in Prometheus' format."""
    metrics: Metrics = asked.app.metrics
    return Response(metrics.text(), media_type=metrics.content_type)


@route("GET", "/openapi.json", scope=None, described=False)
async def tell_openapi(asked: Asked) -> dict[str, Any]:
    """Describe the routes in OpenAPI's form."""
    return describe()


@route("GET", *page_files(), scope=NO_TOKEN, described=False)
async def send_page(asked: Asked) -> Response:
    """Send a file of the page."""
    file = page_files()[asked.scope["route"].path]
    headers = {**HEADERS, "ETag": file.etag}
    if file.etag in asked.headers.get("If-None-Match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.content_type)


class Handler:
    """Answers the requests to one route, as an ASGI application."""

    def __init__(self, endpoint: Endpoint, service: Service) -> None:
        self._endpoint, self._service = endpoint, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        needed, caller, tokens = self._endpoint.scope, ANYBODY, self._service.settings.tokens
        if needed != NO_TOKEN:
            caller = tokens.admit(Headers(scope=scope).get("Authorization"), needed)
        asked, body = Asked(scope, receive, self._service, caller), {}
        if "body" in self._endpoint.handle.__annotations__:
            given, budget = await asked.read(), self._service.budget
            body["body"] = read_json(given, self._endpoint.body, budget)
        said = await self._endpoint.handle(asked, **body)
        response = said if isinstance(said, Response) else respond(said)
        await response(scope, receive, send)


def create_app(
    models: Service | Mapping[str, EpistemicClassifier], settings: Settings | None = None
) -> RequestGuard:
    """An ASGI application that serves classifiers.

    Args:
        models: Classifiers by name, of any kind of model; or a `Service`, as `iknow serve` makes it
            from bundles.
        settings: How to serve; not with a `Service`, which has its own.

    Examples:
        >>> app = create_app({"irises": ec})
        >>> app.service.settings.most_rows
        10000
    """
    if isinstance(models, Service):
        service = models
    else:
        served = [serve_classifier(name, classifier) for name, classifier in models.items()]
        service = Service(served, settings)

    async def start() -> None:
        try:
            await service.start()
        except Exception as error:
            log.error("the service cannot start: %s", error)
            service.failure = error

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        # In the background: the probes answer while models are loaded.
        starting = asyncio.create_task(start())
        try:
            yield
        finally:
            await starting
            await service.stop()

    routes = [Route(each.path, Handler(each, service), methods=[each.method]) for each in ENDPOINTS]
    return RequestGuard(Router(routes, lifespan=lifespan), service)
