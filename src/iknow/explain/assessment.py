"""Assessment: everything iknow says about a set of predictions, column by column.

It holds the evidence, or a way to it, so you can try other neighborhoods (`under`) and explain
predictions (`explain`) without asking the model again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from iknow.cards import bar, card, heading, legend, paragraphs, table, text
from iknow.core.arrays import Bools, Floats, Ints, Labels
from iknow.core.assertion import (
    Assertion,
    Assertions,
    Reason,
    Reasons,
    find_reasons,
    make_assertions,
    may_be_known,
)
from iknow.core.calibration import Calibration
from iknow.core.codes import NO_BELIEF
from iknow.core.decision import Decision, decide
from iknow.core.evidence import NO_EXEMPLAR, Evidence, believed, distances_for_and_against
from iknow.core.level import Levels, log_odds
from iknow.core.quorum import Weighed, weigh
from iknow.core.robustness import Movement, find_robust_radii
from iknow.core.rule import Rule, Stability, check_by_layer, reach_by_class
from iknow.core.slack import find_margins, find_stability
from iknow.core.support import justify
from iknow.core.text import as_whole, names, shown
from iknow.errors import InputError
from iknow.explain.answers import Answers, labels_of
from iknow.explain.explanation import Explanation, explain_layer
from iknow.explain.features import Measured
from iknow.explain.later import about
from iknow.explain.picture import Renderer, check_given, picture_at, take_sample
from iknow.explain.voices import find_voices, find_weakest
from iknow.locking import cached_property, unlocked_property

BY_SAMPLE = (  # what differs between samples
    "belief_codes", "scores", "invalid", "evidence", "decisions", "movements", "over_views",
    "measured", "y_true", "index",
)  # fmt: skip
KINDS = (
    "samples are picked by a position, a slice, positions or a mask, such as a[0], a[:100], "
    "a[[3, 7]] or a[a.assertion == Assertion.IK]"
)


@dataclass(frozen=True, eq=False)
class Assessment:
    """Beliefs, their justification, and the assertions that follow.

    Attributes:
        classes: Labels of shape (n_classes,), in the order of all class axes below.
        belief_codes: The model's answers as positions in `classes`, of shape (n,); `NO_BELIEF`, -1,
            where it gave none.
        scores: The model's scores, of shape (n, n_classes); NaN where it gave none.
        evidence: Evidence by layer.
        neighborhoods: Rules by layer.
        invalid: Mask of shape (n,): an activation is not finite, or the model gave no answer.
        knowable: Codes of the classes that a certificate allows to be IK; a belief in any other
            class is at most IMK. None means all.
        decisions: By layer, what was decided without the evidence. They must agree with it.
        movements: By layer, how far a change of the inputs can move the samples' points. If that is
            unknown, the layer is missing or its constant is inf.
        levels: The path that the neighborhoods lie on, if they do.
        over_views: The confidence averaged over views of each sample, of shape (n,), if levels go
            by that; None for that of the scores.
        least_confidence: Below it the model's own doubt makes a sample IMK; -inf for never.
        calibration: How likely a belief is right, if `tune` had labels to learn it from.
        least_level: Where IK starts on that path; None if that is not known.
        measured: What the layers measured, to say which features distances come from.
        y_true: The labels that came with the samples, of shape (n,), if a loader had any.
        index: The index of the data frame that held the samples, of length n, if one did.

    Examples:
        >>> from iknow import Ball
        >>> a.under({"input": Ball(0.5)})
        Assessment of 75 predictions: IK 60, IMK 4, IDK 11
    """

    classes: Labels
    belief_codes: Ints
    scores: Floats
    evidence: Mapping[str, Evidence]
    neighborhoods: Mapping[str, Rule]
    invalid: Bools
    knowable: Sequence[int] | None = None
    decisions: Mapping[str, Decision] | None = None
    movements: Mapping[str, Movement] = field(default_factory=dict)
    levels: Levels | None = None
    over_views: Floats | None = None
    least_confidence: float = -np.inf
    calibration: Calibration | None = None
    least_level: float | None = None
    measured: Measured | None = None
    y_true: Labels | None = None
    index: Any = None

    def __post_init__(self) -> None:
        unmarked = (self.belief_codes == NO_BELIEF) & ~self.invalid
        if unmarked.any():
            raise InputError(
                f"a sample without belief must be invalid; row {unmarked.argmax()} is not marked so"
            )

    def __len__(self) -> int:
        return len(self.belief_codes)

    def __repr__(self) -> str:
        counts = ", ".join(f"{assertion.name} {n}" for assertion, n in self.counts.items())
        return f"Assessment of {len(self)} predictions: {counts}"

    @property
    def counts(self) -> dict[Assertion, int]:
        """How many samples have each `Assertion`, IK first."""
        return {each: int((self.assertion == each).sum()) for each in reversed(Assertion)}

    @unlocked_property
    def belief(self) -> Labels:
        """The model's answers as labels, of shape (n,).

        If it did not answer about every sample, an array of objects with None for the others.
        """
        return labels_of(self.classes, self.belief_codes)

    @unlocked_property
    def answered(self) -> Bools:
        """Mask of shape (n,) of the samples that the model gave an answer about."""
        answered: Bools = self.belief_codes != NO_BELIEF
        return answered

    @unlocked_property
    def weighed(self) -> dict[str, Weighed]:
        """For each layer, the evidence as its quorum counts it: one distance per class."""
        return {
            layer: weigh(evidence, self.neighborhoods[layer].quorum, self.belief_codes)
            for layer, evidence in self.evidence.items()
        }

    @unlocked_property
    def _decided(self) -> Mapping[str, Decision]:
        """What each layer says: as it was decided, or by the evidence."""
        if self.decisions is not None:
            return self.decisions
        rules, belief = self.neighborhoods, self.belief_codes
        return {layer: decide(each, rules[layer], belief) for layer, each in self.evidence.items()}

    @unlocked_property
    def supports(self) -> dict[str, Bools]:
        """For each layer, the classes within reach: masks of shape (n, n_classes).

        An invalid sample has none, whatever its evidence: it fails closed, to IDK.
        """
        valid = ~self.invalid[:, None]
        return {layer: self._decided[layer].support & valid for layer in self.evidence}

    @unlocked_property
    def justification(self) -> Bools:
        """The justified classes, a mask of shape (n, n_classes)."""
        return justify(list(self.supports.values()))

    @unlocked_property
    def assertion(self) -> Assertions:
        """An `Assertion` for each sample, of shape (n,).

        It prints as names, `[IK IDK IMK]`, and compares with them, `a.assertion == "IK"`.
        """
        return make_assertions(self.belief_codes, self.justification, self.knowable, self.doubted)

    @unlocked_property
    def reason(self) -> Reasons:
        """A `Reason` for each assertion, of shape (n,)."""
        supports = list(self.supports.values())
        return find_reasons(self.belief_codes, supports, self.invalid, self.knowable, self.doubted)

    @unlocked_property
    def doubted(self) -> Bools:
        """Mask of shape (n,) of the samples about which the model's own confidence is too low."""
        if self.least_confidence == -np.inf:
            return np.zeros(self.invalid.shape, dtype=bool)
        return np.asarray(self.confidence < self.least_confidence)

    @unlocked_property
    def probability(self) -> Floats:
        """How likely each belief is right, of shape (n,); NaN where there is none.

        It rises with the level and with the model's confidence, and is calibrated: of samples like
        the validation data with a probability of 0.9, nine in ten are right. At level 0 it is the
        lowest of all, however sure the model is. `evaluate(a)` estimates an accuracy from these.
        """
        if self.calibration is None:
            raise InputError(
                "there are no probabilities: they take levels, as the default rule has them, and "
                "labels to learn from: tune(X_val, y_val, ...)"
            )
        level = np.where(self.invalid, 0.0, self._path.without_model(self.said))
        confidence = self.confidence if self._path.hears_model else np.zeros(len(self))
        found = self.calibration.probability(level, confidence)
        return np.where(self.answered, found, np.nan)

    @unlocked_property
    def confidence(self) -> Floats:
        """The model's confidence in beliefs as log-odds, (n,); over views if levels use any."""
        if self.over_views is not None:
            return self.over_views
        from_probabilities = self.levels is not None and self.levels.from_probabilities
        return log_odds(self.scores, self.belief_codes, from_probabilities)

    @unlocked_property
    def level(self) -> Floats:
        """How ordinary each prediction is, from 0 to 1, of shape (n,); higher is surer.

        The least that any voice says (`iknow.core.level`). Those at `selection_.level` or above are
        IK (with a certificate for each class, if their class may be known). 0 for an invalid one.
        """
        return np.where(self.invalid, 0.0, self.said.min(axis=1))

    @unlocked_property
    def layer_levels(self) -> Floats:
        """The level in each layer of `levels` alone, of shape (n, n_layers); 0 if invalid."""
        return np.where(self.invalid[:, None], 0.0, self._path.by_layer(self.said))

    @unlocked_property
    def weakest(self) -> Labels:
        """The voice that decides each assertion, of shape (n,), such as "clarity in hidden".

        The one that says least: for IDK of nearness and familiarity, for an IMK by overlap of
        clarity, by doubt the model's confidence, else of all.
        """
        voices: Labels = np.array(list(map(str, self._path.voices)), dtype=object)
        return voices[find_weakest(self._path, self.said, self.reason)]

    @unlocked_property
    def said(self) -> Floats:
        """What each voice of `levels` says about each sample, of shape (n, n_voices)."""
        path = self._path
        contrasts = {layer: self._decided[layer].contrast for layer in path.layers}
        return path.ranks(contrasts, self.confidence if path.hears_model else None)

    @property
    def _path(self) -> Levels:
        if self.levels is None:
            raise InputError(
                "these neighborhoods have no levels: tune a classifier with rule=RelativeBall, the "
                "default, which chooses them along a path of levels"
            )
        return self.levels

    @unlocked_property
    def own_exemplars(self) -> dict[str, Ints]:
        """For each layer, the nearest training row of the believed class, (n,); -1 for none."""
        return {layer: self._decided[layer].exemplars for layer in self.evidence}

    @unlocked_property
    def never_known(self) -> Bools:
        """Mask of shape (n,) of the samples that no neighborhoods make IK."""
        return self.invalid | self.doubted | ~may_be_known(self.belief_codes, self.knowable)

    @unlocked_property
    def layer_margins(self) -> dict[str, Floats]:
        """For each layer, how far it is from supporting anything but the belief alone, (n,).

        Negative where it does; -inf for an invalid sample.
        """
        margins = {
            layer: find_margins(weighed, self.neighborhoods[layer], self.belief_codes)
            for layer, weighed in self.weighed.items()
        }
        return {layer: np.where(self.invalid, -np.inf, each) for layer, each in margins.items()}

    @unlocked_property
    def margin(self) -> Floats:
        """The smallest of the layers' margins, of shape (n,): above 0 for IK, below for the rest.

        How much distances may change before an IK is lost, or must change, below 0, to gain one. At
        0 a distance equals the reach, and the sample may be either. -inf for a belief that is not
        `knowable`, or that the model doubts.
        """
        margins: Floats = np.min(list(self.layer_margins.values()), axis=0)
        return np.where(self.never_known, -np.inf, margins)

    @cached_property
    def robust_radius(self) -> Floats:
        """The ℓ2 length, of shape (n,), below which no change of the input makes another label IK.

        It holds for what the model computes, rounding included (see `iknow.classifier.movement`). 0
        where nothing is proven: the belief has no lead over the other classes beyond rounding,
        the sample is invalid, or no layer is known well enough.
        """
        movements = {name: self.movements[name] for name in self.evidence if name in self.movements}
        radii = find_robust_radii(self.evidence, self.neighborhoods, self.belief_codes, movements)
        return np.where(self.invalid, 0.0, radii)

    @cached_property
    def stability(self) -> Stability:
        """How many training samples you must remove for each IK to be lost; 0 for other samples.

        `changes` counts how many may be added, removed or relabeled at will without losing it, with
        the model and the metrics as they are: a certificate against poisoned data that takes a
        quorum. Lower bounds if all neighbors in the evidence count: `assess(X, k=...)` finds more.
        """
        rules = [self.neighborhoods[layer] for layer in self.evidence]
        known = self.assertion == Assertion.IK
        return find_stability(list(self.evidence.values()), rules, self.belief_codes, known)

    def under(self, neighborhoods: Mapping[str, Rule]) -> Assessment:
        """Assess the same predictions with other `neighborhoods`, from the same evidence."""
        kind = "given by layer, such as {'output': Ball(0.5)}"
        check_by_layer(neighborhoods, self.evidence, kind=kind)
        return replace(
            self, neighborhoods=neighborhoods, decisions=None,
            levels=None, least_confidence=-np.inf, least_level=None, calibration=None,
        )  # fmt: skip

    def only(self, layers: Sequence[str]) -> Assessment:
        """Assess the same predictions with some of the `layers`."""
        chosen: list[Any] = [layers]
        if isinstance(layers, Collection) and not isinstance(layers, str):
            with suppress(Exception):  # an array without an axis, say, is no collection
                chosen = list(layers)
        if not chosen or not all(isinstance(n, str) and n in self.evidence for n in chosen):
            raise InputError(
                f"there is evidence for the layers {names(self.evidence)}; asked for "
                f"{names(chosen)}"
            )
        return replace(
            self,
            evidence={layer: self.evidence[layer] for layer in chosen},
            neighborhoods={layer: self.neighborhoods[layer] for layer in chosen},
            decisions=None if self.decisions is None else {c: self.decisions[c] for c in chosen},
            levels=None if self.levels is None else self.levels.only(chosen),
            calibration=None,  # it was learned from the levels of all layers
        )

    def __getitem__(self, samples: Any) -> Assessment:
        """Return the assessment of some `samples`, in that order, gathering evidence for no others:
        by a position, a slice, positions or a mask of shape (n,).
        """
        rows: Any = samples
        try:
            if isinstance(samples, slice):
                samples.indices(len(self))  # fails if they are no whole numbers, or the step is 0
            else:
                rows = np.atleast_1d(np.arange(len(self))[samples])
                if rows.ndim > 1 or isinstance(samples, tuple):  # None is; a[0, 1] is a slip
                    raise TypeError("it is none of these")
        except Exception as error:  # numpy says what is wrong, or an object refuses
            raise InputError(f"{KINDS}; got {shown(samples)}: {error}") from error
        return replace(self, **{name: about(getattr(self, name), rows) for name in BY_SAMPLE})

    def __iter__(self) -> Iterator[Assessment]:
        """Assessments of one sample each."""
        return (self[i : i + 1] for i in range(len(self)))

    def for_and_against(self, layer: str) -> dict[str, Any]:
        """What a `layer` finds for and against each belief, columns of shape (n,) by name.

        `for` and `against`, distances, with a quorum those to the samples that complete it; inf
        where there is none. `for_row` and `against_row`, their training rows, and `against_class`,
        a code; -1 likewise. `reach`, that for the believed class, or the longest without one.
        """
        weighed, belief = self.weighed[layer], self.belief_codes
        reach = reach_by_class(self.neighborhoods[layer], weighed)
        own, other = distances_for_and_against(weighed, belief)
        nearest = weighed.others_by_distance()[:, 0]
        against = np.where(np.isfinite(other), nearest, NO_BELIEF)
        return {
            "for": own,
            "for_row": believed(weighed.exemplars, belief, NO_EXEMPLAR),
            "against": other,
            "against_row": believed(weighed.exemplars, against, NO_EXEMPLAR),
            "against_class": against,
            "reach": np.where(self.answered, believed(reach, belief), reach.max(axis=1)),
        }

    @unlocked_property
    def answers(self) -> Answers:
        """The answers alone, without evidence, as everything that is written takes them."""
        levels, codes = self.levels, self.belief_codes
        if levels is not None:
            watched, by_layer = self.level, self.layer_levels
        else:
            alone = [make_assertions(codes, justify([each])) for each in self.supports.values()]
            watched = np.asarray(self.assertion, np.float64) / Assertion.IK
            by_layer = np.column_stack(alone).astype(np.float64) / Assertion.IK
        return Answers(
            classes=self.classes,
            belief=codes,
            score=np.where(self.answered, self.scores[np.arange(len(self)), codes], np.nan),
            assertion=self.assertion,
            reason=self.reason,
            justified=self.justification,
            level=None if levels is None else self.level,
            weakest=None if levels is None else find_weakest(levels, self.said, self.reason),
            probability=None if self.calibration is None else self.probability,
            voices=() if levels is None else tuple(map(str, levels.voices)),
            watched=watched,
            watched_by_layer=by_layer,
            watched_layers=tuple(self.supports if levels is None else levels.layers),
            index=self.index,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the answers as plain values for JSON, lists with an entry for each sample.

        It gathers no evidence, unless for levels. A score that JSON cannot express becomes None; a
        label, such as a date, bytes or NaN, becomes `str(label)`.

        Returns:
            `classes`, the labels; `belief`, a label or None; `score`, the model's for its belief;
            `assertion` and `reason`, by name; `justified`, the labels of the justified classes;
            `level` and `weakest`, if there are levels; `probability`, if labels taught it.
        """
        return self.answers.to_dict()

    def to_frame(self) -> Any:
        """Return the answers as a `pandas.DataFrame` with a row for each sample.

        Its columns are those of `to_dict` but for `classes`; `assertion` is an ordered category
        (IDK < IMK < IK), and `justified` has | between classes. Add what you need, such as
        `frame["margin"] = a.margin`. Samples that came in a data frame keep its index, so
        `X.join(a.to_frame())` puts each answer beside its sample.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return self.answers.to_frame()

    def _repr_html_(self) -> str:
        reasons = {reason: int((self.reason == reason).sum()) for reason in Reason}
        given = ", ".join(f"{reason.name.lower()} {n:,}" for reason, n in reasons.items() if n)
        rules = [(text(layer), text(repr(rule))) for layer, rule in self.neighborhoods.items()]
        return card(
            heading("Assessment", f"of {len(self):,} predictions"),
            bar(self.counts, len(self)),
            legend(self.counts, len(self)),
            table(("layer", "rule"), rules, margin="12px 0 0"),
            paragraphs([f"reasons: {given}"] if given else []),
        )

    def explain(
        self, i: int, *, samples: Any = None, training: Any = None, renderer: Renderer | None = None
    ) -> Explanation:
        """Explain the assertion about sample `i`: the training samples for and against, per layer.

        Args:
            i: Position of the sample.
            samples: The assessed samples, to show this one next to its exemplars.
            training: The samples that the classifier was fitted on, in its order; with `rows=` in
                `fit`, a dict of them by these numbers.
            renderer: Makes the pictures: `as_image`, `as_series` or `as_features`. Default: by the
                shape of the samples.

        Examples:
            >>> a.explain(0).reason.name
            'KNOWN'
        """
        n = len(self)
        position = f"be a whole number, the position of one of the {n} samples"
        i = as_whole(i, "i", position, -n, n - 1) % n
        check_given(samples, n, training, None if self.measured is None else self.measured.kept)
        one = self[i : i + 1]
        leveled, stability = one.levels is not None and not one.invalid[0], one.stability
        voices, sample = find_voices(one), take_sample(samples, i)
        layers = ((layer, tuple(v for v in voices if v.layer == layer)) for layer in one.evidence)
        return Explanation(
            index=i,
            belief=one.belief.tolist()[0],
            assertion=one.assertion[0],
            reason=one.reason[0],
            layers=tuple(explain_layer(one, *each, sample, training, renderer) for each in layers),
            voices=voices,
            margin=float(one.margin[0]),
            stability=(int(stability.at_least[0]), bool(stability.exact[0])),
            changes=int(stability.changes[0]),
            level=float(one.level[0]) if leveled else None,
            least_level=one.least_level if leveled else None,
            confidence=float(one.confidence[0]) if leveled else None,
            probability=float(one.probability[0]) if leveled and one.calibration else None,
            picture=picture_at(samples, i, renderer),
        )
