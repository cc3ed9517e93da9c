"""The key of the chain, a secret that is kept apart from the journal.

It comes from the environment: IKNOW_AUDIT_KEY holds it, or IKNOW_AUDIT_KEY_FILE names the file
that does. Without a key anybody who can write to the journal can compute its hashes anew.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from iknow.errors import AuditError

KEY, KEY_FILE = "IKNOW_AUDIT_KEY", "IKNOW_AUDIT_KEY_FILE"
SHORTEST, LONGEST = 16, 1 << 16


def read_key(environment: Mapping[str, str] = os.environ) -> bytes | None:
    """The key, if there is one. Line breaks and spaces around it do not count."""
    text, file = environment.get(KEY), environment.get(KEY_FILE)
    if text and file:
        raise AuditError(f"the key comes from {KEY} or from {KEY_FILE}: set one of them, not both")
    if file:
        try:
            with Path(file).open("rb") as opened:
                return check_key(opened.read(LONGEST + 1).strip(), KEY_FILE)
        except (OSError, ValueError) as error:  # ValueError: a NUL in its name
            raise AuditError(f"the file of {KEY_FILE} cannot be read: {error}") from error
    return check_key(text.strip().encode("utf-8", "surrogateescape"), KEY) if text else None


def check_key(key: bytes, source: str = "key") -> bytes:
    """A key that nobody guesses; the message does not quote it."""
    if not isinstance(key, bytes) or not SHORTEST <= len(key) <= LONGEST:
        raise AuditError(
            f"{source} must hold at least {SHORTEST} bytes and no more than {LONGEST:,}: make one "
            "with `openssl rand -hex 32`"
        )
    return key
