"""The service: `iknow serve`, or `create_app` in a program of your own."""

from importlib import import_module
from typing import Any

__all__ = ["Settings", "create_app"]
_PLACES = {"Settings": "iknow.serve.settings", "create_app": "iknow.serve.http"}


def __getattr__(name: str) -> Any:  # worker processes need no HTTP
    if name not in _PLACES:
        raise AttributeError(f"module 'iknow.serve' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
