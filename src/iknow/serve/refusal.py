"""Refusal: an answer that the service does not give; see `iknow.serve.schema`."""

from iknow.serve.schema import Refusal

__all__ = ["Refusal"]
