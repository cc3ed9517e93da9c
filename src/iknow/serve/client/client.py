"""The client of a service that runs `iknow serve`.

    samples → body → request, retried where that is safe → answers

Sent again is only what was surely not answered: a request that the service refused for the moment
(429 and 503, if it says when to come back), and one whose connection had been open before and ended
without a word.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from iknow.core.text import shown
from iknow.errors import InputError, ServiceError
from iknow.serve.client.answers import (
    Answers,
    Changed,
    Entry,
    Learned,
    Model,
    Reloaded,
    read_answers,
    read_changed,
    read_log,
    read_record,
)
from iknow.serve.client.connections import (
    DEFAULT_URL,
    Connections,
    check_token,
    parse_address,
    read_reply,
)
from iknow.serve.client.encoding import JSON, encode

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")
REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", re.ASCII)
BUSY = (429, 503)
LONGEST_PAUSE = 1.0
"""Seconds between two looks at a service that starts."""


def make_asked(
    add: tuple[Any, Any] | None,
    ids: Sequence[int] | None,
    remove: Sequence[int],
    relabel: Mapping[int, Any],
) -> dict[str, Any]:
    """The body of a request for a change, in JSON's types; see `Client.change`."""
    pairs = [{"id": as_plain(each), "label": as_plain(label)} for each, label in relabel.items()]
    asked: dict[str, Any] = {"remove": as_plain(remove), "relabel": pairs}
    if add is not None:
        asked["add"] = {"rows": as_plain(add[0]), "labels": as_plain(add[1])}
        asked["add"] |= {} if ids is None else {"ids": as_plain(ids)}
    return asked


