"""Load: requests per second, beside the same model without assertions; the price of knowing.

    IKNOW_DATA=DATA python -m benchmarks.service load

All servers run at once and take turns of a second, so that they see the same machine. Clients are a
process of its own. The price is the time of a request to our service over that to the bare model.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.service.asking import NPY, as_json, as_npy, tensor
from benchmarks.service.clients import Clients
from benchmarks.service.mlserver import running_mlserver
from benchmarks.service.network import Network, make_network
from benchmarks.service.process import Server, running
from benchmarks.service.wire import Asked

ROWS, CLIENTS, FORMS = (1, 100), (1, 4, 16), ("json", "npy")
SECONDS, ROUNDS = 1.0, 2
BARE, PLAIN, AUDITED, WORKERS, MLSERVER = (
    "bare model", "iknow", "iknow, SQLite audit", "iknow, 2 workers", "MLServer, bare model",
)  # fmt: skip
TARGETS = {1: 2.0, 100: 1.5}
"""The price at most, by the rows of a request."""


def measure(rounds: int) -> dict[str, Any]:
    """All figures, and the prices."""
    network = make_network()
    with ExitStack() as stack:
        servers = _start(network, stack)
        clients = Clients()
        stack.callback(clients.close)
        cases = [
            _measure(servers, clients, network, form, n_rows, n_clients, rounds or ROUNDS)
            for n_rows in ROWS
            for form in FORMS
            for n_clients in CLIENTS
        ]
    return {"cases": cases, "prices": _prices(cases), "targets": TARGETS}


def _start(network: Network, stack: ExitStack) -> dict[str, Server]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    ours = ["-m", "benchmarks.service.serve"]
    settings = {
        PLAIN: {},
        AUDITED: {"audit": str(folder / "audit.db")},
        WORKERS: {"workers": 2},
    }
    bare = ["-m", "benchmarks.service.fastapi", str(network.onnx)]
    servers = {BARE: stack.enter_context(running(bare))}
    for name, each in settings.items():
        command = [*ours, json.dumps(each), str(network.bundle)]
        servers[name] = stack.enter_context(running(command))
    found = stack.enter_context(running_mlserver(network.onnx))
    return servers if found is None else servers | {MLSERVER: found}


def _measure(
    servers: Mapping[str, Server],
    clients: Clients,
    network: Network,
    form: str,
    n_rows: int,
    n_clients: int,
    rounds: int,
) -> dict[str, Any]:
    """One case: all servers, in turns; of each the median round."""
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(1 + rounds):  # the first warms up
        for name, server in servers.items():
            request = _request(name, network.rows[:n_rows], form).encode("127.0.0.1")
            told = clients.ask(server.port, request, n_clients, SECONDS)
            found.setdefault(name, []).append(told)
    return {
        "rows": n_rows,
        "form": form,
        "clients": n_clients,
        "servers": {name: _summarize(each[1:]) for name, each in found.items()},
    }


def _request(name: str, rows: Any, form: str) -> Asked:
    if name == MLSERVER:
        return Asked("/v2/models/mnist/infer", as_json({"inputs": [tensor(rows, datatype="FP32")]}))
    path = "/predict" if name == BARE else "/v1/models/mnist/assess"
    if form == "npy":
        return Asked(path, as_npy(np.ascontiguousarray(rows)), NPY)
    return Asked(path, as_json({"rows": rows.tolist()}))


def _summarize(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {
        "per_second": statistics.median(each["requests"] / each["seconds"] for each in rounds),
        "p50_ms": statistics.median(each["p50_ms"] for each in rounds),
        "p99_ms": statistics.median(each["p99_ms"] for each in rounds),
    }


def _prices(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The bare model's requests per second over ours, for every case."""
    prices = []
    for case in cases:
        bare = case["servers"][BARE]["per_second"]
        ours = {
            name: bare / each["per_second"]
            for name, each in case["servers"].items()
            if name != BARE
        }
        prices.append({key: case[key] for key in ("rows", "form", "clients")} | {"price": ours})
    return prices


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The figures as a table in Markdown."""
    yield "| rows | form | clients | server | requests/s | p50 ms | p99 ms | price |"
    yield "|---:|---|---:|---|---:|---:|---:|---:|"
    for case, price in zip(found["cases"], found["prices"], strict=True):
        for name, each in case["servers"].items():
            factor = f"{price['price'][name]:.2f}" if name in price["price"] else ""
            yield (
                f"| {case['rows']} | {case['form']} | {case['clients']} | {name} | "
                f"{each['per_second']:,.0f} | {each['p50_ms']:.2f} | {each['p99_ms']:.2f} | "
                f"{factor} |"
            )
