"""The drift alarm: rings when the stream is no longer like the reference samples.

Scores are levels (`iknow.core.level`): how ordinary a prediction is. Each is ranked among all
scores before it, and a gambler bets against uniform ranks (`iknow.serve.monitor.martingale`), for
all samples, for each layer and for each class.

Rules without levels leave the assertion as the score: IDK is 0, IMK 1/2 and IK 1, and in a layer
the assertion that it alone would make. An INVALID sample scores 0. Validation data holds none, so a
stream with INVALID samples is unlike it, and a few of them are evidence of a change.

The promise: if reference and stream are exchangeable, the probability that ANY detector EVER rings
is at most `rate`, however long the stream and however often one looks. It is exact for any number
of reference samples and any distribution of levels, ties included.

What breaks it: reference samples unlike any stream, such as training samples, or those that laid
the path of levels; a stream whose samples depend on each other, such as the frames of a film.
`reset` spends `rate` once more. Without reference samples the stream is compared with its own
beginning.

A detector rings once, and the alarm stays on until `reset`. One detector watches all samples, one
each layer's own levels, and one each class, the samples believed to be of it. They see the same
samples and bet at different speeds, so the average of their capitals is no martingale. Instead
detector d rings at 1 / (rate · w_d), where the weights w_d add up to 1: by Ville's inequality it
ever does so with probability rate · w_d at most, and by the union bound ANY of them ever does with
probability `rate` at most. One half of the weight is for all samples together, one quarter for the
layers and one quarter for the classes, in equal parts.

Samples without a belief belong to no class. They go to one pool more, which never rings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Annotated, Any, Literal, Self

import numpy as np
from msgspec import Meta

from iknow.core.arrays import Floats, Ints
from iknow.core.codes import NO_BELIEF
from iknow.core.text import as_whole, shown
from iknow.core.text import name as visible_name
from iknow.errors import InputError
from iknow.explain.assessment import Assessment
from iknow.selection.record import from_plain, to_plain
from iknow.selection.watch import Watch
from iknow.serve.monitor.gamblers import Alarm, Gamblers, as_rate, check_state, tell_evidence
from iknow.serve.monitor.martingale import (
    N_BINS,
    as_evidence,
    bet,
    draw_ties,
    find_bins,
    rank_in_turn,
)

OVERALL, LAYERS, CLASSES = 0.5, 0.25, 0.25
SUSPICIOUS = 10.0  # evidence at which a class or a layer is named as one that may have moved
AT_ONCE = 256  # samples ranked together: the pairs among them take memory


@dataclass(frozen=True)
class Detector:
    """What one detector has seen.

    Attributes:
        kind: "overall", "class" or "layer".
        name: The label of the class, or the layer; "" for overall.
        reference: Number of reference samples.
        samples: Number of samples of the stream, of this class for a class.
        evidence: The capital now: 1 for none, 100 is seen once in a hundred streams without drift.
        log2_evidence: Its logarithm to base 2.
        highest: The highest evidence so far.
        threshold: The evidence at which it rings.
        alarmed_at: The number of the sample at which it rang; None if it did not.
    """

    kind: str
    name: str
    reference: int
    samples: int
    evidence: float
    log2_evidence: float
    highest: float
    threshold: float
    alarmed_at: int | None


@dataclass(frozen=True)
class DriftReport:
    """The state of an alarm.

    Attributes:
        samples: Number of samples seen since the last reset.
        reference: Number of reference samples; 0 if the stream is compared with its own beginning.
        rate: The promised bound on the probability that any detector ever rings without drift.
        resets: How often the alarm was reset; each reset spends the rate once more.
        alarms: Those that rang since the last reset, in order.
        detectors: All of them: overall, then layers, then classes.
    """

    samples: int
    reference: int
    rate: float
    resets: int
    alarms: tuple[Alarm, ...]
    detectors: tuple[Detector, ...]

    @property
    def alarmed(self) -> bool:
        """Whether any detector rang since the last reset."""
        return bool(self.alarms)

    @property
    def note(self) -> str:
        """What limits the alarm, in words; "" for nothing."""
        if self.reference:
            return ""
        return (
            "there are no reference samples, so the stream is compared with its own beginning, and "
            "a change before its first sample cannot be seen"
        )

    def suspects(self, kind: str) -> tuple[Detector, ...]:
        """The detectors of a `kind`, "class" or "layer", that may have moved, the surest first.

        Those that rang, and those whose evidence once reached 10. Only the former are covered by
        the promised rate.
        """
        found = [
            each
            for each in self.detectors
            if each.kind == kind and (each.alarmed_at is not None or each.highest >= SUSPICIOUS)
        ]
        return tuple(sorted(found, key=lambda each: -each.highest))

    def sentences(self) -> list[str]:
        """What there is to say, in words."""
        said = [f"{alarm}" for alarm in self.alarms]
        if not said:
            highest = max(each.highest / each.threshold for each in self.detectors)
            said = [
                f"no drift in {self.samples:,} samples: at most {highest:.1%} of what an alarm "
                "takes"
            ]
        for kind, what in (("class", "classes"), ("layer", "layers")):
            if self.alarmed and (named := self.suspects(kind)):
                told = [f"{each.name} ({tell_evidence(each.highest)})" for each in named[:10]]
                said.append(f"{what} that may have moved, with their evidence: {', '.join(told)}")
        return [*said, self.note] if self.note else said


@dataclass(eq=False)
class DriftState:
    """The whole state of an alarm. reference, counts: of the scores by pool, in their bins."""

    format: Literal[1]
    classes: tuple[str, ...]
    layers: tuple[str, ...]
    rate: float
    resets: Annotated[int, Meta(ge=0)]
    generator: dict[str, Any]
    reference: Ints
    counts: Ints
    gamblers: Gamblers


class DriftAlarm:
    """Rings when samples are no longer like the reference samples, and says where.

    Args:
        watch: The reference samples, `selection_.watch`; None compares the stream with its own
            beginning.
        classes: Labels of shape (n_classes,), in the order of belief codes.
        layers: Names of the layers, in the order of the columns of `layer_levels`.
        rate: The probability that any detector ever rings without drift, at most.
        seed: For the random order of equal scores.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> alarm = DriftAlarm(None, classes=["a", "b"], layers=["input"], rate=0.01)
        >>> def feed(levels):
        ...     codes = rng.integers(0, 2, len(levels))
        ...     return alarm.update(levels, codes, levels[:, None])
        >>> feed(rng.random(500))
        ()
        >>> feed(rng.random(500) ** 4)[0].kind
        'overall'
    """

    def __init__(
        self,
        watch: Watch | None,
        classes: Sequence[Any],
        layers: Sequence[str],
        rate: float = 0.01,
        seed: int = 0,
    ) -> None:
        self.rate = as_rate(rate)
        known, named = tuple(map(str, classes)), tuple(map(str, layers))
        if not known or not named:
            raise InputError("an alarm needs at least one class and one layer")
        by_layer = [("layer", visible_name(each)) for each in named]
        by_class = [("class", visible_name(each)) for each in known]
        self._names, self._n_layers = [("overall", ""), *by_layer, *by_class], len(named)
        self._codes = range(NO_BELIEF, len(known))
        parts = ((OVERALL, 1), (LAYERS, len(named)), (CLASSES, len(known)))
        shares = [np.full(count, self.rate * weight / count) for weight, count in parts]
        self._thresholds = np.append(1 / np.concatenate(shares), np.inf)
        self._generator = np.random.default_rng(as_whole(seed, "seed", "be a whole number >= 0", 0))
        self._lock = Lock()
        # One pool for each detector, and one for samples without a belief.
        n_pools = len(self._thresholds)
        reference: Ints = np.zeros((n_pools, N_BINS), dtype=np.int64)
        if watch is not None:
            pools_and_bins = self._place(watch.levels, watch.belief, watch.columns(named))
            np.add.at(reference, pools_and_bins, 1)
        begun = reference.copy(), Gamblers.begin(n_pools)
        self._state = DriftState(1, known, named, self.rate, 0, {}, reference, *begun)

    @property
    def alarmed(self) -> bool:
        """Whether any detector rang since the last reset."""
        return bool(self._state.gamblers.rang)

    def update(self, level: Any, belief: Any, layer_levels: Any) -> tuple[Alarm, ...]:
        """Take in n samples in the order of their arrival; how they are batched changes nothing.

        Args:
            level: Levels of shape (n,), from 0 to 1; `watch_scores` finds all three.
            belief: Class codes of shape (n,), -1 where there is no belief.
            layer_levels: Levels by layer, of shape (n, n_layers).

        Returns:
            The alarms that these samples set off.
        """
        pools, bins = self._place(level, belief, layer_levels)
        with self._lock:
            before = len(self._state.gamblers.rang)
            for first in range(0, len(bins), AT_ONCE):
                part = slice(first, first + AT_ONCE)
                self._advance(pools[part], bins[part])
            return self._alarms()[before:]

    def reset(self) -> None:
        """Start anew beside the same reference, with the `rate` to spend once more."""
        with self._lock:
            state = self._state
            state.resets += 1
            state.counts = state.reference.copy()
            state.gamblers = Gamblers.begin(len(state.counts))

    def report(self) -> DriftReport:
        """Return what each detector has seen."""
        with self._lock:
            held, known = self._state.reference.sum(axis=1).tolist(), self._state.gamblers
            detectors = tuple(
                Detector(
                    *name,
                    reference=held[pool],
                    samples=int(known.seen[pool]),
                    evidence=as_evidence(known.now[pool]),
                    log2_evidence=float(known.now[pool]),
                    highest=as_evidence(known.highest[pool]),
                    threshold=float(self._thresholds[pool]),
                    alarmed_at=int(known.rang_at[pool]) or None,
                )
                for pool, name in enumerate(self._names)
            )
            return DriftReport(
                samples=detectors[0].samples,
                reference=held[0],
                rate=self.rate,
                resets=self._state.resets,
                alarms=self._alarms(),
                detectors=detectors,
            )

    def _alarms(self) -> tuple[Alarm, ...]:
        return self._state.gamblers.alarms(self._names, self._thresholds)

    def _place(self, level: Any, belief: Any, layer_levels: Any) -> tuple[Ints, Ints]:
        """The pool and the bin of each score, both of shape (n, 2 + n_layers).

        The columns: all samples, the layers, the class.
        """
        overall, by_layer = find_bins(level, "levels"), find_bins(layer_levels, "layer levels")
        codes, n, n_layers = np.asarray(belief), overall.size, self._n_layers
        fits = overall.shape == codes.shape == (n,) and by_layer.shape == (n, n_layers)
        codes = codes if n else codes.astype(np.int64)
        if not fits or codes.dtype.kind not in "iu" or not np.isin(codes, list(self._codes)).all():
            raise InputError(
                f"an alarm takes n levels, n beliefs, which are codes from {NO_BELIEF} to "
                f"{self._codes[-1]}, and layer levels of shape (n, {n_layers}); got the shapes "
                f"{overall.shape}, {codes.shape} and {by_layer.shape}, and beliefs {shown(belief)}"
            )
        own = np.where(codes == NO_BELIEF, len(self._names), 1 + n_layers + codes)
        fixed = np.broadcast_to(np.arange(1 + n_layers), (n, 1 + n_layers))
        bins = np.concatenate([overall[:, None], by_layer, overall[:, None]], axis=1)
        return np.concatenate([fixed, own[:, None]], axis=1), bins

    def _advance(self, pools: Ints, bins: Ints) -> None:
        """Let the gamblers bet on a few samples, of shape (n, m) each."""
        ties = draw_ties(self._generator, bins.shape)
        factors = bet(rank_in_turn(self._state.counts, pools, bins, ties))
        gamblers, found = self._state.gamblers, np.empty(pools.shape)
        before = int(gamblers.seen[0])
        together = pools.shape[1] - 1  # all samples and the layers keep step with each other
        found[:, :-1] = gamblers.play(slice(0, together), factors[:, :-1])
        for pool in np.unique(pools[:, -1]).tolist():
            own = pools[:, -1] == pool
            found[own, -1] = gamblers.play(pool, factors[own, -1])
        gamblers.ring(pools, found, before, self._thresholds)

    def to_dict(self) -> dict[str, Any]:
        """Return the whole state as plain values for JSON, so that a restart changes nothing."""
        with self._lock:
            self._state.generator = dict(self._generator.bit_generator.state)
            return dict(to_plain(self._state))

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], rate: float | None = None) -> Self:
        """Return the alarm whose `to_dict` wrote the `record`, to go on where it was.

        It rings at this `rate` from now on; None keeps that of the record. An `InputError` says
        that the state is damaged, or of another format.
        """
        state = from_plain(DriftState, record, "the state of a monitor")
        alarm = cls(None, state.classes, state.layers, state.rate if rate is None else rate)
        check_state(state, alarm._state)
        try:
            alarm._generator.bit_generator.state = state.generator
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            raise InputError(f"the state of the random numbers cannot be read: {error}") from error
        alarm._state, state.rate = state, alarm.rate
        return alarm

    def resume(self, record: Mapping[str, Any]) -> DriftAlarm:
        """Return an alarm that goes on from a `record` about the same model, at this one's rate.

        Classes may have come since. An `InputError` says that the record is damaged, or about other
        classes or layers.
        """
        found = DriftAlarm.from_dict(record, self.rate)
        one, other = found._state, self._state
        if (one.layers, one.classes) != (other.layers, other.classes[: len(one.classes)]):
            raise InputError("the state of the drift alarm is about other classes or layers")
        return found


def watch_scores(assessment: Assessment) -> tuple[Floats, Ints, Floats]:
    """What `DriftAlarm.update` takes of an `assessment`: levels, beliefs and levels by layer.

    Returns:
        Arrays of shape (n,), (n,) and (n, n_layers), the layers as in `answers.watched_layers`.

    Examples:
        >>> levels, beliefs, by_layer = watch_scores(ec.assess(X))
        >>> by_layer.shape == (len(X), len(ec.layers_))
        True
    """
    answers = assessment.answers
    return answers.watched, answers.belief, answers.watched_by_layer
