"""A server process: `python -m benchmarks.service.serve '{"timeout": 2}'`; ends with its input.

It prints the port as soon as it listens. Its settings are those of `Settings`, as JSON.
"""

from __future__ import annotations

import json
import logging
import sys

from benchmarks.service.small import all_models, digits
from iknow.service.served import serve_classifier
from iknow.service.service import Service
from iknow.service.settings import Settings
from iknow.service.uvicorn import Address, run


def main(settings: str, only: str = "all") -> None:
    logging.basicConfig(level=logging.WARNING)
    models = all_models() if only == "all" else {"digits": digits()[0]}
    served = [serve_classifier(name, each) for name, each in models.items()]
    service = Service(served, Settings(**json.loads(settings)))
    run(service, Address(port=0), on_listening=lambda url: print(url, flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
