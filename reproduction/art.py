"""The Basic Iterative Method, by the Adversarial Robustness Toolbox."""

from __future__ import annotations

from art.attacks.evasion import BasicIterativeMethod
from art.estimators.classification import PyTorchClassifier
from torch import nn

from iknow.core.arrays import Floats32
from iknow.core.rule import Limits
from reproduction.setups import Attack


def attack_inputs(
    network: nn.Module, X: Floats32, n_classes: int, attack: Attack, limits: Limits | None
) -> Floats32:
    """Change every value of X, of shape (n, ...), by at most the radius, to change the answers.

    The attack moves the network away from its own answer, not from y_true: that is what the toolbox
    does without labels. So a wrong answer can become right.
    """
    on_gpu = next(network.parameters()).is_cuda
    network.eval().requires_grad_(False)  # we need gradients of the inputs only
    classifier = PyTorchClassifier(
        network,
        loss=nn.CrossEntropyLoss(),
        input_shape=X.shape[1:],
        nb_classes=n_classes,
        clip_values=limits,
        device_type="gpu" if on_gpu else "cpu",
    )
    method = BasicIterativeMethod(
        classifier,
        eps=attack.radius,
        eps_step=attack.step,
        max_iter=attack.iterations,
        batch_size=256,
        verbose=False,
    )
    changed: Floats32 = method.generate(X)
    return changed
