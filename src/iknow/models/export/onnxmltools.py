"""The tree libraries: xgboost, lightgbm and catboost, alone or at the end of a pipeline.

onnxmltools compares in single precision and gives no leaves, so the trees are read from the
libraries' own dumps (`xgboost`, `lightgbm`, `catboost` in this folder).
"""

from iknow.models.export.estimator import to_onnx

__all__ = ["to_onnx"]
