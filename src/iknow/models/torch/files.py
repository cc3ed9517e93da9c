"""Files of torch: whole modules, TorchScript and torch.export programs."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from iknow.errors import InputError

EXPORTED = ".pt2"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch.export from logging the traceback of an error that it also raises."""
    log = logging.getLogger("torch.export")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def load_module(path: str | os.PathLike[str]) -> Any:
    """A whole module saved by torch.save, TorchScript, or a .pt2 file of torch.export.

    Such a file can run code: load only what you trust.
    """
    try:
        if os.fspath(path).lower().endswith(EXPORTED):
            with _quiet():
                return torch.export.load(path)
        with warnings.catch_warnings():
            # torch.load hands TorchScript on to torch.jit.load, and says that it does.
            warnings.filterwarnings("ignore", "'torch.load' received a zip file that looks like")
            warnings.filterwarnings("ignore", r"`torch\.jit\.", DeprecationWarning)
            module = torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:  # a pickle may raise anything
        raise InputError(f"{path} cannot be loaded as a torch module: {error}") from error
    if not isinstance(module, nn.Module):
        raise InputError(
            f"{path} holds {type(module).__name__}, not a module: save the whole module with "
            "torch.save(module, path), or name code that builds it as package.module:function"
        )
    return module
