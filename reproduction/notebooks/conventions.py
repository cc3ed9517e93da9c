"""What the notebooks show about the paper's experiments, which do not say it themselves."""

from __future__ import annotations

# The question, the notebook and its cell (from 0), and what the code there does.
CONVENTIONS = (
    ("initial weights", "all, 3 (series: 14)", "He-normal in every layer, biases 0"),
    (
        "optimizer",
        "blobs, 3; series, 14",
        "Adam at 0.001 with dense layers, at 0.0005 with convolutions",
    ),
    (
        "batch, epochs",
        "blobs, 3; series, 15",
        "2,048 and 50 with dense layers, 128 and 32 with convolutions",
    ),
    (
        "end of training",
        "blobs, 3; series, 15",
        "after the epochs; nothing stops it earlier, and the last weights are kept",
    ),
    ("padding", "series, 14", 'none: "valid"'),
    (
        "position of the ReLU",
        "blobs, 5; series, 17",
        "a layer of support is the output of the Keras layer, after its ReLU; "
        "the logits are before the softmax",
    ),
    (
        "support in a convolution",
        "`EC_Classifier_Ball_Tree.py`",
        "all positions and filters as one vector; the pooling is a layer of its own",
    ),
    (
        "scaling",
        "blobs, 2; series, 7",
        "of each feature; of a series, by one mean and one deviation over all training values",
    ),
    (
        "split",
        "series, 5",
        "40 of the 50 training charts of each class to train, 10 to validate, drawn without a seed",
    ),
    (
        "choice of ε",
        "series, 1 and 21",
        "the largest F_IK on validation data, by 55 evaluations of GPyOpt within bounds",
    ),
    (
        "labels in the support",
        "blobs, 5; series, 17",
        "the true labels of the training samples",
    ),
    (
        "data of the paper's figures",
        "plane, 1, 4 and 5",
        "two blobs in the plane, 10,000 samples, seed 0; support in the logits; "
        "four of the five radii of cell 5 are those of the paper's figure",
    ),
)
