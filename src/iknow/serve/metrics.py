"""Metrics, as Prometheus reads them: counts since the start, and gauges of now."""

from __future__ import annotations

import collections
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


class Metrics:
    """Everything that `/metrics` tells about a service."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, service: Service) -> None:
        self._registry = CollectorRegistry()
        self._answers = Counter(
            "iknow_answers", "Rows that were answered.",
            ("model", "version", "assertion", "reason"), registry=self._registry,
        )  # fmt: skip
        self._requests = Counter(
            "iknow_requests", "Requests by route and status.",
            ("route", "status"), registry=self._registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "iknow_request_seconds", "Seconds from a request to its answer.",
            ("route",), buckets=SECONDS, registry=self._registry,
        )  # fmt: skip
        self._rows = Histogram(
            "iknow_request_rows", "Rows of a request.",
            ("model",), buckets=ROWS, registry=self._registry,
        )  # fmt: skip
        self._registry.register(_Now(service))

    def answered(self, model: ServedModel, answers: RequestAnswers) -> None:
        """Count the answers to one request."""
        self._rows.labels(model.name).observe(len(answers))
        columns = (np.asarray(each).tolist() for each in (answers.assertion, answers.reason))
        pairs = zip(*columns, strict=True)
        for (assertion, reason), count in collections.Counter(pairs).items():
            words = ASSERTIONS[assertion], REASONS[reason]
            self._answers.labels(model.name, model.version, *words).inc(count)

    def requested(self, route: str, status: int, seconds: float) -> None:
        """Count a request. route: its pattern, so that no caller can make up new ones."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """All metrics in Prometheus' own format."""
        return generate_latest(self._registry)


class _Now(Collector):
    """What a service is like now, read when it is asked for."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        service = self._service
        unrecorded = 0 if service.audit is None else service.audit.n_unrecorded
        yield GaugeMetricFamily("iknow_ready", "1 if all models are loaded.", int(service.ready))
        yield CounterMetricFamily(
            "iknow_unrecorded_answers", "Rows answered without a record.", unrecorded
        )
        yield CounterMetricFamily("iknow_reloads", "Bundles replaced.", service.n_reloads)
        yield CounterMetricFamily(
            "iknow_reload_failures", "New bundles refused.", service.n_reload_failures
        )
        told = ("model", "version")
        waiting = GaugeMetricFamily("iknow_waiting_rows", "Rows that wait.", labels=told)
        alarmed = GaugeMetricFamily("iknow_alarm", "1 after an alarm.", labels=(*told, "alarm"))
        evidence = GaugeMetricFamily(
            "iknow_drift_log10_evidence", "Against no change; the alarm's limit is the threshold.",
            labels=told,
        )  # fmt: skip
        limit = GaugeMetricFamily("iknow_drift_log10_threshold", "Of the evidence.", labels=told)
        for model in service.models:
            names = [model.name, model.version]
            drift, accuracy = model.watcher.reports()
            waiting.add_metric(names, model.batcher.waiting)
            alarmed.add_metric([*names, "drift"], int(drift["alarmed"]))
            alarmed.add_metric([*names, "accuracy"], int(accuracy["alarmed"]))
            evidence.add_metric(names, drift["evidence"])
            limit.add_metric(names, drift["threshold"])
        yield from (waiting, alarmed, evidence, limit)
