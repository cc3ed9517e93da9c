"""The words of the page."""

from __future__ import annotations

from reproduction.notebooks.settings import Trial

INTRODUCTION = (
    "The authors of the paper publish [notebooks]"
    "(https://github.com/GE-Research-Machine-Learning/Epistemic-Classifier) that print the figures "
    "of other experiments than the paper's. `python -m reproduction notebooks` rebuilds their "
    "settings with our own code: the data, the network, its training, the layers and the rules. "
    "Nothing is tuned to fit."
)
BANNER = "**A quick run with two seeds.**"
LEGEND = (
    "Each cell: the printed figure, which is that of one network, then our mean ± standard "
    "deviation over {n_seeds} networks. ✓: they agree (within 0.05, or within two standard "
    "deviations); ✗: they do not; in brackets: not counted, as the group holds fewer than 1% of "
    "the samples. F_IMK, F_IDK and A_IMK are the fractions of IMK and IDK, and the accuracy of IMK."
)
ABOUT = {
    "series": (
        "SyntheticControl, 240 charts to train and 60 to validate, then cut into all windows of 55 "
        "values: 1,440, 360 and 1,800 for the test. Three convolutions and pooling, He-normal "
        "weights, Adam at 0.0005, batches of 128, 32 epochs; support in the third convolution and "
        "in the pooling. The paper's own fractions are all multiples of 1/300: it did not cut.\n\n"
        "The printed network learned more slowly than ours and reaches its largest F_IK at smaller "
        "radii. The scale of a layer differs from network to network, so a radius chosen for one "
        "says little about another: at fixed radii many figures disagree, while those of k-NN and "
        "of radii chosen for the network itself agree."
    ),
    "blobs": (
        "Five blobs of scikit-learn's in 15 dimensions, 6,700 samples to train and 3,300 to test. "
        "Dense layers of 10, 8, 6 and 5, He-normal weights, Adam at 0.001, batches of 2,048, 50 "
        "epochs; support in all four. That is 200 steps, after which networks still differ much: "
        "one that is right on less than 0.95 starts again. Above each figure the notebook prints "
        "other numbers than it uses: these are the ones it uses. `Sample_code_ball_tree` is the "
        "same setting with another network; its accuracy is 0.999, and its figures are pictures."
    ),
    "plane": (
        "Two blobs of scikit-learn's in the plane, the same network, support in the logits. The "
        "notebook prints the accuracy alone, and plots F_IK against the radius, with noise 0.5. It "
        "seems to be the paper's figure: it draws augmented confusion matrices at the paper's four "
        "radii and one more. The paper's text gives the largest F_IK with noise 0.5 and 1.5; ours "
        "is the largest at the notebook's 30 radii, on the test part."
    ),
}
STRETCHED = (
    "Theirs is the largest singular value of the product of the matrices, as in the paper's "
    "supplement. With ReLUs between the matrices it is no bound; the product of their largest "
    "singular values is one."
)
HEADINGS = ("F_IK", "A_IK", "F_IMK", "A_IMK", "F_IDK")
KINDS = {
    "network": "the network",
    "k": "k of each layer",
    "radii": "radius of each layer",
    "stretched": "radius of the input, stretched by the weights",
    "chosen": "radii chosen on validation data",
    "curve": "the curve's maximum",
}


def describe(trial: Trial) -> str:
    """The parameters of a trial."""
    return ", ".join(f"{number:.4g}" for number in trial.numbers)
