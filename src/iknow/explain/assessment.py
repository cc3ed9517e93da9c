"""Assessment: everything iknow says about a set of predictions, column by column.

It holds the evidence, or a way to it, so other neighborhoods can be tried (`under`) and predictions
explained (`explain`) without asking the model again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Codes, Floats, Ints, Labels
from iknow.core.assertion import Assertion, Reason, find_reasons, make_assertions, may_be_known
from iknow.core.codes import NO_BELIEF
from iknow.core.evidence import Evidence
from iknow.core.justification import justify
from iknow.core.margin import find_margins
from iknow.core.movement import Movement
from iknow.core.neighborhood import Neighborhood, check_by_layer
from iknow.core.robustness import find_robust_radii
from iknow.core.scalars import as_whole
from iknow.core.stability import Stability, find_stability
from iknow.core.support import find_support
from iknow.core.text import names, shown
from iknow.errors import InputError
from iknow.explain.explanation import Explanation, explain_layer
from iknow.explain.on_request import evidence_about, movements_about
from iknow.explain.picture import Renderer, picture_of, take_sample
from iknow.locking import cached_property


@dataclass(frozen=True, eq=False)
class Assessment:
    """Beliefs, what justifies them, and the assertions that follow.

    classes: labels of shape (n_classes,), in the order of all class axes below.
    belief_codes: the model's answer as positions in `classes`, of shape (n,); `NO_BELIEF`, -1,
        where it gave none.
    scores: the model's scores, of shape (n, n_classes); NaN where it gave none.
    evidence, neighborhoods: one per layer, by name.
    invalid: mask of shape (n,) of the samples whose activations were not finite, or about which the
        model said nothing.
    knowable: codes of the classes that a belief may be IK in, where a certificate names them; in
        any other the most is IMK. None: in all.
    found: for each layer, the classes within reach of its neighborhood, masks of shape
        (n, n_classes), where they were found without the evidence. They must be what it gives.
    movements: by layer, how far a change of the inputs can move the samples' points; nothing, or a
        constant of inf, where that is not known.
    """

    classes: Labels
    belief_codes: Ints
    scores: Floats
    evidence: Mapping[str, Evidence]
    neighborhoods: Mapping[str, Neighborhood]
    invalid: Bools
    knowable: Sequence[int] | None = None
    found: Mapping[str, Bools] | None = None
    movements: Mapping[str, Movement] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kind = "given by layer, such as {'output': Ball(0.5)}"
        check_by_layer(self.neighborhoods, self.evidence, kind=kind)
        if self.found is not None and set(self.found) != set(self.evidence):
            raise InputError(
                f"supports are needed for the layers {sorted(self.evidence)}; "
                f"got them for {sorted(self.found)}"
            )

        if (~self.answered & ~self.invalid).any():
            raise InputError(
                "a sample without belief must be invalid; row "
                f"{int((~self.answered & ~self.invalid).argmax())} is not marked so"
            )

    def __len__(self) -> int:
        return len(self.belief_codes)

    def __repr__(self) -> str:
        counts = ", ".join(
            f"{assertion.name} {int((self.assertion == assertion).sum())}"
            for assertion in reversed(Assertion)
        )
        return f"Assessment of {len(self)} predictions: {counts}"

    @cached_property
    def belief(self) -> Labels:
        """The model's answer as labels, of shape (n,): what it said about each sample as given.

        Where it said nothing (`answered` is False), None, in an array of objects.
        """
        if self.answered.all():
            return self.classes[self.belief_codes]
        labels = np.full(len(self), None, dtype=object)
        labels[self.answered] = self.classes[self.belief_codes[self.answered]].astype(object)
        return labels

    @cached_property
    def answered(self) -> Bools:
        """Mask of shape (n,) of the samples that the model gave an answer about.

        It may refuse one that is not finite, or score it by NaN; no answer is made up then.
        """
        answered: Bools = self.belief_codes != NO_BELIEF
        return answered

    @cached_property
    def supports(self) -> dict[str, Bools]:
        """For each layer, the classes within reach: masks of shape (n, n_classes).

        An invalid sample has none, whatever evidence came with it: it fails closed, to IDK.
        """
        valid = ~self.invalid[:, None]
        if self.found is not None:
            return {layer: self.found[layer] & valid for layer in self.evidence}
        return {
            layer: find_support(evidence, self.neighborhoods[layer]) & valid
            for layer, evidence in self.evidence.items()
        }

    @cached_property
    def justification(self) -> Bools:
        """The justified classes, a mask of shape (n, n_classes)."""
        return justify(list(self.supports.values()))

    @cached_property
    def assertion(self) -> Codes:
        """An `Assertion` for each sample, of shape (n,)."""
        return make_assertions(self.belief_codes, self.justification, self.knowable)

    @cached_property
    def reason(self) -> Codes:
        """A `Reason` for each assertion, of shape (n,)."""
        return find_reasons(
            self.belief_codes, list(self.supports.values()), self.invalid, self.knowable
        )

    @cached_property
    def never_known(self) -> Bools:
        """Mask of shape (n,) of the samples that are IK under no neighborhoods whatever."""
        return self.invalid | ~may_be_known(self.belief_codes, self.knowable)

    @cached_property
    def layer_margins(self) -> dict[str, Floats]:
        """For each layer, how far it is from supporting anything but the belief alone, (n,).

        Negative where it does; -inf for an invalid sample.
        """
        return {
            layer: np.where(
                self.invalid,
                -np.inf,
                find_margins(evidence, self.neighborhoods[layer], self.belief_codes),
            )
            for layer, evidence in self.evidence.items()
        }

    @cached_property
    def margin(self) -> Floats:
        """The smallest of the layers' margins, of shape (n,): above 0 for IK, below for the rest.

        How much nearer to a boundary distances may come before an IK is lost; or how much they lack
        for one, below 0. At 0 a distance equals the reach, and the sample may be either. -inf for
        a belief that no distance makes IK, as it is not `knowable`.
        """
        margins: Floats = np.min(list(self.layer_margins.values()), axis=0)
        return np.where(may_be_known(self.belief_codes, self.knowable), margins, -np.inf)

    @cached_property
    def robust_radius(self) -> Floats:
        """The ℓ2 length, of shape (n,), below which no change of the input has another label IK.

        It holds for what the model computes, rounding included (see `iknow.classifier.moving`).
        0 where nothing is certified: a sample whose belief has no lead over the other classes, or
        none beyond rounding, an invalid one, or all of them where no layer is known well enough.
        """
        movements = {
            layer: self.movements[layer] for layer in self.evidence if layer in self.movements
        }
        radii = find_robust_radii(self.evidence, self.neighborhoods, self.belief_codes, movements)
        return np.where(self.invalid, 0.0, radii)

    @cached_property
    def stability(self) -> Stability:
        """How many training samples must be removed for each IK to be lost; 0 where there is none.

        A lower bound where all the neighbours in the evidence count, and there may be more:
        `assess(X, k=...)` gathers more of them.
        """
        return find_stability(
            list(self.evidence.values()),
            [self.neighborhoods[layer] for layer in self.evidence],
            self.belief_codes,
            self.assertion == Assertion.IK,
        )

    def under(self, neighborhoods: Mapping[str, Neighborhood]) -> Assessment:
        """The assessment of the same predictions by other neighborhoods, from the same evidence."""
        return replace(self, neighborhoods=neighborhoods, found=None)

    def only(self, layers: Sequence[str]) -> Assessment:
        """The assessment of the same predictions by some of the layers."""
        chosen = self._choose(layers)
        return replace(
            self,
            evidence={layer: self.evidence[layer] for layer in chosen},
            neighborhoods={layer: self.neighborhoods[layer] for layer in chosen},
            found=None if self.found is None else {layer: self.found[layer] for layer in chosen},
        )

    def _choose(self, layers: Any) -> list[str]:
        """Layers that there is evidence for, at least one; a single name may stand alone."""
        several = isinstance(layers, Collection) and getattr(layers, "ndim", 1) == 1
        several = several and not isinstance(layers, str)
        chosen = list(layers) if several else [layers]
        missing = [n for n in chosen if not isinstance(n, str) or n not in self.evidence]
        if missing or not chosen:
            raise InputError(
                f"there is evidence for the layers {names(self.evidence)}; asked for "
                f"{names(missing)}"
            )
        return chosen

    def __getitem__(self, samples: slice) -> Assessment:
        """The assessment of some of the samples; evidence is gathered about no others."""
        _check_slice(samples)
        return replace(
            self,
            belief_codes=self.belief_codes[samples],
            scores=self.scores[samples],
            evidence=evidence_about(self.evidence, samples),
            movements=movements_about(self.movements, samples),
            invalid=self.invalid[samples],
            found=None
            if self.found is None
            else {layer: mask[samples] for layer, mask in self.found.items()},
        )

    def explain(
        self,
        i: int,
        *,
        samples: Any = None,
        training: Any = None,
        renderer: Renderer | None = None,
    ) -> Explanation:
        """Why sample `i` got its assertion: the training samples for and against, per layer.

        samples, training: what was assessed and what the classifier was fitted on, to show the
        sample beside its exemplars. renderer: makes the pictures (`as_image`, `as_series`,
        `as_features`); by the samples' shape unless given.
        """
        i = as_whole(i, "i", "be a whole number, the position of a sample")
        if not -len(self) <= i < len(self):
            raise InputError(
                f"sample {shown(i)} does not exist: the assessment holds {len(self)} samples"
            )
        i = int(np.arange(len(self))[i])
        one = self[i : i + 1]
        sample = None if samples is None else take_sample(samples, i)
        return Explanation(
            index=i,
            belief=one.belief.tolist()[0],
            assertion=Assertion(int(one.assertion[0])),
            reason=Reason(int(one.reason[0])),
            layers=tuple(
                explain_layer(
                    layer,
                    evidence,
                    self.neighborhoods[layer],
                    classes=self.classes,
                    belief=int(one.belief_codes[0]),
                    margin=float(one.layer_margins[layer][0]),
                    supports=one.supports,
                    knowable=self.knowable,
                    training=training,
                    renderer=renderer,
                )
                for layer, evidence in one.evidence.items()
            ),
            margin=float(one.margin[0]),
            stability=(int(one.stability.at_least[0]), bool(one.stability.exact[0])),
            picture=None if sample is None else picture_of(sample, renderer),
        )


def _check_slice(samples: Any) -> None:
    """Samples are cut out by a slice of whole numbers."""
    if not isinstance(samples, slice):
        raise InputError(f"an assessment is cut by slices, such as [:100]; got {shown(samples)}")
    try:
        samples.indices(0)
    except Exception as error:  # of what is no whole number, or of a step of 0
        raise InputError(
            f"an assessment is cut by slices of whole numbers; got {shown(samples)}: {error}"
        ) from error
