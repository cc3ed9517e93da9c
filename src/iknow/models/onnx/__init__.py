"""ONNX graphs: any tensor inside is a layer, and onnxruntime computes it."""

from iknow.models.onnx.model import OnnxModel, PortableModel

__all__ = ["OnnxModel", "PortableModel"]