def as_plain(value: Any) -> Any:
    """A value, or values in lists or arrays, as JSON has them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [as_plain(each) for each in value]
    return value


class Client:
    """Asks a service. May be used by several threads, each of which has a connection of its own.

    Args:
        url: Where the service is. Default: the environment's IKNOW_URL, or http://127.0.0.1:8000.
        token: Sent with each request. Default: the environment's IKNOW_TOKEN. Without TLS it is
            sent to this machine only.
        timeout: Seconds to wait for the service, each time.
        retries: How often to send again what the service was too busy for. It waits as long as the
            service asks for, and gives up if that is longer than `timeout`.
        context: For https: what to trust. Default: what the system trusts.
        insecure: Whether the token may travel without TLS.

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
        address = parse_address(url or os.environ.get("IKNOW_URL") or DEFAULT_URL)
        self._token = token or os.environ.get("IKNOW_TOKEN") or None
        check_token(self._token, address, insecure=insecure)
        if not isinstance(timeout, (int, float)) or not 0 < timeout < float("inf"):
            raise InputError(f"timeout must be a finite number above 0; got {shown(timeout)}")
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise InputError(f"retries must be a whole number from 0; got {shown(retries)}")
        self.url, self._timeout, self._retries = address.url, timeout, retries
        self._connections = Connections(address, timeout, context)

    def assess(
        self,
        model: str,
        X: Any,
        *,
        version: str | None = None,
        evidence: bool = False,
        exemplars: bool = False,
        watch: bool = True,
        request_id: str | None = None,
    ) -> Answers:
        """Ask a model about n samples.

        Args:
            model: Its name.
            X: An array of shape (n, ...), lists of numbers, dicts by feature, texts, a data frame
                of pandas or polars, an Arrow table; or arrays by name for a model with several
                inputs.
            version: Which version to ask. Default: the one the service prefers.
            evidence: Whether to tell the distances for and against.
            exemplars: Whether to tell the nearest training rows.
            watch: Whether the alarm may look at these samples; not at those of a test.
            request_id: What the audit calls this request. Default: the service makes an id.

        Raises:
            InputError: X cannot be sent.
            ServiceError: The service refuses it, with its `status`; or there is no answer.
        """
        kind, body = encode(X)
        chosen = {"evidence": evidence, "exemplars": exemplars, "watch": watch}
        query = urlencode({name: str(bool(value)).lower() for name, value in chosen.items()})
        part = "" if version is None else f"/versions/{_segment(version)}"
        headers = {"Content-Type": kind}
        if request_id is not None:
            if not isinstance(request_id, str) or not REQUEST_ID.fullmatch(request_id):
                raise InputError(
                    "request_id has up to 128 letters, digits and . _ : -, and begins with one of "
                    f"the first two; got {shown(request_id)}"
                )
            headers["X-Request-Id"] = request_id
        path = f"/v1/models/{_segment(model)}{part}/assess?{query}"
        return self._ask("POST", path, read_answers, body, headers)

    def models(self) -> tuple[Model, ...]:
        """All models that are served, each in all its versions."""
        return self._ask(
            "GET", "/v1/models", lambda said: tuple(read_record(Model, m) for m in said["models"])
        )

    def model(self, name: str) -> Model:
        """What a model is, and what it promises.

        Args:
            name: What it is called.
        """
        return self._ask("GET", f"/v1/models/{_segment(name)}", lambda m: read_record(Model, m))

    def status(self) -> dict[str, Any]:
        """Everything that the page of the service shows."""
        return self._ask("GET", "/v1/status", dict)

    def labels(self, labels: Sequence[Mapping[str, Any]]) -> Learned:
        """Tell the truth about samples that were answered.

        Args:
            labels: Dicts with `request`, `row` and `label`; see `Answers.label`.
        """
        try:
            given = [
                {k: v.item() if hasattr(v, "item") else v for k, v in label.items()}
                for label in labels
            ]
        except AttributeError as error:
            raise InputError(
                "labels are dicts with request, row and label; see Answers.label"
            ) from error
        return self._post("/v1/labels", {"labels": given}, lambda said: read_record(Learned, said))

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
    ) -> Changed:
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
        seen = self.model(model).bundle if after is None else after
        asked = make_asked(add, ids, remove, relabel or {}) | {"why": why, "after": seen}
        return self._post(f"/v1/models/{_segment(model)}/changes", asked, read_changed)

    def changes(self, model: str) -> tuple[Entry, ...]:
        """What happened to a model's evidence, the first change first.

        Args:
            model: Its name.
        """
        return self._ask("GET", f"/v1/models/{_segment(model)}/changes", read_log)

    def reload(self) -> tuple[Reloaded, ...]:
        """Have the service load bundles that changed on disk; what became of each model."""
        return self._post(
            "/v1/reload", None, lambda said: tuple(read_record(Reloaded, m) for m in said["models"])
        )

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
                raise ServiceError(
                    f"not ready after {timeout:g} s: {reason}", reason.status, reason.retry_after
                ) from reason
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def close(self) -> None:
        """Close the connection of this thread; those of other threads close as these end."""
        self._connections.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def _why_not_ready(self) -> ServiceError | None:
        try:
            self._ask("GET", "/readyz", dict, retries=0)
        except ServiceError as error:
            import ssl  # loaded by now

            if error.status in (None, 503) and not isinstance(error.__cause__, ssl.SSLError):
                return error
            raise
        return None

    def _post(self, path: str, value: Any, read: Callable[[Any], T]) -> T:
        import json

        try:
            body = b"" if value is None else json.dumps(value).encode()
        except (TypeError, ValueError) as error:
            raise InputError(f"this has no form in JSON: {error}") from error
        return self._ask("POST", path, read, body, {"Content-Type": JSON})

    def _ask(
        self,
        method: str,
        path: str,
        read: Callable[[Any], T],
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        retries: int | None = None,
    ) -> T:
        """Send a request, again while the service is busy, and read the answer."""
        told = {"Accept": JSON, **(headers or {})}
        if self._token is not None:
            told["Authorization"] = f"Bearer {self._token}"
        for left in reversed(range(1 + (self._retries if retries is None else retries))):
            reply = self._connections.ask(method, path, body, told)
            wait = reply.retry_after
            if left and reply.status in BUSY and wait is not None and wait <= self._timeout:
                time.sleep(wait)
                continue
            break
        return read_reply(reply, read, self.url)


def _segment(name: str) -> str:
    """A name as part of a path."""
    if not isinstance(name, str) or name in ("", ".", ".."):
        raise InputError(f"the name of a model or a version is text; got {shown(name)}")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError as error:
        raise InputError(f"{shown(name)} cannot stand in a URL") from error
