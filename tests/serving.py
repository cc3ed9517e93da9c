"""The real server in a thread, for tests that ask it over a socket."""

import asyncio
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass

from iknow.serve.served import serve_classifier
from iknow.serve.server import Address, Runner
from iknow.serve.service import Service
from iknow.serve.settings import Settings


@dataclass
class Running:
    """A server that answers at a URL. stop: ends it as SIGTERM does, and waits."""

    url: str
    service: Service
    server: object
    thread: threading.Thread

    def stop(self):
        self.server.should_exit = True
        self.thread.join()


class Awaited(Service):
    """A service that says when its start is over."""

    def __init__(self, *args):
        super().__init__(*args)
        self.over, self.error = threading.Event(), None

    async def start(self):
        try:
            await super().start()
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.over.set()


@contextmanager
def serve_in_thread(models, settings=None, *, certificate=None, key=None):
    """Run the real server on a free port of loopback until the block ends; it is ready.

    models: classifiers by name, or a list of bundles (`BundleSource`) or served models.
    """
    if isinstance(models, dict):
        models = [serve_classifier(name, classifier) for name, classifier in models.items()]
    service = Awaited(models, settings or Settings())
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = Address(*listening.getsockname(), certificate, key)
        server = Runner(service, address)

        def work():
            try:
                asyncio.run(server.serve([listening]))
            finally:
                service.over.set()  # nobody waits for a server that is gone

        thread = threading.Thread(target=work, daemon=True, name="server")
        thread.start()
        running = Running(address.url, service, server, thread)
        try:
            service.over.wait()
            if service.error is not None:
                raise service.error
            yield running
        finally:
            running.stop()
