"""Torch: modules, TorchScript and torch.export programs, and their files."""

from iknow.models.torch.exported import ExportedModel, load_module
from iknow.models.torch.model import TorchModel

__all__ = ["ExportedModel", "TorchModel", "load_module"]
