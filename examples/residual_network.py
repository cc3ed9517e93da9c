"""A residual network and a DataLoader: which digits does it know?

A small residual network learns the digits 0 to 7 of scikit-learn's 8×8 images. Then iknow reads it
as it is, from the same kind of loaders that trained it: `fit` collects the evidence, `tune` chooses
what counts as near on digits the network has not seen, `assess` says IK, IMK or IDK. The layers are
found by running a batch: the input, and the vector that enters the last linear layer.

The network never saw an 8 or a 9, nor a negative or an overexposed image. It has to call them
something; iknow should not know them.

    python examples/residual_network.py
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from iknow import Assertion, EpistemicClassifier, evaluate

SEEN = 8  # digits 0 to 7


class Block(nn.Module):
    """Two convolutions and a shortcut around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut = nn.Sequential(
            nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
        )

    def forward(self, x: Tensor) -> Tensor:
        inside = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(inside + self.shortcut(x))


class ResidualNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(1, 16, 1), Block(16, 32, 2))
        self.fc = nn.Linear(32, SEEN)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.fc(self.blocks(x).mean(dim=(2, 3)))
        return scores


def load_parts() -> tuple[TensorDataset, TensorDataset, TensorDataset, Tensor]:
    """Training, validation and test digits from 0 to 7; and all 8s and 9s."""
    images, digits = load_digits(return_X_y=True)
    X = torch.from_numpy(images / 16).float().reshape(-1, 1, 8, 8)
    y = torch.from_numpy(digits)
    seen = y < SEEN
    order = torch.randperm(int(seen.sum()), generator=torch.Generator().manual_seed(0))
    parts = order.split([700, 400, len(order) - 1100])
    train, validation, test = (TensorDataset(X[seen][rows], y[seen][rows]) for rows in parts)
    return train, validation, test, X[~seen]


def train_network(data: TensorDataset) -> nn.Module:
    torch.manual_seed(0)
    network = ResidualNetwork()
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(8):
        for images, digits in DataLoader(data, batch_size=64, shuffle=True):
            loss = nn.functional.cross_entropy(network(images), digits)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network.eval()


def main() -> dict[str, float]:
    train, validation, test, strangers = load_parts()
    network = train_network(train)

    ec = EpistemicClassifier(network, progress=False)
    ec.fit(DataLoader(train, batch_size=128))
    ec.tune(DataLoader(validation, batch_size=128))
    assessment = ec.assess(DataLoader(test, batch_size=128))

    print(f"layers: {', '.join(ec.layers_)}\n")
    print(evaluate(assessment, test.tensors[1].numpy()))

    images, truth = test.tensors[0], test.tensors[1].numpy()
    known = np.asarray(assessment.assertion == Assertion.IK)
    right = np.asarray(assessment.belief == truth)
    found = {
        "coverage": float(known.mean()),
        "accuracy on IK": float(right[known].mean()),
        "accuracy elsewhere": float(right[~known].mean()),
    }
    # The usual alternative: a threshold on the softmax, with the same coverage of the test digits.
    threshold = np.quantile(confidence(network, images), 1 - known.mean())
    print("\nimages it should not know          IK   softmax above the same coverage")
    for name, strange in {
        "8s and 9s, never seen": strangers,
        "photographic negatives": 1 - images,
        "three times too bright": 3 * images,
    }.items():
        accepted = np.asarray(ec.assess(strange).assertion == Assertion.IK).mean()
        passed = (confidence(network, strange) > threshold).mean()
        print(f"{name:30} {accepted:6.1%}   {passed:6.1%}")
        found[f"IK: {name}"], found[f"softmax: {name}"] = float(accepted), float(passed)
    return found


def confidence(network: nn.Module, images: Tensor) -> np.ndarray:
    """The largest softmax for each image, of shape (n,)."""
    with torch.no_grad():
        return network(images).softmax(dim=1).amax(dim=1).numpy()


if __name__ == "__main__":
    main()
