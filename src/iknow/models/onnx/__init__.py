"""ONNX graphs: any tensor inside is a layer, and onnxruntime computes it."""

from iknow.models.onnx.model import OnnxModel
from iknow.models.onnx.portable import PortableModel

__all__ = ["OnnxModel", "PortableModel"]
