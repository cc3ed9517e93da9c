"""Metrics, as Prometheus reads them: counts since the start, and gauges of now."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from iknow.serve.answers import ASSERTIONS, REASONS, RequestAnswers
from iknow.serve.served import ServedModel
from iknow.serve.service import Service

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
ROWS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 10_000)
MODEL = ("model", "version")


class Metrics(Collector):
    """Everything that `/metrics` tells about a service."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, service: Service) -> None:
        self._service = service
        self._registry = registry = CollectorRegistry()
        self._answers = Counter(
            "iknow_answers", "Rows that were answered.", (*MODEL, "assertion", "reason"),
            registry=registry,
        )  # fmt: skip
        self._requests = Counter(
            "iknow_requests", "Requests by route and status.", ("route", "status"),
            registry=registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "iknow_request_seconds", "Seconds from a request to its answer.", ("route",),
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._rows = Histogram(
            "iknow_request_rows", "Rows of a request.", ("model",), buckets=ROWS, registry=registry
        )
        registry.register(self)

    def answered(self, model: ServedModel, answers: RequestAnswers) -> None:
        """Count the answers to one request."""
        self._rows.labels(model.name).observe(len(answers))
        columns = (np.asarray(each).tolist() for each in (answers.assertion, answers.reason))
        for (assertion, reason), count in Tally(zip(*columns, strict=True)).items():
            words = ASSERTIONS[assertion], REASONS[reason]
            self._answers.labels(model.name, model.version, *words).inc(count)

    def requested(self, route: str, status: int, seconds: float) -> None:
        """Count a request. route: its pattern, so that no caller can make up new ones."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """All metrics in Prometheus' own format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """What the service is like now."""
        service = self._service
        unrecorded = 0 if service.audit is None else service.audit.n_unrecorded
        yield GaugeMetricFamily("iknow_ready", "1 if all models are loaded.", int(service.ready))
        for name, what, count in (
            ("iknow_unrecorded_answers", "Rows answered without a record.", unrecorded),
            ("iknow_reloads", "Bundles replaced.", service.n_reloads),
            ("iknow_reload_failures", "New bundles refused.", service.n_reload_failures),
        ):
            yield CounterMetricFamily(name, what, count)
        waiting, alarms, evidence, limit = (
            GaugeMetricFamily(f"iknow_{name}", what, labels=labels)
            for name, what, labels in (
                ("waiting_rows", "Rows that wait.", MODEL),
                ("alarm", "1 after an alarm.", (*MODEL, "alarm")),
                ("drift_log10_evidence", "Against no change; it rings at the threshold.", MODEL),
                ("drift_log10_threshold", "Of the evidence.", MODEL),
            )
        )
        for model in service.models:
            labels, reports = [model.name, model.version], model.watcher.reports()
            drift = reports["alarm"]
            waiting.add_metric(labels, model.batcher.waiting)
            alarms.add_metric([*labels, "drift"], int(drift["alarmed"]))
            alarms.add_metric([*labels, "accuracy"], int(reports["accuracy"]["alarmed"]))
            evidence.add_metric(labels, drift["evidence"])
            limit.add_metric(labels, drift["threshold"])
        yield from (waiting, alarms, evidence, limit)
