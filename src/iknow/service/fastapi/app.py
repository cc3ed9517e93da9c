"""The application: a service behind HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from fastapi import FastAPI

from iknow.classifier.epistemic import EpistemicClassifier
from iknow.service.fastapi import pages, v1, v2
from iknow.service.fastapi.envelope import Envelope
from iknow.service.fastapi.errors import handle_errors
from iknow.service.prometheus_client import Metrics
from iknow.service.served import serve_classifier
from iknow.service.service import Service
from iknow.service.settings import Settings
from iknow.version import __version__

log = logging.getLogger("iknow.service")


def create_app(
    models: Service | Mapping[str, EpistemicClassifier],
    settings: Settings | None = None,
    *,
    on_failure: Callable[[Exception], None] | None = None,
) -> FastAPI:
    """An ASGI application that serves classifiers.

    Args:
        models: Classifiers by name, of any kind of model; or a `Service`, as `iknow serve` makes it
            from bundles.
        settings: How to serve; not with a `Service`, which has its own.
        on_failure: Is told why the service could not start. Default: it raises in the background,
            and `/readyz` never succeeds.

    Examples:
        >>> app = create_app({"irises": ec})
        >>> app.title
        'iknow'
    """
    if isinstance(models, Service):
        service = models
    else:
        served = [serve_classifier(name, classifier) for name, classifier in models.items()]
        service = Service(served, settings)
    metrics = Metrics(service)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # In the background: the probes answer while models are loaded.
        starting = asyncio.create_task(_start(service, on_failure))
        try:
            yield
        finally:
            await asyncio.gather(starting, return_exceptions=True)
            await service.stop()

    app = FastAPI(
        title="iknow",
        version=__version__,
        description="Makes a classifier honest: IK, IMK or IDK for every prediction.",
        lifespan=lifespan,
        docs_url=None,  # it would load scripts from elsewhere
        redoc_url=None,
    )
    app.state.service, app.state.metrics = service, metrics
    handle_errors(app)
    for router in (v1.router, v2.router, pages.router):
        app.include_router(router)
    app.add_middleware(
        Envelope, metrics=metrics, room=service.room, local_only=not service.settings.tokens
    )
    return app


async def _start(service: Service, on_failure: Callable[[Exception], None] | None) -> None:
    try:
        await service.start()
    except Exception as error:
        log.error("the service cannot start: %s", error)
        if on_failure is None:
            raise
        on_failure(error)
