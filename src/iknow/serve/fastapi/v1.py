"""Our own routes: assess, labels, models, status, reload."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from iknow.serve.changing import read_asked
from iknow.serve.decoding import JSON, decode, parse_json, write_json
from iknow.serve.desk import Desk
from iknow.serve.fastapi.reading import admit, read_body, service_of, span
from iknow.serve.fastapi.schemas import (
    ASKED,
    CHANGE_BODY,
    CHANGED,
    LABELS_BODY,
    READ,
    ROWS_BODY,
    Answers,
    Changed,
    Learned,
    Log,
    Model,
    Models,
)
from iknow.serve.refusal import Refusal
from iknow.serve.said import Wanted, as_answers
from iknow.serve.service import Service

router = APIRouter(prefix="/v1")
Flag = Annotated[bool, Query()]


@router.post(
    "/models/{name}/assess", responses=ASKED, response_model=Answers, openapi_extra=ROWS_BODY
)
async def assess(
    request: Request,
    name: str,
    evidence: Flag = False,
    exemplars: Flag = False,
    watch: Flag = True,
) -> Response:
    """Say for each row what the model believes, and how well that is justified."""
    return await _assess(request, name, None, evidence, exemplars, watch)


@router.post(
    "/models/{name}/versions/{version}/assess",
    responses=ASKED,
    response_model=Answers,
    openapi_extra=ROWS_BODY,
)
async def assess_version(
    request: Request,
    name: str,
    version: str,
    evidence: Flag = False,
    exemplars: Flag = False,
    watch: Flag = True,
) -> Response:
    """Like assess, by a certain version of the model."""
    return await _assess(request, name, version, evidence, exemplars, watch)


async def _assess(
    request: Request,
    name: str,
    version: str | None,
    evidence: bool,
    exemplars: bool,
    watch: bool,
) -> Response:
    service = service_of(request)
    call = admit(request, "assess", watch=watch)
    desk = find_desk(service, name, version)
    with span("assess", request.headers, model=name):
        body = await read_body(request)
        kind, settings = request.headers.get("Content-Type", JSON), service.settings
        rows = decode(body, kind, settings.most_rows)
        wanted = Wanted(evidence=evidence, exemplars=exemplars or settings.audit is not None)
        said = await service.answer(desk, rows, wanted, call)
    request.app.state.metrics.answered(desk.served, said)
    return respond(
        {
            "model": desk.served.name,
            "version": desk.served.version,
            "bundle": desk.served.sha256,
            "request": call.request,
            "answers": as_answers(said, desk.served.labels, exemplars=exemplars),
        }
    )


@router.post("/labels", responses=ASKED, response_model=Learned, openapi_extra=LABELS_BODY)
async def labels(request: Request) -> Response:
    """Tell the truth about rows that were answered; IKs are compared with their certificate."""
    service, call = service_of(request), admit(request, "labels")
    said = parse_json(await read_body(request))
    given = said.get("labels") if isinstance(said, dict) else None
    if not isinstance(given, list) or not given or set(said) != {"labels"}:
        raise Refusal(422, 'expected an object {"labels": [{"request", "row", "label"}, ...]}')
    if len(given) > service.settings.most_rows:
        raise Refusal(413, f"a request may have {service.settings.most_rows:,} labels")
    return respond(await service.learn(call, given))


@router.get("/models", responses=READ, response_model=Models)
async def models(request: Request) -> Response:
    """List the models that are served."""
    admit(request, "assess")
    return respond({"models": [desk.served.about() for desk in service_of(request).desks]})


@router.get("/models/{name}", responses=READ, response_model=Model)
async def model(request: Request, name: str) -> Response:
    """Say what a model is and what it promises."""
    admit(request, "assess")
    return respond(find_desk(service_of(request), name).served.about())


@router.post(
    "/models/{name}/changes", responses=CHANGED, response_model=Changed, openapi_extra=CHANGE_BODY
)
async def change(request: Request, name: str) -> Response:
    """Remove, relabel and add samples of a model's evidence, in this order, all or none."""
    service, call = service_of(request), admit(request, "admin")
    find_desk(service, name)
    asked = read_asked(parse_json(await read_body(request)), service.settings.most_rows)
    return respond(await service.change(name, asked, call))


@router.get("/models/{name}/changes", responses=READ, response_model=Log)
async def changes(request: Request, name: str) -> Response:
    """Tell what happened to a model's evidence: who changed which samples, when and why."""
    admit(request, "admin")
    log = find_desk(service_of(request), name).served.classifier.memory.log
    return respond({"changes": [each.to_dict() for each in log]})


@router.get("/status", responses=READ)
async def status(request: Request) -> Response:
    """Tell everything that the page shows."""
    admit(request, "admin")
    return respond(service_of(request).status())


@router.post("/reload", responses=READ)
async def reload(request: Request) -> Response:
    """Load bundles that changed on disk, as SIGHUP does; a bad one is refused."""
    admit(request, "admin")
    return respond({"models": await service_of(request).reload()})


@router.post("/models/{name}/alarm/reset", responses=READ)
async def reset_alarm(request: Request, name: str) -> Response:
    """Start the drift alarm of a model anew, after its cause was found."""
    admit(request, "admin")
    desk = find_desk(service_of(request), name)
    await asyncio.to_thread(desk.monitors.reset)
    return respond(desk.reports()[0])


def find_desk(service: Service, name: str, version: str | None = None) -> Desk:
    """The desk of a model. Raises a `Refusal`: 404, or 503 while models are loaded."""
    if not service.ready:
        raise Refusal(503, "the models are being loaded: wait for /readyz", 2)
    return service.desks.find(name, version)


def respond(value: Any) -> Response:
    """Plain values as JSON."""
    return Response(write_json(value), media_type=JSON)
