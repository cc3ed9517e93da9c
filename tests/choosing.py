"""The layers of a model that a classifier chooses if the user names none."""

from iknow.classifier.plan import choose_layers


def paper_layers(model, batch):
    """Names of the layers for the paper's rules."""
    return tuple(layer.name for layer in choose_layers(model.layers(batch), levels=False))


def level_layers(model, batch):
    """Names of the layers for levels."""
    return tuple(layer.name for layer in choose_layers(model.layers(batch), levels=True))
