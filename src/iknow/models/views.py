"""Views: changes of an image that leave it what it is, such as a shift by one pixel.

A model that is right about an image is mostly as sure of the same image moved by a pixel; one that
is wrong often is not. So its confidence may be that of the class probabilities p_v averaged over
the image and some views of it, as log-odds, log(mean of p_v) - log(mean of 1 - p_v). Belief, scores
and activations stay those of the image, and what is proven of layers stays proven. Each view costs
one more pass of the model.

**Is a view harmless?** A mirror is to cats, not to traffic signs. The model knows: it answers a
harmless view as it answers the image, at least where it is sure. So `tune` leaves out a view with
fewer than `LEAST_AGREEMENT` answers alike on the half of the samples that the model is surest of.
That takes no labels, and samples that certify are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.level import log_odds
from iknow.core.text import names, shown
from iknow.errors import InputError
from iknow.models.inputs import count_samples, own_copy
from iknow.models.model import Model, Observation

LEAST_AGREEMENT = 0.93
CHANNELS = (1, 3, 4)

Change = Callable[[Any], Any]
Views = Mapping[str, Sequence[Change]]
"""What makes the views of a batch, by the name of the kind."""


def image_axes(batch: Any) -> tuple[int, int]:
    """The axes of height and width of a batch of images."""
    shape = tuple(getattr(batch, "shape", ()))
    kind = str(getattr(batch, "dtype", type(batch).__name__)).removeprefix("torch.")
    is_numeric = "float" in kind or kind == "uint8"  # other whole numbers stand for tokens
    axes = {3: (1, 2)}.get(len(shape), (0, 0))
    if len(shape) == 4:
        axes = (2, 3) if shape[1] in CHANNELS else (1, 2) if shape[3] in CHANNELS else (0, 0)
    if not is_numeric or axes == (0, 0) or min(shape[axis] for axis in axes) < 2:
        raise InputError(
            f"the views {names(NAMED)} change images: floats or uint8 of shape (n, height, width), "
            "or with 1, 3 or 4 channels before or after these axes; got "
            f"{kind} of shape {shape}: leave views= out, or give a function of a batch"
        )
    return axes


def _move(batch: Any, *, axis: int, by: int | None) -> Any:
    """The images moved by some pixels along height, 0, or width, 1, which repeats the edge; or
    turned around: None.
    """
    where = image_axes(batch)[axis]
    n = batch.shape[where]
    places = np.arange(n)[::-1].copy() if by is None else np.clip(np.arange(n) - by, 0, n - 1)
    return batch[(slice(None),) * where + (places,)]


def check_views(views: Views, batch: Any) -> None:
    """Refuse views that do not apply to a batch."""
    if any(NAMED.get(kind) is each for kind, each in views.items()):
        image_axes(batch)


NAMED: Views = {
    "shift": tuple(partial(_move, axis=axis, by=by) for axis in (0, 1) for by in (-1, 1)),
    "mirror": (partial(_move, axis=1, by=None),),
}


def read_views(given: Any) -> Views:
    """The views that a user asks for: names, functions, or several of these."""
    if isinstance(given, Mapping):
        return given
    found: dict[str, Sequence[Change]] = {}
    for each in (given,) if isinstance(given, str) or callable(given) else given:
        known = isinstance(each, str) and each in NAMED
        if not known and (not callable(each) or isinstance(each, type)):
            raise InputError(
                f"views must be some of {names(NAMED)}, or functions that return a changed batch; "
                f"got {shown(each)}"
            )
        name = each if known else getattr(each, "__name__", type(each).__name__)
        if name in found or (not known and name in NAMED):
            raise InputError(f"views need different names; got {shown(name)} twice")
        found[name] = NAMED[name] if known else (each,)
    return found


def with_views(model: Model, given: Any) -> Model:
    """A copy of a model, on the same network, whose confidence is averaged over views."""
    found = copy(model)
    found.views = read_views(given)
    return found


def names_to_store(views: Views) -> list[str]:
    """The names of views, by which `read_views` finds them again; no function can be stored."""
    if own := [name for name, each in views.items() if NAMED.get(name) is not each]:
        raise InputError(
            f"the view {names(own)} is a function, which no bundle can hold, as nothing in one may "
            f"run: use the views that have names, {names(NAMED)}"
        )
    return list(views)


def ask_views(model: Model, batch: Any, wanted: Collection[str]) -> dict[str, list[Observation]]:
    """What a model says about the views of a batch, by their kinds."""
    if missing := [name for name in wanted if name not in model.views]:
        raise InputError(
            f"the confidence is averaged over views, {names(missing)}, in which the model itself "
            "must run: give it, as_model(model, views=...), in place of its outputs"
        )
    found, n = {}, count_samples(batch)
    for name in wanted:
        batches = [change(own_copy(batch)) for change in model.views[name]]
        if any(count_samples(each) != n for each in batches):
            raise InputError(f"the view {name!r} must return as many samples as it gets, {n}")
        found[name] = [model.observe(each, ()) for each in batches]
    return found


def mean_confidence(odds: Floats) -> Floats:
    """The confidence averaged over passes, of shape (n,), from log-odds of shape (n_passes, n)."""
    yes, no = -np.logaddexp(0, -odds), -np.logaddexp(0, odds)
    mean = np.logaddexp.reduce(yes, axis=0) - np.logaddexp.reduce(no, axis=0)
    with np.errstate(over="ignore"):  # rounded, as `log_odds` is
        return np.asarray(mean.astype(np.float32).astype(np.float64))


@dataclass(frozen=True, eq=False)
class Heard:
    """The log-odds of the belief about n samples as they are and in views, and whether it stays.

    kinds: of each view, of length n_views. odds: of shape (1 + n_views, n), of the samples as they
    are first. agrees: of shape (n_views, n).
    """

    kinds: tuple[str, ...]
    odds: Floats
    agrees: Bools

    @classmethod
    def of(cls, seen: Observation, from_probabilities: bool) -> Heard:
        """What an observation with views says."""
        passes = [(kind, each) for kind, found in seen.views.items() for each in found]
        scores = (seen.scores, *(each.scores for _, each in passes))
        agrees = [each.belief == seen.belief for _, each in passes]
        return cls(
            tuple(kind for kind, _ in passes),
            np.stack([log_odds(each, seen.belief, from_probabilities) for each in scores]),
            np.array(agrees, dtype=bool).reshape(len(passes), len(seen)),
        )

    @classmethod
    def joined(cls, parts: list[Heard]) -> Heard:
        odds, agrees = ([getattr(each, name) for each in parts] for name in ("odds", "agrees"))
        return cls(parts[0].kinds, np.concatenate(odds, axis=1), np.concatenate(agrees, axis=1))

    def __getitem__(self, rows: Ints | slice) -> Heard:
        return replace(self, odds=self.odds[:, rows], agrees=self.agrees[:, rows])

    def agreement(self) -> dict[str, tuple[int, float]]:
        """By kind, the number of its views, and the least share of answers alike in any of them,
        among the half of the samples that the model is surest of as they are.
        """
        sure = self.odds[0] >= np.median(self.odds[0])
        found = dict[str, tuple[int, float]]()
        for kind, share in zip(self.kinds, self.agrees[:, sure].mean(axis=1).tolist(), strict=True):
            n, least = found.get(kind, (0, 1.0))
            found[kind] = n + 1, min(least, share)
        return found

    def confidence(self, kinds: Collection[str]) -> Floats:
        """The confidence over the samples as they are and their views of some kinds, (n,)."""
        taken = [True, *(each in kinds for each in self.kinds)]
        return mean_confidence(self.odds[taken])
