"""Models as users write them, and what loads those that cannot be stored as they are."""

from pathlib import Path

import numpy as np
import torch

from iknow import as_model


def make_network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


def load_network(folder):
    network = make_network()
    network.load_state_dict(torch.load(Path(folder) / "weights.pt", weights_only=True))
    return network


def load_keras(folder):
    import keras

    return keras.models.load_model(Path(folder) / "own.keras", compile=False)


class Named(torch.nn.Module):
    """Takes its inputs by name, as a transformer does, and returns its scores by name."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(20, 6)
        self.head = torch.nn.Linear(6, 2)

    def forward(self, input_ids, attention_mask):
        mask = attention_mask[..., None].float()
        pooled = (self.embedding(input_ids) * mask).sum(1) / mask.sum(1)
        return {"logits": self.head(pooled), "pooled": pooled}


def score(batch):
    return np.stack([-batch[:, 0], batch[:, 0], 0 * batch[:, 0]], axis=1)


def square(batch):
    return batch**2


def load_function(folder):
    return as_model(score, embed=square)


NOT_A_FUNCTION = 3
