"""The client of a service that runs `iknow serve`.

    samples → body → request, retried where that is safe → answers

Sent again is only a request that the service refused for the moment (429 and 503, if it says when
to come back), and one whose connection had been open before and ended before the head of an answer,
as a server may close an idle connection at the very moment it is used again. If it was killed at
that moment instead, its audit may hold the request twice; a change is made once all the same, as
the second is refused (409). On a new connection nothing is sent twice.

A token that travels without TLS can be read by everybody on the way. So it is sent to this machine
only, unless the caller says otherwise.
"""

from __future__ import annotations

import ipaddress
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import numpy as np

from iknow.core.arrays import Labels
from iknow.core.assertion import Assertion, Assertions, Reason, Reasons
from iknow.core.text import as_real, as_whole, shorten, shown, visible
from iknow.errors import InputError, MissingExtraError, ServiceError
from iknow.explain.answers import as_frame
from iknow.locking import Lock
from iknow.serve import schema
from iknow.serve.encoding import encode, to_json
from iknow.serve.schema import JSON, REQUEST_ID, Label

if TYPE_CHECKING:  # only those who ask load it
    import ssl

    import httpx2

T = TypeVar("T")
DEFAULT_URL = "http://127.0.0.1:8000"
PRINTABLE = re.compile(r"[!-~]+", re.ASCII)
"""What a token is made of: anything else would break the header that carries it."""
LONGEST_PAUSE = 1.0
"""Seconds between two looks at a service that starts."""
LONGEST_REASON = 1_000


@dataclass(frozen=True)
class ServedAnswer:
    """What was said about one sample: a `schema.RowAnswer` whose words can be compared."""

    belief: Label | None
    assertion: Assertion
    reason: Reason
    level: float | None
    probability: float | None
    exemplars: Mapping[str, int] | None
    evidence: Mapping[str, Any] | None
    explanation: Mapping[str, Any] | None


