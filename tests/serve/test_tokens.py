from __future__ import annotations

import hmac
from contextlib import suppress
from pathlib import Path

import pytest

from iknow.errors import InputError
from iknow.serve.client import is_loopback
from iknow.serve.schema import Refusal
from iknow.serve.settings import Settings
from iknow.serve.tokens import ANYBODY, Tokens, read_tokens

GOOD = "grid assess,labels 0123456789abcdef\n# a comment\n\noperator admin fedcba9876543210\n"


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    path = tmp_path / "tokens"
    path.write_text(GOOD)
    return read_tokens(path)


def test_a_token_names_its_caller(tokens: Tokens) -> None:
    assert tokens.admit("Bearer 0123456789abcdef", "assess") == "grid"
    assert tokens.admit("bearer fedcba9876543210", "labels") == "operator"  # admin may everything
    assert Tokens().admit(None, "admin") == ANYBODY


@pytest.mark.parametrize(
    ("header", "scope", "status"),
    [
        (None, "assess", 401),
        ("", "assess", 401),
        ("Bearer", "assess", 401),
        ("Bearer wrong", "assess", 401),
        ("Basic 0123456789abcdef", "assess", 401),
        ("Bearer \udcff", "assess", 401),
        ("Bearer 0123456789abcdef", "admin", 403),
    ],
)
def test_others_are_refused(tokens: Tokens, header: str, scope: str, status: int) -> None:
    with pytest.raises(Refusal) as refused:
        tokens.admit(header, scope)
    assert refused.value.status == status
    assert "0123456789abcdef" not in str(refused.value)


@pytest.mark.parametrize(
    "header", [None, "Bearer wrong", "Bearer 0123456789abcdef", "Bearer fedcba9876543210"]
)
def test_all_digests_are_compared_always(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch, header: str | None
) -> None:
    compared = []
    compare = hmac.compare_digest

    def note(given: bytes, known: bytes) -> bool:
        compared.append(known)
        return compare(given, known)

    monkeypatch.setattr("iknow.serve.tokens.hmac.compare_digest", note)
    with suppress(Refusal):
        tokens.admit(header, "assess")
    assert compared == [token.digest for token in tokens.known]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no tokens"),
        ("name assess", "2 words"),
        ("name fly 0123456789abcdef", "scopes are"),
        ("name assess short", "can be guessed"),
        ("na/me assess 0123456789abcdef", "letters"),
        ("a assess 0123456789abcdef\na admin 0123456789abcdex", "twice"),
    ],
)
def test_a_file_that_cannot_be_used_says_why_and_no_secret(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as refused:
        read_tokens(path)
    assert "0123456789abcdef" not in str(refused.value)


def test_tokens_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IKNOW_TOKENS", "a assess 0123456789abcdef; b admin 0123456789abcdex")
    assert [token.name for token in read_tokens(None).known] == ["a", "b"]
    assert "0123456789abcdef" not in repr(read_tokens(None))


def test_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost")))
    others = ("0.0.0.0", "::", "10.0.0.1", "example.com", "", "localhost.evil.com", "127.0.0.1.x")
    assert not any(map(is_loopback, others))


@pytest.mark.parametrize(
    "wrong",
    [{"workers": 0}, {"most_rows": True}, {"timeout": 0}, {"timeout": None},
     {"timeout": float("nan")}, {"alarm_rate": 1}, {"most_waiting": 5, "most_rows": 6},
     {"retain_days": -1}],
)  # fmt: skip
def test_settings_are_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Settings(**wrong)  # type: ignore[arg-type]
