"""Torch: modules, TorchScript and torch.export programs, and their files."""

from iknow.models.torch.exported import ExportedModel
from iknow.models.torch.files import load_module
from iknow.models.torch.model import TorchModel

__all__ = ["ExportedModel", "TorchModel", "load_module"]
