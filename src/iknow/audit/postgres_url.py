"""The URL of a database in messages: without its password, and without parts of it.

A password with an @ or a / that was not escaped ends up in the name of the host or the database,
which a message of the server or its library may quote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from iknow.core.text import visible
from iknow.errors import AuditError

SECRETS = ("password", "sslpassword", "passfile", "sslkey")
SHORTEST = 3
"""Characters of the least part of a password that counts as secret."""
NOT_SHOWN = "it cannot be reached, or refuses us; its message quotes the password and is not shown"


def show(parts: Mapping[str, Any]) -> str:
    """The parts of a URL, as libpq names them, without what is secret.

    Examples:
        >>> show({"user": "me", "password": "secret", "host": "db", "dbname": "audit"})
        'postgresql://me@db/audit'
    """
    names = ("host", "port", "user", "dbname")
    host, port, user, database = (str(parts.get(name) or "") for name in names)
    if "@" in host + port + database:
        raise AuditError(
            "the URL of the journal has more than one @: write those of the password as %40"
        )
    at = f"{user}@{host}" if user else host
    return visible(f"postgresql://{at}{f':{port}' if port else ''}/{database}")


def hide(text: str, url: str, parts: Mapping[str, Any]) -> str:
    """A message, unless it holds something secret of the URL, whose parts these are.

    Examples:
        >>> hide("no host ret@db", "postgresql://me:sec@ret@db/audit", {"password": "sec"})
        'it cannot be reached, or refuses us; its message quotes the password and is not shown'
    """
    found = [str(parts[name]) for name in SECRETS if parts.get(name)]
    raw = re.match(r"\w+://[^/?]*?:(.*)@", url, re.DOTALL)
    if raw is not None:
        pieces = [raw[1], unquote(raw[1]), *re.split(r"[@:/?#]", raw[1])]
        found += [piece for piece in pieces if len(piece) >= SHORTEST]
    return NOT_SHOWN if any(secret in text for secret in found) else text
