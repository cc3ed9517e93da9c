"""ONNX graphs: any tensor inside is a layer, and onnxruntime computes it."""

from iknow.models.onnx.model import OnnxModel

__all__ = ["OnnxModel"]
