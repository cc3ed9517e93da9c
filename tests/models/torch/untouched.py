"""What a reader of a torch module must not change."""

from contextlib import contextmanager

import torch


def state(module):
    """The mode and the hooks of each part, and all parameters and buffers."""
    parts = [
        (part.training, [*part._forward_hooks], [*part._forward_pre_hooks])
        for part in module.modules()
    ]
    tensors = [*module.parameters(), *module.buffers()]
    return parts, [(each.detach().clone(), each.requires_grad, each.grad) for each in tensors]


@contextmanager
def untouched(*modules):
    """What runs within leaves modules as they were."""
    before = [state(module) for module in modules]
    yield
    for module, (parts, tensors) in zip(modules, before, strict=True):
        found, others = state(module)
        assert found == parts
        for (value, wants, grad), (other, *said) in zip(tensors, others, strict=True):
            assert torch.equal(value, other)
            assert said == [wants, grad]
