"""A webhook: alarms go to another server, signed, and never at the service's expense.

`send` puts a payload into a bounded queue and returns at once. One thread takes them out in order
and posts each as JSON. If the queue is full, the oldest goes, and is counted: what happened last
matters most.

The receiver can tell that a payload comes from here, and is not an old one sent again: each attempt
carries its time and a signature,

    X-Iknow-Timestamp: 1767225600
    X-Iknow-Signature: v1=HMAC-SHA256(secret, timestamp + "." + body), in hex
    X-Iknow-Delivery: the same for all attempts at one payload, so that doubles can be told

Answers 2xx end it. Errors of the network, 408, 429 and 5xx are tried again, after twice as long
each time, at most `longest` seconds, shortened by up to half at random so that many senders do not
come back at once. Any other answer is final; a redirect is one, as a payload goes nowhere but to
its URL. An attempt ends after `timeout` seconds, even if the receiver drips bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import logging
import random
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import SplitResult, urlsplit

from iknow.core.scalars import as_real, as_whole
from iknow.core.text import name as visible_name
from iknow.errors import InputError
from iknow.version import __version__

log = logging.getLogger(__name__)

AGAIN = (408, 429)
"""Answers of a receiver that may do better later, besides 5xx."""


class Webhook:
    """Posts payloads to a URL from a thread of its own.

    Args:
        url: Where to, over http or https.
        secret: What signs the payloads; the receiver has it too.
        most: Payloads that wait at most.
        attempts: How often to try to deliver one.
        timeout: Seconds that an attempt may take.
        first: Seconds to wait after the first failed attempt.
        longest: Seconds to wait at most.
        clock: Gives the time in seconds since 1970.
        pause: Waits for some seconds, or until it returns for another reason. Default: until
            `close` gives up.
        chance: Gives random numbers from 0 to 1.
    """

    def __init__(
        self,
        url: str,
        secret: str | bytes,
        *,
        most: int = 1000,
        attempts: int = 8,
        timeout: float = 5.0,
        first: float = 0.5,
        longest: float = 60.0,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], Any] | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._target = _check_url(url)
        self._secret = secret.encode() if isinstance(secret, str) else bytes(secret)
        if not self._secret:
            raise InputError("a webhook needs a secret to sign with; got an empty one")
        self._most, self._attempts = (
            _at_least_one(most, "most"),
            _at_least_one(attempts, "attempts"),
        )
        self._timeout, self._first, self._longest = (
            as_real(value, what, "be a number > 0", lambda number: 0 < number < float("inf"))
            for value, what in ((timeout, "timeout"), (first, "first"), (longest, "longest"))
        )
        self._clock, self._chance = clock, chance
        self._gives_up = threading.Event()
        self._pause = self._gives_up.wait if pause is None else pause
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._counts = dict.fromkeys(("sent", "failed", "dropped", "retried"), 0)
        self._last_error = ""

    def __repr__(self) -> str:
        return f"Webhook({self.where!r})"

    @property
    def where(self) -> str:
        """The receiver without path and query, which may hold keys."""
        return visible_name(f"{self._target.scheme}://{self._target.netloc}")

    def send(self, payload: Mapping[str, Any]) -> None:
        """Put a payload into the queue; it never blocks. After `close` it is dropped.

        Raises:
            InputError: JSON cannot express it.
        """
        try:
            body = json.dumps(dict(payload), allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise InputError(f"a payload must be plain values for JSON: {error}") from error
        with self._changed:
            if self._closed:
                self._counts["dropped"] += 1
                return
            if len(self._waiting) >= self._most:
                self._waiting.popleft()
                self._counts["dropped"] += 1
            self._waiting.append((str(uuid.uuid4()), body))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
                self._thread.start()
            self._changed.notify()

    def status(self) -> dict[str, Any]:
        """Return how many payloads wait, were sent, failed or were dropped, and retries."""
        with self._changed:
            waiting = len(self._waiting)
            return {**self._counts, "waiting": waiting, "last_error": self._last_error}

    def close(self, limit: float = 5.0) -> None:
        """Deliver what waits, for `limit` seconds at most, and drop the rest."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join(limit)
            self._gives_up.set()
            thread.join(self._timeout if limit > 0 else 0)
        with self._changed:
            self._counts["dropped"] += len(self._waiting)
            self._waiting.clear()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._waiting or self._gives_up.is_set():
                    return
                delivery, body = self._waiting.popleft()
            outcome = "sent" if self._deliver(delivery, body) else "failed"
            with self._changed:
                self._counts[outcome] += 1

    def _deliver(self, delivery: str, body: bytes) -> bool:
        """Whether one of several attempts succeeds."""
        for attempt in range(self._attempts):
            problem, again = self._post(delivery, body)
            if not problem:
                return True
            with self._changed:
                self._last_error = problem
            if not again or attempt + 1 == self._attempts or self._gives_up.is_set():
                break
            with self._changed:
                self._counts["retried"] += 1
            delay = min(self._first * 2.0**attempt, self._longest)
            self._pause(delay * (1 - self._chance() / 2))
        log.warning("webhook: %s did not take a payload: %s", self.where, problem)
        return False

    def _post(self, delivery: str, body: bytes) -> tuple[str, bool]:
        """What went wrong, "" for nothing, and whether to try again."""
        target = self._target
        secure = target.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(target.hostname or "", target.port, timeout=self._timeout)
        late = threading.Event()
        limit = threading.Timer(self._timeout, _cut, [connection, late])
        limit.daemon = True
        limit.start()
        try:
            path = f"{target.path or '/'}{'?' if target.query else ''}{target.query}"
            connection.request("POST", path, body, self._headers(delivery, body))
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            return visible_name(f"{type(error).__name__}: {error}"), True
        finally:
            limit.cancel()
            connection.close()
        if late.is_set():  # half an answer, which http.client may take for a whole one
            return f"no whole answer within {self._timeout:g} s", True
        if 200 <= status < 300:
            return "", False
        return f"it answered {status}", status >= 500 or status in AGAIN

    def _headers(self, delivery: str, body: bytes) -> dict[str, str]:
        moment = str(int(self._clock()))
        return {
            "Content-Type": "application/json",
            "User-Agent": f"iknow/{__version__}",
            "X-Iknow-Timestamp": moment,
            "X-Iknow-Signature": f"v1={sign(self._secret, moment, body)}",
            "X-Iknow-Delivery": delivery,
        }


def sign(secret: bytes, timestamp: str, body: bytes) -> str:
    """The signature of a body at a time, in hex, as a receiver computes it to compare.

    Examples:
        >>> sign(b"secret", "1767225600", b"{}")[:16]
        'fa7eaa06bf97d781'
    """
    return hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def _check_url(url: str) -> SplitResult:
    expected = "a webhook's URL must be like https://host/path, without a user or a fragment"
    try:
        found = urlsplit(url)
        fits = found.scheme in ("http", "https") and found.hostname and found.port != 0
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{expected}: {error}") from error
    printable = isinstance(url, str) and url.isascii() and url.isprintable() and " " not in url
    if not fits or not printable or "@" in found.netloc or found.fragment:
        raise InputError(expected)  # which may hold keys, so it is not quoted
    return found


def _at_least_one(value: Any, what: str) -> int:
    number = as_whole(value, what, "be a whole number >= 1")
    if number < 1:
        raise InputError(f"{what} must be a whole number >= 1; got {number}")
    return number


def _cut(connection: http.client.HTTPConnection, late: threading.Event) -> None:
    """End a connection that takes too long, whatever it is waiting for."""
    late.set()
    with suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)
