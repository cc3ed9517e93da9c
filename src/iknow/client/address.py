"""Addresses of services: what a URL must be, and where a token may go.

A token that travels without TLS can be read by everybody on the way. So it is sent to this machine
only, unless the caller says otherwise.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from iknow.core.text import shown
from iknow.errors import InputError

LOCAL_NAMES = ("localhost", "ip6-localhost")
DEFAULT_URL = "http://127.0.0.1:8000"
PORTS = {"http": 80, "https": 443}
PRINTABLE = re.compile(r"[!-~]+", re.ASCII)
"""What a token is made of: anything else would break the header that carries it."""


@dataclass(frozen=True)
class Address:
    """Where a service is. prefix: the path before its own paths, behind a proxy."""

    scheme: str
    host: str
    port: int
    prefix: str = ""

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"


def parse_address(url: str) -> Address:
    """The parts of a URL.

    Examples:
        >>> parse_address("https://knows.example/grid/").url
        'https://knows.example:443/grid'

    Raises:
        InputError: It is no http or https URL, or has parts that no service has.
    """
    expected = "the URL of a service looks like http://127.0.0.1:8000"
    if not isinstance(url, str):
        raise InputError(f"{expected}; got {shown(url)}")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InputError(f"{expected}; got {shown(url)}: {error}") from error
    if "@" in parts.netloc:  # never quoted: it holds a password
        raise InputError(f"{expected}, without a user or a password: give token= instead")
    if parts.scheme not in PORTS or not host or PRINTABLE.fullmatch(url) is None:
        raise InputError(f"{expected}; got {shown(url)}")
    if parts.query or parts.fragment:
        raise InputError(f"{expected}, without anything after ? or #; got {shown(url)}")
    chosen = PORTS[parts.scheme] if port is None else port
    return Address(parts.scheme, host, chosen, parts.path.rstrip("/"))


def check_token(token: str | None, address: Address, *, insecure: bool) -> None:
    """Refuse a token that cannot be sent, or that others could read on its way.

    Raises:
        InputError: Never with the token in its message.
    """
    if token is None:
        return
    if not isinstance(token, str) or PRINTABLE.fullmatch(token) is None:
        raise InputError("a token is text of visible ASCII characters without spaces")
    if address.scheme == "http" and not is_loopback(address.host) and not insecure:
        raise InputError(
            f"a token must not travel without TLS, and {address.url} has none: use https, or say "
            "insecure=True if nobody else listens on the way"
        )


def is_loopback(host: str) -> bool:
    """Whether only programs on the same machine reach an address.

    Examples:
        >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    if host.lower().rstrip(".") in LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
