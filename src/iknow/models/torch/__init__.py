"""Torch: modules, TorchScript and torch.export programs, and their files."""

from iknow.models.torch.model import GraphModel, TorchModel, load_module

__all__ = ["GraphModel", "TorchModel", "load_module"]
