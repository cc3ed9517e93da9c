"""The watch: levels of samples that nothing was fitted to, for an alarm to compare a stream with.

An alarm that keeps its word needs reference samples that are exchangeable with new ones, given the
path of levels: all are then draws of the same distribution, scored by the same function. That
function depends on the training samples and on those that laid the path, and on nothing else. The
level that was chosen on the path, and the classes that may be known, are applied to levels but do
not enter them. So these may be watched:

    an accuracy     the samples that certify. Those that choose lay the path, choose its variation
                    and the layers to leave out; of the others only the number counts
    false alarms    the samples that are ranked, as others lay the path
    a coverage      the validation samples, if other reference samples laid the path

and where the validation samples laid the path themselves, none.

One condition remains. Certifying may fail, and whether it does depends on the very samples that
would be watched. So the promise is about both steps together: for each way in which tuning may end
(a certificate, a fallback), the probability, over the draw of validation data and stream, that it
ends so and the alarm ever rings without drift is at most the alarm's rate.

At most 20,000 samples are kept, drawn without looking at them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.codes import NO_BELIEF
from iknow.core.text import names
from iknow.errors import InputError

MOST_WATCHED = 20_000


@dataclass(frozen=True, eq=False)
class Watch:
    """Scores of n reference samples that are exchangeable with new ones."""

    levels: Floats  # from 0 to 1, of shape (n,)
    layer_levels: Floats  # those in each layer alone, of shape (n, n_layers)
    belief: Ints  # class codes of shape (n,), -1 where there is no belief
    layers: tuple[str, ...]  # their names, in the order of the columns

    def __post_init__(self) -> None:
        n = len(self.levels)
        shapes = self.levels.shape, self.belief.shape, self.layer_levels.shape
        if not n or shapes != ((n,), (n,), (n, len(self.layers))):
            raise InputError(
                f"a watch needs levels (n,), beliefs (n,) and layer levels (n, {len(self.layers)}) "
                f"of at least one sample; got {', '.join(map(str, shapes))}"
            )
        for values in (self.levels, self.layer_levels):
            if not ((values >= 0) & (values <= 1)).all():
                raise InputError("the levels of a watch must lie between 0 and 1")
        if (self.belief < NO_BELIEF).any():
            raise InputError(f"the beliefs of a watch must be class codes or {NO_BELIEF}")

    def __len__(self) -> int:
        return len(self.levels)

    def columns(self, layers: Sequence[str]) -> Floats:
        """The layer levels in the order of `layers`, which must be the same ones."""
        if sorted(layers) != sorted(self.layers):
            raise InputError(
                f"the reference samples are about the layers {names(self.layers)}; asked for "
                f"{names(layers)}: give the watch of the same selection"
            )
        return self.layer_levels[:, [self.layers.index(layer) for layer in layers]]


def make_watch(
    levels: Floats, belief: Ints, layer_levels: Floats, layers: Sequence[str]
) -> Watch | None:
    """The watch of samples, at most `MOST_WATCHED`; None if there are no samples.

    The arguments are as `iknow.serve.monitor.watch_scores` returns them.
    """
    if not len(levels):
        return None
    if len(levels) > MOST_WATCHED:
        rows = np.sort(np.random.default_rng(0).choice(len(levels), MOST_WATCHED, replace=False))
        levels, belief, layer_levels = levels[rows], belief[rows], layer_levels[rows]
    return Watch(levels, layer_levels, np.asarray(belief, np.int64), tuple(layers))
