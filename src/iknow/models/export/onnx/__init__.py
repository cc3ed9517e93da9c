"""Building and joining ONNX graphs."""
