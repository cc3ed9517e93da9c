"""`iknow serve` from the outside: what it refuses, and the demonstration from start to end."""

import json
import logging
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from typer.testing import CliRunner

from iknow.cli.app import app

pytest.importorskip("uvicorn")  # the extra `serve`


@pytest.fixture(autouse=True)
def same_log():
    """The command sends the service's log to stderr; other tests find it as it was."""
    log = logging.getLogger("iknow.serve")
    before = log.handlers[:], log.level, log.propagate
    yield
    log.handlers[:], log.propagate = before[0], before[2]
    log.setLevel(before[1])


@pytest.mark.parametrize("given", [[], ["--demo", "a.iknow"]])
def test_either_bundles_or_the_demonstration(given):
    result = CliRunner().invoke(app, ["serve", *given])
    assert result.exit_code == 2
    assert "give bundles, or --demo alone" in result.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--host", "0.0.0.0"], "there are no tokens"),
        (["--port", "1", "--host", "192.0.2.1", "--tokens", "TOKENS"], "cannot listen on"),
        (["--picture", "b=big"], "--picture takes NAME=28x28"),
        (["--picture", "other=8x8"], "which is not served"),
        (["--tokens", "missing.txt"], "missing.txt"),
        (["--alarm-rate", "2"], "between 0 and 1"),
    ],
)
def test_what_cannot_be_served_is_told_in_one_line(given, message, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("ann assess 0123456789abcdef")
    given = [str(tokens) if each == "TOKENS" else each for each in given]
    result = CliRunner().invoke(app, ["serve", "b=b.iknow", *given])
    assert result.exit_code == 1
    assert message in " ".join(result.stderr.split())
    assert "0123456789abcdef" not in result.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send")
def test_the_demonstration_serves_shows_how_to_ask_and_ends_cleanly():
    """Without a terminal; its commands are run as they are printed, by what curl would send."""
    command = [sys.executable, "-c", "from iknow.cli.app import app; app()", "serve", "--demo"]
    with subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        stdin=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        lines = []
        for line in process.stdout:
            lines.append(line.strip())
            if line.startswith("Ctrl-C"):
                break
        asked = [shlex.split(line) for line in lines if line.startswith("curl")]
        answers = [_ask(*words[1:]) for words in asked]
        assert [answer["assertion"] for answer in answers] == ["IK", "IDK"]
        told = [line for line in lines if "The answer is" in line]
        for answer, line in zip(answers, told, strict=True):
            assert f"says {answer['belief']}. The answer is {answer['assertion']}" in line
        (folder,) = {Path(line.split(": ")[1]).parent for line in lines if "The audit" in line}
        assert folder.exists()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
        assert "Traceback" not in process.stderr.read()
        assert not folder.exists()


def _ask(url, *options):
    header, body = (options[1 + options.index(name)] for name in ("-H", "-d"))
    request = Request(url, body.encode(), dict([header.split(": ")]))
    (answer,) = json.load(urlopen(request))["answers"]
    return answer
