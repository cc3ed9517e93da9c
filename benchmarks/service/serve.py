"""A server process: `python -m benchmarks.service.serve '{"timeout": 2}' small`, or with a bundle.

It prints its URL as soon as it listens. Its settings are those of `Settings`, as JSON.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from iknow.serve.served import BundleSource, ServedModel, serve_classifier
from iknow.serve.server import Address, run
from iknow.serve.service import Service
from iknow.serve.settings import Settings


def main(settings: str, what: str = "small") -> None:
    logging.basicConfig(level=logging.ERROR)
    models: list[BundleSource | ServedModel] = [BundleSource(Path(what))]
    if what == "small":
        from benchmarks.service.small import all_models

        models = [serve_classifier(name, each) for name, each in all_models().items()]
    service = Service(models, Settings(**json.loads(settings)))
    run(service, Address(port=0), on_listening=lambda url: print(url, flush=True))


if __name__ == "__main__":  # worker processes import this file too
    main(*sys.argv[1:])