class ServedAnswers(Sequence[ServedAnswer]):
    """What was said about n samples, in their order: columns, and a `ServedAnswer` by position.

    Args:
        reply: What the service said.

    Attributes:
        model: What answered.
        version: Its version.
        bundle: The sha256 of its bundle; empty if it was not loaded from one.
        request: The id of the request, by which the audit and `Client.labels` know it.
        belief: Labels of shape (n,); None among them where the model gave no answer.
        assertion: Of shape (n,), comparable with `Assertion.IK`.
        reason: Of shape (n,), comparable with `Reason.KNOWN`.
        level: How ordinary each sample is, of shape (n,); NaN without levels.
        probability: How likely each belief is right, of shape (n,); NaN if no labels taught it.
        exemplars: Of length n, if asked for: by layer, the training row of the believed class that
            is nearest, -1 for none.
        evidence: Of length n, if asked for: by layer, the distances for and against.
        explanation: Of length n, if asked for: why, in a sentence and in numbers.

    Examples:
        >>> said = schema.RowAnswer(7, "IDK", "EXTRAPOLATION", 0.01)
        >>> answers = ServedAnswers(schema.AssessReply("digits", "1", "", "r1", (said,)))
        >>> answers
        ServedAnswers of digits 1: IK 0, IMK 0, IDK 1
        >>> answers[0].belief, answers.level
        (7, array([0.01]))
    """

    def __init__(self, reply: schema.AssessReply) -> None:
        self._said = said = [
            ServedAnswer(each.belief, Assertion[each.assertion], Reason[each.reason], each.level,
                         each.probability, each.exemplars, each.evidence, each.explanation)
            for each in reply.answers
        ]  # fmt: skip
        self.model, self.version = reply.model, reply.version
        self.bundle, self.request = reply.bundle, reply.request
        self.belief = _as_labels([each.belief for each in said])
        codes, reasons = (
            np.array([getattr(each, name) for each in said], np.int8)
            for name in ("assertion", "reason")
        )
        self.assertion: Assertions = codes.view(Assertions)
        self.reason: Reasons = reasons.view(Reasons)
        self.level, self.probability = (  # None becomes NaN
            np.array([getattr(each, name) for each in said], np.float64)
            for name in ("level", "probability")
        )
        self.exemplars, self.evidence, self.explanation = (
            tuple(column) if any(each is not None for each in column) else None
            for column in (
                [getattr(each, name) for each in said]
                for name in ("exemplars", "evidence", "explanation")
            )
        )

    def __len__(self) -> int:
        return len(self._said)

    @overload
    def __getitem__(self, i: int) -> ServedAnswer: ...
    @overload
    def __getitem__(self, i: slice) -> list[ServedAnswer]: ...
    def __getitem__(self, i: int | slice) -> ServedAnswer | list[ServedAnswer]:
        return self._said[i]

    def __repr__(self) -> str:
        counts = [f"{a.name} {int((self.assertion == a).sum())}" for a in reversed(Assertion)]
        return f"ServedAnswers of {self.model} {self.version}: {', '.join(counts)}"

    def label(self, truth: Sequence[Label | None]) -> list[dict[str, Any]]:
        """The truth about these samples, as `Client.labels` takes it.

        Args:
            truth: Of length n; None for what is not known yet.
        """
        if len(truth) != len(self):
            raise InputError(f"expected {len(self)} labels, one for each answer; got {len(truth)}")
        plain = truth.tolist() if isinstance(truth, np.ndarray) else truth
        return [
            {"request": self.request, "row": i, "label": label}
            for i, label in enumerate(plain)
            if label is not None
        ]

    def to_frame(self) -> Any:
        """The columns as a `pandas.DataFrame`: `belief`, `assertion`, `reason`, `level` and
        `probability`.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        columns = ("belief", "assertion", "reason", "level", "probability")
        return as_frame({name: getattr(self, name) for name in columns})


class Client:
    """Asks a service. Threads may share one: each request has a connection of its own while it
    lasts, and connections are kept open for later ones.

    Args:
        url: Where the service is. Default: the environment's IKNOW_URL, or http://127.0.0.1:8000.
        token: Sent with each request. Default: the environment's IKNOW_TOKEN. Without TLS it is
            sent to this machine only.
        timeout: Seconds to wait for the service, each time.
        retries: How often to send again what the service was too busy for. It waits as long as the
            service asks for, and gives up if that is longer than `timeout`.
        context: For https: what to trust. Default: what the system trusts.
        insecure: Whether the token may travel without TLS.

    Raises:
        MissingExtraError: httpx2 is not installed: the extra `client`, which `serve` includes.

    Examples:
        >>> Client("http://127.0.0.1:8000", timeout=5)
        Client('http://127.0.0.1:8000')
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 30,
        retries: int = 2,
        context: ssl.SSLContext | None = None,
        insecure: bool = False,
    ) -> None:
        self.url, host = parse_url(url or os.environ.get("IKNOW_URL") or DEFAULT_URL)
        self._headers = {"Accept": JSON, "Accept-Encoding": "identity"}
        if token := token or os.environ.get("IKNOW_TOKEN"):  # never in a message
            if not isinstance(token, str) or PRINTABLE.fullmatch(token) is None:
                raise InputError("a token is text of visible ASCII characters without spaces")
            if self.url.startswith("http:") and not is_loopback(host) and not insecure:
                raise InputError(
                    f"a token must not travel without TLS, and {self.url} has none: use https, or "
                    "say insecure=True if nobody else listens on the way"
                )
            self._headers["Authorization"] = f"Bearer {token}"
        fits = "be a finite number above 0"
        self._timeout = as_real(timeout, "timeout", fits, lambda x: 0 < x < float("inf"))
        self._retries = as_whole(retries, "retries", "be a whole number from 0", 0)
        self._context = context
        try:
            import httpx2  # noqa: F401 - said now, not at the first request
        except ImportError as error:
            raise MissingExtraError("Client", "client") from error
        self._lock = Lock()
        self._kept: dict[int, httpx2.Client] = {}  # by the process that opened the connections

    def assess(
        self,
        model: str,
        X: Any,
        *,
        version: str | None = None,
        evidence: bool = False,
        exemplars: bool = False,
        explain: bool = False,
        watch: bool = True,
        request_id: str | None = None,
    ) -> ServedAnswers:
        """Ask a model about n samples.

        Args:
            model: Its name.
            X: An array of shape (n, ...), lists of numbers, dicts by feature, texts, a data frame
                of pandas or polars, an Arrow table; or arrays by name for a model with several
                inputs.
            version: Which version to ask. Default: the one the service prefers.
            evidence: Whether to tell the distances for and against.
            exemplars: Whether to tell the nearest training rows.
            explain: Whether to explain each answer; for up to 100 samples.
            watch: Whether the alarm may look at these samples; not at those of a test.
            request_id: What the audit calls this request. Default: the service makes an id.

        Raises:
            InputError: X cannot be sent.
            ServiceError: The service refuses it, with its `status`; or there is no answer.
        """
        kind, body = encode(X)
        chosen = {
            "evidence": evidence, "exemplars": exemplars, "explain": explain, "watch": watch
        }  # fmt: skip
        query = urlencode({name: str(bool(value)).lower() for name, value in chosen.items()})
        headers = {"Content-Type": kind}
        if request_id is not None:
            if not isinstance(request_id, str) or not REQUEST_ID.fullmatch(request_id):
                expected = "up to 128 letters, digits and . _ : -, the first a letter or a digit"
                raise InputError(f"request_id has {expected}; got {shown(request_id)}")
            headers["X-Request-Id"] = request_id
        path = f"{_path(model, version)}/assess?{query}"
        reply = self._ask("POST", path, schema.AssessReply, body, headers)
        try:
            return ServedAnswers(reply)
        except KeyError as error:
            raise self._misunderstood(error) from error

    def models(self) -> tuple[schema.ModelInfo, ...]:
        """All models that are served, each in all its versions."""
        return self._ask("GET", "/v1/models", schema.ModelList).models

    def model(self, name: str) -> schema.ModelInfo:
        """What the model of this `name` is, and what it promises."""
        return self._ask("GET", _path(name), schema.ModelInfo)

    def status(self) -> dict[str, Any]:
        """Everything that the page of the service shows."""
        return self._ask("GET", "/v1/status", dict[str, Any])

    def labels(self, labels: Sequence[Mapping[str, Any]]) -> schema.LabelCounts:
        """Tell the truth about samples that were answered.

        Args:
            labels: Dicts with `request`, `row` and `label`; see `ServedAnswers.label`.
        """
        given = [dict(label) if isinstance(label, Mapping) else None for label in labels]
        if None in given:
            raise InputError("labels are dicts, such as those of ServedAnswers.label")
        return self._post("/v1/labels", {"labels": given}, schema.LabelCounts)

    def change(
        self,
        model: str,
        *,
        add: tuple[Any, Any] | None = None,
        ids: Sequence[int] | None = None,
        remove: Sequence[int] = (),
        relabel: Mapping[int, Any] | None = None,
        why: str = "",
        after: str | None = None,
    ) -> schema.Changed:
        """Remove, relabel and add samples of a model's evidence, in this order, all or none.

        When it returns, the change is in the model's bundle, and all that is asked from now on is
        answered by it. What was certified is stale until it is certified again.

        Args:
            model: Its name.
            add: Samples as lists of numbers, dicts by feature, texts or an array, and their labels.
            ids: Numbers to name the added samples by. Default: they count on.
            remove: Numbers of samples.
            relabel: Labels by the numbers of samples.
            why: Why, for the log; who is the name of your token.
            after: The sha256 of the bundle that you saw. Default: what is served now. If somebody
                else changes it first, nothing happens, and neither does it if the request comes
                twice: a `ServiceError` of status 409.
        """
        pairs = [{"id": id_, "label": label} for id_, label in (relabel or {}).items()]
        asked: dict[str, Any] = {"remove": remove, "relabel": pairs, "why": why}
        if add is not None:
            asked["add"] = {"rows": add[0], "labels": add[1], "ids": ids}
        asked["after"] = self.model(model).bundle if after is None else after
        return self._post(f"{_path(model)}/changes", asked, schema.Changed)

    def changes(self, model: str) -> tuple[schema.ChangeEntry, ...]:
        """What happened to the evidence of a `model`, the first change first."""
        return self._ask("GET", f"{_path(model)}/changes", schema.Changes).changes

    def reload(self) -> tuple[schema.Reloaded, ...]:
        """Have the service load bundles that changed on disk; what became of each model."""
        return self._ask("POST", "/v1/reload", schema.Reloads).models

    def ready(self) -> bool:
        """Whether the service can be reached and all its models are loaded.

        Raises:
            ServiceError: It cannot be trusted (TLS), or answers something else.
        """
        return self._why_not_ready() is None

    def wait_until_ready(self, timeout: float = 60) -> None:
        """Wait until the service is ready.

        Raises:
            ServiceError: It is not, after `timeout` seconds; and why.
        """
        end, pause = time.monotonic() + timeout, 0.05
        while (reason := self._why_not_ready()) is not None:
            if time.monotonic() + pause > end:
                said = f"not ready after {timeout:g} s: {reason}"
                raise ServiceError(said, reason.status, reason.retry_after) from reason
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def close(self) -> None:
        """Close all connections; a later request opens another one."""
        with self._lock.held():
            kept = self._kept.pop(os.getpid(), None)
        if kept is not None:
            kept.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_kept"):
            self.close()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def _why_not_ready(self) -> ServiceError | None:
        try:
            self._ask("GET", "/readyz", dict[str, Any], retries=0)
        except ServiceError as error:
            if error.status in (None, 503) and "[SSL" not in str(error):  # that stays as it is
                return error
            raise
        return None

    def _post(self, path: str, value: Any, kind: type[T]) -> T:
        return self._ask("POST", path, kind, to_json(value), {"Content-Type": JSON})

    def _ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        retries: int | None = None,
    ) -> T:
        """Send a request, again while the service is busy, and read a reply of a certain kind."""
        told = self._headers | dict(headers or {})
        for left in reversed(range(1 + (self._retries if retries is None else retries))):
            reply = self._send(method, path, body, told)
            after, is_busy = reply.headers.get("Retry-After", ""), reply.status_code in (429, 503)
            wait = float(after) if after.isascii() and after.isdigit() else None  # else a date
            if not left or not is_busy or wait is None or wait > self._timeout:
                break
            time.sleep(wait)
        if reply.status_code != 200:
            raise ServiceError(self._why(reply), reply.status_code, wait)
        try:
            return msgspec.json.decode(reply.content, type=kind)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise self._misunderstood(error) from error

    def _send(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> httpx2.Response:
        """Send a request, and wait for its answer. A `ServiceError` without status: there was none.

        A kept connection that was closed meanwhile is replaced before anything is sent. If a kept
        one ends before its answer begins, the request is sent on another.
        """
        import httpx2

        while True:
            steps: list[str] = []
            trace = {"trace": lambda step, _, steps=steps: steps.append(step)}
            try:
                return self._open().request(
                    method, self.url + path, content=body, headers=headers, extensions=trace
                )
            except httpx2.TimeoutException as error:
                said = f"{self.url} did not answer within {self._timeout:g} s"
                raise ServiceError(f"{said}: send fewer rows, or set a longer timeout") from error
            except httpx2.InvalidURL as error:
                raise InputError(f"{shown(path, 80)} cannot be asked for: {error}") from error
            except httpx2.HTTPError as error:
                was_new = "connection.connect_tcp.started" in steps
                has_begun = "http11.receive_response_headers.complete" in steps
                broke = isinstance(error, httpx2.ReadError | httpx2.WriteError)
                has_ended = broke or "disconnected" in str(error)  # and not in the middle of a word
                if was_new or has_begun or not has_ended:
                    said = str(error) or type(error).__name__
                    raise ServiceError(f"{self.url} cannot be reached: {said}") from error

    def _open(self) -> httpx2.Client:
        """The connections of this process. Those of its parent are the parent's to close."""
        import ssl

        import httpx2

        with self._lock.held():
            if os.getpid() not in self._kept:
                trusted = ssl.create_default_context() if self._context is None else self._context
                self._kept[os.getpid()] = httpx2.Client(
                    verify=trusted,
                    trust_env=False,
                    timeout=self._timeout,
                    limits=httpx2.Limits(),
                    headers={"User-Agent": "iknow"},
                )
            return self._kept[os.getpid()]

    def _why(self, reply: httpx2.Response) -> str:
        """The sentence of the service, or what else stands in the response of a proxy."""
        with suppress(msgspec.MsgspecError, ValueError, RecursionError):
            said = msgspec.json.decode(reply.content, type=schema.Failure).error
            return f"{reply.status_code}: {shorten(visible(said), LONGEST_REASON)}"
        text = visible(reply.content[:200].decode("utf-8", "replace").strip())
        answered = f"{self.url} answered with status {reply.status_code}"
        return f"{answered}: {text}" if text else answered

    def _misunderstood(self, error: Exception) -> ServiceError:
        return ServiceError(
            f"{self.url} answers, but not as this version of iknow expects "
            f"({type(error).__name__}: {error}): is it `iknow serve`, and of this version?",
            200,
        )


def _as_labels(labels: list[Any]) -> Labels:
    """Labels as numpy has them if all are of one type; else as objects."""
    if len({type(label) for label in labels}) == 1 and isinstance(labels[0], Label):
        made = np.array(labels)
        if made.dtype.kind in "ifUb":  # not a whole number beyond 64 bits
            return made
    return np.array([*labels, None], dtype=object)[:-1]


def parse_url(url: str) -> tuple[str, str]:
    """The URL of a service, and its host.

    Examples:
        >>> parse_url("https://knows.example/grid/")
        ('https://knows.example/grid', 'knows.example')
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
        is_plain = "@" not in parts.netloc and not parts.query and not parts.fragment
        fits = is_plain and host and parts.scheme in ("http", "https") and PRINTABLE.fullmatch(url)
    except (TypeError, AttributeError, ValueError):
        fits = None
    if not fits:
        got = "something with @: give token=" if "@" in str(url) else shown(url)  # a password
        raise InputError(
            "the URL of a service looks like http://127.0.0.1:8000, without anything after ? or #; "
            f"got {got}"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}", host


def is_loopback(host: str) -> bool:
    """Whether only programs on the same machine reach an address.

    Examples:
        >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    if host.lower().rstrip(".") in ("localhost", "ip6-localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _path(model: str, version: str | None = None) -> str:
    """The path of a model, or of a version of it."""
    for name in (model, version) if version is not None else (model,):
        if not isinstance(name, str) or name in ("", ".", ".."):
            raise InputError(f"the name of a model or a version is text; got {shown(name)}")
    try:
        part = "" if version is None else f"/versions/{quote(version, safe='')}"
        return f"/v1/models/{quote(model, safe='')}{part}"
    except UnicodeEncodeError as error:
        raise InputError(f"{shown(model)} cannot stand in a URL") from error
