"""Keras 3 models, on any backend."""

from iknow.models.keras.model import KerasModel

__all__ = ["KerasModel"]
