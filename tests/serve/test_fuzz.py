"""Broken requests: every one is answered, none with a fault of the server's own.

`python -m benchmarks.service fuzz` sends a hundred thousand of them.
"""

import logging
from dataclasses import replace

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from benchmarks.service.asking import good_requests
from benchmarks.service.fuzz import Counts, find_fault, fuzz
from benchmarks.service.small import all_models
from benchmarks.service.traps import traps
from benchmarks.service.wire import Asked, Told, Wire
from iknow.serve.settings import Settings
from tests.serving import serve_in_thread

SMALL = Settings(timeout=5, most_body=1 << 20)
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance,
          response_headers_conformance, response_schema_conformance]  # fmt: skip
IGNORED = "ignore:.*encountered in:RuntimeWarning"  # of models, on numbers near the largest


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    """The port of a server of three models."""
    logging.getLogger("iknow.serve").setLevel(logging.ERROR)
    where = tmp_path_factory.mktemp("fuzz") / "audit.db"
    with serve_in_thread(all_models(), replace(SMALL, audit=str(where))) as running:
        yield int(running.url.rpartition(":")[2])


@pytest.fixture(scope="module")
def described(port):
    return schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json")


def test_good_requests_are_answered(port):
    with Wire(port) as wire:
        for asked in good_requests():
            told = wire.ask(asked)
            assert told.status == 200, (asked, told)


@pytest.mark.slow
@pytest.mark.filterwarnings(IGNORED)
def test_broken_requests_find_no_fault(port):
    counts = fuzz(port, 120, seed=1)
    assert counts.faults == []
    assert counts.statuses.keys() >= {"200", "400", "422"}


@pytest.mark.slow
@pytest.mark.filterwarnings(IGNORED)
def test_every_trap_finds_no_fault(port):
    counts = Counts()
    with Wire(port) as wire:
        for asked in traps():
            counts.add(asked, wire.ask(asked))
    assert counts.faults == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("examples", [2, pytest.param(50, marks=pytest.mark.slow)])
def test_the_description_is_kept(described, examples):
    """Every route answers what its description permits, to what it permits and to more."""
    n_routes = 0
    for found in described.get_all_operations():
        n_routes += 1

        @settings(max_examples=examples, deadline=None, database=None, derandomize=True,
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(case=found.ok().as_strategy(), known=st.booleans())
        def holds(case, known):
            if known and case.path_parameters:  # else no model is ever met
                there = {"name": "digits", "version": "1"}
                case.path_parameters = {key: there[key] for key in case.path_parameters}
            case.call_and_validate(checks=CHECKS)

        holds()
    assert n_routes >= 15


@pytest.mark.parametrize(
    "told",
    [
        Told(500, b"{}"), Told(0), Told(200, b"Traceback (most"), Told(400, b"not ours"),
        Told(400, b"x", {"X-Request-Id": ""}),
        Told(422, b'{"error": "one\\ntwo"}', {"X-Request-Id": ""}),
    ],
)  # fmt: skip
def test_faults_are_found(told):
    assert find_fault(Asked("/"), told) is not None
