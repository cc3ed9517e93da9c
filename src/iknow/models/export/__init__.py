"""Export: a model and its chosen layers as one ONNX graph."""
