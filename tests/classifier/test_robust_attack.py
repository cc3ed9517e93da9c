"""Certificates under attack: gradient descent looks for another IK, inside the radius and beyond.

The attacker knows everything: the network, the training samples, the rule. By projected gradient
descent (PGD) it moves each digit towards another class in every layer at once.
"""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from iknow import Assertion, BallWithNearest, EpistemicClassifier, Nearest, RelativeBall
from iknow.rules import Ball

LAYERS = ("input", "1")
STEPS = 40


@pytest.fixture(scope="module")
def digits():
    images, targets = load_digits(return_X_y=True)
    return train_test_split(
        (images / 16).astype(np.float32), targets, test_size=400, stratify=targets, random_state=0
    )


@pytest.fixture(scope="module")
def network(digits):
    train_x, _, train_y, _ = map(torch.as_tensor, digits)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    # Weight decay keeps the Lipschitz constants small, and so the certificates large.
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2, weight_decay=1e-3)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(train_x), train_y).backward()
        optimizer.step()
    return module.eval().requires_grad_(False)


def attack(network, train_x, train_y, x, belief, lengths, seed):
    """Yield the inputs of each step of PGD, each within its length of x.

    The loss falls as, in every layer, some other class (the one nearest at the start) comes near,
    and nearer than all the rest.
    """
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))
    trained = [train_x, network[:2](train_x)]
    start = torch.cdist(x, train_x).masked_fill(train_y == belief[:, None], torch.inf)
    is_target = train_y == train_y[start.argmin(dim=1)][:, None]
    delta = 0.1 * lengths[:, None] * noise / noise.norm(dim=1, keepdim=True)
    for step in range(STEPS):
        delta.requires_grad_(True)
        moved = x + delta
        loss = 0
        for values, stored in zip([moved, network[:2](moved)], trained, strict=True):
            wanted = distance_to_nearest(values, stored, is_target)
            rest = distance_to_nearest(values, stored, ~is_target)
            loss = loss + (wanted / wanted.detach() + (wanted - rest) / rest.detach()).sum()
        (gradient,) = torch.autograd.grad(loss, delta)
        size = lengths[:, None] * (0.3 if step < STEPS // 2 else 0.08)
        delta = delta - size * gradient / gradient.norm(dim=1, keepdim=True).clamp_min(1e-12)
        shrink = (lengths / delta.norm(dim=1).clamp_min(1e-12)).clamp_max(1)
        delta = (delta * shrink[:, None]).detach()
        yield (x + delta).numpy()


def distance_to_nearest(values, stored, allowed):
    """Distances of shape (n,) to the nearest of the allowed rows, a mask of shape (n, n_rows)."""
    with torch.no_grad():
        nearest = torch.cdist(values, stored).masked_fill(~allowed, torch.inf).argmin(dim=1)
    return (values - stored[nearest]).norm(dim=1).clamp_min(1e-6)


def find_violations(classifier, steps, belief):
    """The samples for which any step of an attack made another class IK."""
    steps = list(steps)
    after, before = classifier.assess(np.concatenate(steps)), np.tile(belief, len(steps))
    found = (after.assertion == Assertion.IK) & (after.belief_codes != before)
    # The certificate is about what is justified, whatever the model comes to believe.
    alone = after.justification.sum(axis=1) == 1
    found |= alone & ~after.justification[np.arange(len(before)), before]
    return found.reshape(len(steps), -1).any(axis=0)


RULES = {
    "Ball": Ball,
    "Nearest": Nearest,
    "BallWithNearest": BallWithNearest,
    "RelativeBall": RelativeBall,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_no_attack_within_the_robust_radius_makes_another_class_known(name, digits, network):
    train_x, test_x, train_y, test_y = digits
    classifier = EpistemicClassifier(network, LAYERS, RULES[name], k=3, progress=False)
    classifier.fit(train_x, train_y)
    if name == "Nearest":
        classifier.tune(test_x, test_y, coverage=0.9)
    elif name == "RelativeBall":
        classifier.set_params(rule={"input": RelativeBall(2.5, 1.2), "1": RelativeBall(9, 1.2)})
        classifier.fit(train_x, train_y)
    else:
        classifier.tune(test_x, test_y)
    assessment = classifier.assess(test_x)
    radii = assessment.robust_radius
    certified = radii > 0
    assert certified.sum() >= 300
    x = torch.as_tensor(test_x[certified])
    belief = assessment.belief_codes[certified]
    lengths = torch.as_tensor(radii[certified], dtype=torch.float32)

    def violations(factor, seed=0):
        steps = attack(
            network,
            torch.as_tensor(train_x),
            torch.as_tensor(train_y),
            x,
            torch.as_tensor(belief),
            factor * lengths,
            seed,
        )
        return int(find_violations(classifier, steps, belief).sum())

    # Rounding to float32 moves a sample of this size by less than a millionth.
    assert [violations(factor, seed) for seed, factor in enumerate((0.5, 0.9, 0.99999))] == [0] * 3
    # The same attack with more room does find what it looks for, or it would prove nothing.
    assert violations(6.0) > len(belief) / 4
