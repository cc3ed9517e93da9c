"""Hosts: which names and addresses lead nowhere but to this machine."""

from __future__ import annotations

import ipaddress

LOCAL_NAMES = ("localhost", "ip6-localhost")


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
