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
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from uuid import uuid4

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.text import name as visible
from iknow.core.text import shown
from iknow.serve import oip
from iknow.serve.answers import Wanted
from iknow.serve.audit import Call
from iknow.serve.bodies import decode, read_json
from iknow.serve.client import is_loopback
from iknow.serve.metrics import Metrics
from iknow.serve.openapi import ASKED, CHANGED, NO_TOKEN, PLAIN, Endpoint, describe
from iknow.serve.page import HEADERS, page_files
from iknow.serve.schema import (
    BYTES,
    JSON,
    NPY,
    AssessReply,
    AssessRequest,
    Changed,
    ChangeEntry,
    ChangeRequest,
    Changes,
    Failure,
    LabelCounts,
    LabelsRequest,
    ModelInfo,
    ModelList,
    Refusal,
    Reloads,
)
from iknow.serve.served import serve_classifier
from iknow.serve.service import Service
from iknow.serve.settings import Settings
from iknow.serve.tokens import ANYBODY
from iknow.version import __version__

try:
    from opentelemetry import propagate, trace
except ImportError:  # the extra `telemetry`
    trace = None  # type: ignore[assignment]

REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", re.ASCII)
LONGEST = 1_000
FLAGS = {
    **dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("0", "false", "f", "no", "n", "off"), False),
}
EXPLAINED = {404: "there is nothing at this path", 405: "this path does not take that method"}
POLICY = b"content-security-policy"
SAFE = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (POLICY, b"default-src 'none'; frame-ancestors 'none'"),
]
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
            if log.isEnabledFor(logging.DEBUG):
                log.debug(
                    "%s %s %d %.1f ms %s", scope["method"], route, status, 1e3 * seconds, request_id
                )


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
    return respond(Failure(visible(message, LONGEST)), status, headers)


