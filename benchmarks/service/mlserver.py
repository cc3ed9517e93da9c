"""MLServer with the same bare model, where it is installed in an environment of its own.

IKNOW_MLSERVER names its program, such as /opt/mlserver/bin/mlserver. It is asked by the Open
Inference Protocol, the only one that it speaks.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.service.process import Server

VARIABLE = "IKNOW_MLSERVER"
RUNTIME = """
import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse

class Bare(MLModel):
    async def load(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(self.settings.parameters.uri, options)
        return True

    async def predict(self, payload):
        rows = NumpyCodec.decode_input(payload.inputs[0])
        scores = self.session.run(None, {"rows": rows})[0]
        outputs = [NumpyCodec.encode_output("belief", scores.argmax(axis=1)),
                   NumpyCodec.encode_output("score", scores.max(axis=1))]
        return InferenceResponse(model_name=self.name, outputs=outputs)
"""


@contextmanager
def running_mlserver(model: Path) -> Iterator[Server | None]:
    """A server, ready; None where it is not installed."""
    program = os.environ.get(VARIABLE)
    if program is None:
        yield None
        return
    ports = [_free_port() for _ in range(3)]
    settings = {"http_port": ports[0], "grpc_port": ports[1], "metrics_port": ports[2],
                "host": "127.0.0.1", "parallel_workers": 0, "debug": False}  # fmt: skip
    described = {"name": "mnist", "implementation": "runtime.Bare",
                 "parameters": {"uri": str(model)}}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "runtime.py").write_text(RUNTIME)
        Path(folder, "settings.json").write_text(json.dumps(settings))
        Path(folder, "model-settings.json").write_text(json.dumps(described))
        environment = {**os.environ, "PYTHONPATH": folder}
        with open(Path(folder, "log"), "wb") as log:
            process = subprocess.Popen(
                [program, "start", folder], env=environment, stdout=log, stderr=log, text=True
            )
            server = Server(process, ports[0])
            try:
                server.await_ready("/v2/health/ready")
                yield server
            finally:
                process.terminate()
                process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
