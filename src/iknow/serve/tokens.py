"""Tokens: who may do what.

A token file has a line per token: a name, which the audit records, the scopes it grants, and the
token itself, which only the service and its owner know.

    grid-control  assess,labels  6f1c…
    operator      admin          93ab…

All tokens are compared by their digests, each in constant time and none left out, so that the time
an answer takes tells nothing about them.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from iknow.core.text import shown
from iknow.errors import InputError
from iknow.serve.schema import Refusal

SCOPES = ("assess", "labels", "admin")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
SHORTEST = 16
"""Characters of a token at least: shorter ones can be guessed."""
ANYBODY = "anonymous"
"""The caller, where no tokens are asked for."""
VARIABLE = "IKNOW_TOKENS"


@dataclass(frozen=True)
class Token:
    """One token: whose it is, what it permits, and the sha256 of its text."""

    name: str
    scopes: frozenset[str]
    digest: bytes = field(repr=False)


@dataclass(frozen=True)
class Tokens:
    """All tokens of a service; none means that nobody is asked for one."""

    known: tuple[Token, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.known)

    def admit(self, authorization: str | None, scope: str | None) -> str:
        """The name of the caller; a `Refusal`, 401 or 403, if the token does not grant the scope.

        authorization: the header, such as "Bearer 6f1c…". scope: None takes any token.
        """
        if not self.known:
            return ANYBODY
        kind, _, text = (authorization or "").partition(" ")
        given = hashlib.sha256(text.strip().encode("utf-8", "surrogateescape")).digest()
        found = None
        for token in self.known:  # all of them, always
            if hmac.compare_digest(given, token.digest):
                found = token
        if found is None or kind.lower() != "bearer":
            problem = "a token is needed: send the header 'Authorization: Bearer TOKEN' with one"
            raise Refusal(401, problem)
        if scope is not None and not {scope, "admin"} & found.scopes:
            has = f"the token of {found.name} has {', '.join(sorted(found.scopes))}"
            raise Refusal(403, f"this takes the scope {scope}; {has}")
        return found.name


def read_tokens(path: str | os.PathLike[str] | None) -> Tokens:
    """The tokens of a file, or of the environment variable IKNOW_TOKENS, whose lines may be parted
    by semicolons; none if there is neither.
    """
    if path is None:
        text, source = os.environ.get(VARIABLE, "").replace(";", "\n"), VARIABLE
    else:
        text, source = Path(path).read_text(encoding="utf-8"), str(path)
    lines = [(i, line.split()) for i, line in enumerate(text.splitlines(), 1)]
    tokens = [
        _parse(words, f"{source}, line {i}")
        for i, words in lines
        if words and not words[0].startswith("#")
    ]
    if path is not None and not tokens:
        raise InputError(f"{source} holds no tokens: expected lines such as 'name assess TOKEN'")
    names = [token.name for token in tokens]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InputError(f"{source} names {min(repeated)} twice: the audit could not tell them")
    return Tokens(tuple(tokens))


def _parse(words: list[str], where: str) -> Token:
    if len(words) != 3:  # never quoted: a part of it is secret
        expected = "a name, scopes with commas between them and a token"
        raise InputError(f"{where}: expected {expected}; got {len(words)} words")
    name, scopes, token = words[0], frozenset(words[1].split(",")), words[2]
    if not NAME.fullmatch(name):
        expected = "up to 64 letters, digits and . _ @ -"
        raise InputError(f"{where}: a name has {expected}; got {shown(name)}")
    if not scopes <= set(SCOPES):  # not quoted either: it may be the token
        raise InputError(f"{where}: scopes are {', '.join(SCOPES)}; {name} has others")
    if len(token) < SHORTEST:
        raise InputError(
            f"{where}: the token of {name} has {len(token)} characters, and fewer than {SHORTEST} "
            "can be guessed: make one with openssl rand -hex 32"
        )
    return Token(name, scopes, hashlib.sha256(token.encode()).digest())