def respond(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Structs or plain values as JSON; numbers that JSON does not have become null."""
    return Response(msgspec.json.encode(value), status, headers, JSON)


def hold(request: Request, service: Service, n_bytes: int) -> None:
    """Take bytes of the budget until the request is answered. Raises a `Refusal`, 413 or 429."""
    service.budget.take(n_bytes)
    request.scope["state"]["held"] += n_bytes


async def read_body(request: Request, service: Service) -> bytes:
    """The body of a request, read no further than it may be long, and no longer than it may take.

    Raises:
        Refusal: 408, 413, 429 if the bodies of all requests together take too much, or 415 for a
            compressed one, which may unpack to any size.
    """
    settings = service.settings
    if (encoding := request.headers.get("Content-Encoding", "identity").lower()) != "identity":
        raise Refusal(415, f"compressed bodies are not read: send it plain; got {shown(encoding)}")
    most, announced = settings.most_body, request.headers.get("Content-Length", "0")
    is_number = announced.isascii() and announced.isdigit()
    is_long = is_number and int(announced[:20]) > most
    parts, size = [], 0
    try:
        async with asyncio.timeout(settings.timeout):
            while not is_long:
                message = await request.receive()
                if message["type"] != "http.request":
                    raise Refusal(400, "the connection closed before the body was complete")
                part = message.get("body", b"")
                size += len(part)
                is_long = size > most
                hold(request, service, len(part))
                parts.append(part)
                if not message.get("more_body", False):
                    break
    except TimeoutError as error:
        raise Refusal(408, f"the body did not come within {settings.timeout:g} s") from error
    if is_long:
        raise Refusal(413, f"the body may have {most:,} bytes: send fewer rows in several requests")
    return b"".join(parts)


def read_flags(request: Request, **flags: bool) -> list[bool]:
    """Flags of the query; flags: what they are if the query does not say."""
    for flag, text in request.query_params.items() if request.scope["query_string"] else ():
        if flag in flags:
            if text.lower() not in FLAGS:
                said = shown(text, 60)
                raise Refusal(422, f"{flag} in the query must be true or false; got {said}")
            flags[flag] = FLAGS[text.lower()]
    return list(flags.values())


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


async def assess(request: Request, service: Service, call: Call) -> Response:
    """Say for each row what the model believes, and how well that is justified."""
    model = service.find(**request.path_params)
    evidence, exemplars, watch = read_flags(request, evidence=False, exemplars=False, watch=True)
    with span("assess", request.headers, model.name):
        body = await read_body(request, service)
        kind, settings = request.headers.get("Content-Type", JSON), service.settings
        rows = decode(body, kind, settings.most_rows, service.budget)
        hold(request, service, rows.n_bytes)
        wanted = Wanted(evidence=evidence, exemplars=exemplars or settings.audit is not None)
        answers = await service.answer(model, rows, wanted, call._replace(watch=watch))
    request.app.metrics.answered(model, answers)
    told = answers.to_schema(model.labels, exemplars=exemplars)
    return respond(AssessReply(model.name, model.version, model.sha256, call.request, told))


async def infer(request: Request, service: Service, call: Call) -> Response:
    """Assess the rows of tensors, by the Open Inference Protocol."""
    model = service.find(**request.path_params)
    with span("infer", request.headers, model.name):
        body = await read_body(request, service)
        length = request.headers.get(oip.LENGTH_HEADER)
        asked = oip.read_request(body, length, service.settings.most_rows, service.budget)
        hold(request, service, asked.rows.n_bytes)
        recorded = service.settings.audit is not None
        wanted = Wanted(scores="scores" in asked.outputs, exemplars=recorded)
        answers = await service.answer(model, asked.rows, wanted, call)
    request.app.metrics.answered(model, answers)
    content, text_length = oip.write_reply(asked, answers, model, call.request)
    if text_length is None:
        return Response(content, media_type=JSON)
    return Response(content, 200, {oip.LENGTH_HEADER: str(text_length)}, BYTES)


async def learn(request: Request, service: Service, call: Call) -> Response:
    """Tell the truth about rows that were answered; IKs are compared with their certificate."""
    asked = read_json(await read_body(request, service), LabelsRequest, service.budget)
    if len(asked.labels) > service.settings.most_rows:
        raise Refusal(413, f"a request may have {service.settings.most_rows:,} labels")
    return respond(await service.learn(call, asked.labels))


async def list_models(request: Request, service: Service, call: Call) -> Response:
    """List the models that are served."""
    return respond(ModelList(tuple(model.about() for model in service.models)))


async def tell_model(request: Request, service: Service, call: Call) -> Response:
    """Say what a model is and what it promises."""
    return respond(service.find(**request.path_params).about())


async def change(request: Request, service: Service, call: Call) -> Response:
    """Remove, relabel and add samples of a model's evidence, in this order, all or none."""
    model = service.find(**request.path_params)
    asked = read_json(await read_body(request, service), ChangeRequest, service.budget)
    return respond(await service.change(model.name, asked, call))


async def list_changes(request: Request, service: Service, call: Call) -> Response:
    """Tell what happened to a model's evidence: who changed which samples, when and why."""
    log = service.find(**request.path_params).classifier.memory.log
    return respond(Changes(tuple(ChangeEntry(**each.to_dict()) for each in log)))


async def tell_status(request: Request, service: Service, call: Call) -> Response:
    """Tell everything that the page shows."""
    return respond(service.status())


async def reload(request: Request, service: Service, call: Call) -> Response:
    """Load bundles that changed on disk, as SIGHUP does; a bad one is refused."""
    return respond(Reloads(await service.reload()))


async def reset_alarm(request: Request, service: Service, call: Call) -> Response:
    """Start the drift alarm of a model anew, after its cause was found."""
    watcher = service.find(**request.path_params).watcher
    await asyncio.to_thread(watcher.monitors.reset)
    return respond(watcher.reports()[0])


async def tell_metrics(request: Request, service: Service, call: Call) -> Response:
    """Tell the metrics in Prometheus' format."""
    metrics: Metrics = request.app.metrics
    return Response(metrics.text(), media_type=metrics.content_type)


async def tell_openapi(request: Request, service: Service, call: Call) -> Response:
    """Describe the routes in OpenAPI's form."""
    return respond(describe(ENDPOINTS))


async def tell_server(request: Request, service: Service, call: Call) -> Response:
    """Say which server this is."""
    about = {"name": "iknow", "version": __version__, "extensions": ["binary_tensor_data"]}
    return respond(about)


async def tell_tensors(request: Request, service: Service, call: Call) -> Response:
    """Describe the tensors of a model."""
    model = service.find(**request.path_params)
    return respond(oip.describe_model(model, service.models.versions(model.name)))


async def model_ready(request: Request, service: Service, call: Call) -> Response:
    """Say whether a model is loaded."""
    return respond({"name": service.find(**request.path_params).name, "ready": True})


async def live(request: Request, service: Service, call: Call) -> Response:
    """Say that the server runs."""
    return respond({"live": True})


async def ready(request: Request, service: Service, call: Call) -> Response:
    """Say whether all models are loaded and warm, and nothing is about to stop."""
    if not service.ready:
        raise Refusal(503, "the models are being loaded, or the service stops", 2)
    return respond({"ready": True})


async def send_page(request: Request, service: Service, call: Call) -> Response:
    """Send a file of the page."""
    file = page_files()[request.scope["route"].path]
    headers = {**HEADERS, "ETag": file.etag}
    if file.etag in request.headers.get("If-None-Match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.content_type)


NAME, VERSIONED = "/models/{name}", "/models/{name}/versions/{version}"
ENDPOINTS = (
    *(
        Endpoint(
            "POST", f"/v1{model}/assess", assess, "assess", body=AssessRequest, bodies=(NPY,),
            reply=AssessReply, refuses=ASKED, flags=("evidence", "exemplars", "watch"),
        )
        for model in (NAME, VERSIONED)
    ),
    Endpoint("GET", "/v1/models", list_models, "assess", reply=ModelList),
    Endpoint("GET", f"/v1{NAME}", tell_model, "assess", reply=ModelInfo),
    Endpoint("POST", "/v1/labels", learn, "labels", body=LabelsRequest, reply=LabelCounts,
             refuses=CHANGED),
    Endpoint("POST", f"/v1{NAME}/changes", change, "admin", body=ChangeRequest, reply=Changed,
             refuses=CHANGED),
    Endpoint("GET", f"/v1{NAME}/changes", list_changes, "admin", reply=Changes),
    Endpoint("POST", f"/v1{NAME}/alarm/reset", reset_alarm, "admin"),
    Endpoint("GET", "/v1/status", tell_status, "admin"),
    Endpoint("POST", "/v1/reload", reload, "admin", reply=Reloads),
    *(
        Endpoint("POST", f"/v2{model}/infer", infer, "assess", body=oip.InferRequest,
                 bodies=(BYTES,), replies=(JSON, BYTES), refuses=ASKED)
        for model in (NAME, VERSIONED)
    ),
    *(Endpoint("GET", f"/v2{model}/ready", model_ready, "assess") for model in (NAME, VERSIONED)),
    *(Endpoint("GET", f"/v2{model}", tell_tensors, "assess") for model in (NAME, VERSIONED)),
    Endpoint("GET", "/v2", tell_server, None),
    Endpoint("GET", "/v2/health/live", live, NO_TOKEN),
    Endpoint("GET", "/v2/health/ready", ready, NO_TOKEN),
    Endpoint("GET", "/healthz", live, NO_TOKEN),
    Endpoint("GET", "/readyz", ready, NO_TOKEN),
    Endpoint("GET", "/metrics", tell_metrics, "admin", replies=(PLAIN,)),
    Endpoint("GET", "/openapi.json", tell_openapi, None, described=False),
    *(Endpoint("GET", path, send_page, NO_TOKEN, described=False) for path in page_files()),
)  # fmt: skip


class Handler:
    """Answers the requests to one route, as an ASGI application."""

    def __init__(self, endpoint: Endpoint, service: Service) -> None:
        self._endpoint, self._service = endpoint, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, caller = Request(scope, receive), ANYBODY
        if self._endpoint.scope != NO_TOKEN:
            given = request.headers.get("Authorization")
            caller = self._service.settings.tokens.admit(given, self._endpoint.scope)
        call = Call(caller, scope["state"]["request_id"])
        response = await self._endpoint.handle(request, self._service, call)
        await response(scope, receive, send)


def create_app(
    models: Service | Mapping[str, EpistemicClassifier],
    settings: Settings | None = None,
    *,
    on_failure: Callable[[Exception], None] | None = None,
) -> RequestGuard:
    """An ASGI application that serves classifiers.

    Args:
        models: Classifiers by name, of any kind of model; or a `Service`, as `iknow serve` makes it
            from bundles.
        settings: How to serve; not with a `Service`, which has its own.
        on_failure: Is told why the service could not start. Default: it raises in the background,
            and `/readyz` never succeeds.

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

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        # In the background: the probes answer while models are loaded.
        starting = asyncio.create_task(_start(service, on_failure))
        try:
            yield
        finally:
            await asyncio.gather(starting, return_exceptions=True)
            await service.stop()

    routes = [Route(each.path, Handler(each, service), methods=[each.method]) for each in ENDPOINTS]
    return RequestGuard(Router(routes, lifespan=lifespan), service)


async def _start(service: Service, on_failure: Callable[[Exception], None] | None) -> None:
    try:
        await service.start()
    except Exception as error:
        log.error("the service cannot start: %s", error)
        if on_failure is None:
            raise
        on_failure(error)
