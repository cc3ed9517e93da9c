"""Torch: modules, TorchScript and torch.export programs, and their files."""

from iknow.models.torch.graph import GraphModel, load_module
from iknow.models.torch.model import TorchModel

__all__ = ["GraphModel", "TorchModel", "load_module"]
