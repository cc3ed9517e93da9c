"""The bare model behind HTTP, without assertions: what knowing is compared with.

The same uvicorn, the same parser of JSON, the same onnxruntime; written as one would write it who
wants it fast. `python -m benchmarks.service.fastapi MODEL.onnx` prints its port.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from io import BytesIO

import numpy as np
import onnxruntime
from fastapi import FastAPI, Request, Response
from pydantic_core import from_json, to_json
from uvicorn import Config, Server
from uvloop import new_event_loop


def make_app(model: str) -> FastAPI:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    app = FastAPI()

    @app.get("/readyz")
    async def ready() -> Response:
        return Response(b"{}", media_type="application/json")

    @app.post("/predict")
    async def predict(request: Request) -> Response:
        body = await request.body()
        if request.headers.get("Content-Type") == "application/x-npy":
            rows = np.load(BytesIO(body), allow_pickle=False)
        else:
            rows = np.array(from_json(body)["rows"], dtype=np.float32)
        (scores,) = session.run(None, {"rows": rows.astype(np.float32, copy=False)})
        labels, best = scores.argmax(axis=1).tolist(), scores.max(axis=1).tolist()
        answers = [
            {"belief": label, "score": score} for label, score in zip(labels, best, strict=True)
        ]
        return Response(to_json({"answers": answers}), media_type="application/json")

    return app


def main(model: str) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    config = Config(make_app(model), log_config=None, access_log=False)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(Server(config).serve([listening]))


if __name__ == "__main__":
    main(*sys.argv[1:])
