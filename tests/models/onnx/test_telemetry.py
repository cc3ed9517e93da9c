"""onnxruntime tells nobody that it is used."""

import os
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(("given", "writes"), [({}, False), ({"ORT_DISABLE_TELEMETRY": "0"}, None)])
def test_nothing_is_written_as_onnxruntime_is_imported(tmp_path, given, writes):
    code = "import os, iknow.models.onnx; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path)}
    environment = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment | home | given, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert said.stdout.strip() == given.get("ORT_DISABLE_TELEMETRY", "1")  # the user's word counts
    if writes is False:
        assert not list(tmp_path.rglob("*"))
