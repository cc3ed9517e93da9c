import itertools

import pytest

from tests.serve.audit.server import Server


@pytest.fixture(scope="session")
def server():
    """A running server."""
    server = Server()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def _numbers():
    return itertools.count()


@pytest.fixture
def new_schema(server, _numbers):
    """A function that makes an empty schema and returns its URL: sooner made than a database."""

    def make():
        name = f"s{next(_numbers)}"
        with server.connect() as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{server.url()}?options=-csearch_path%3D{name}"

    return make
