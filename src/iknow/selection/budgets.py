"""Budgets: how much each voice of a path may hold back of ordinary data, as an insurance.

The model's confidence alone ranks ordinary samples about as well as any, and believes the model on
what is like nothing it was trained on. Every further voice protects against some of that and costs
something on ordinary data. The price of a ranking is its expected risk: AUGRC, the mean over all
coverages of the share that is asserted and wrong, where the loss of a sample is

    (its error + 1 - p) / 2     p: the model's confidence, after temperature scaling

as errors alone are too few to go by where a model is nearly perfect, and confidence alone does not
know what the neighbors know better. Without labels it is 1 - p. Confidence has the budget 1; then

- familiarity, layer by layer: the largest budget that raises the price by at most a tenth of the
  premium, and never less than `LEAST`, so that no goal asserts what is like nothing in training;
- nearness and clarity, one budget for both, the last layer first: the largest that keeps the price
  of the whole within the premium, or none; but never less than `LEAST` where training has too few
  samples for familiarity, so that every layer has a voice.

The premium is a share of the price of confidence alone, which counts as `LEAST_PRICE` at least, and
as much as `FEWEST_ERRORS` cost.

Where an accuracy is to be certified, what counts is how many samples come before the risk exceeds
it. So then the coverage at which the expected risk is allowed must not fall by more than a fifth of
the premium either. Among the surest samples errors are too few to tell, so here 1 - p stands alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_expit
from scipy.stats import rankdata

from iknow.core.arrays import Bools, Floats
from iknow.core.level import CLARITY, CONFIDENCE, FAMILIARITY, NEARNESS

GRID = (1.0, 0.7, 0.5, 0.35, 0.25, 0.15, 0.1, 0.07, 0.05, 0.035, 0.02)
LEAST = GRID[-1]
SHARE_OF_FAMILIARITY = 0.1  # of the premium, for each layer
SHARE_OF_COVERAGE = 0.2  # likewise, of what is asserted at the risk that is allowed
LEAST_PRICE = 0.006  # of a model that errs less, a twentieth is nothing that anybody notices
FEWEST_ERRORS = 4  # that a price rests on; a twentieth of fewer cannot be told from chance
TEMPERATURES = (-3.0, 3.0)  # natural logarithms

OF_CLASS = (NEARNESS, CLARITY)

Speaker = tuple[str | None, str]
"""Layer and name of a voice."""


def choose_budgets(
    ranks: Mapping[Speaker, Floats],
    losses: Floats,
    layers: Sequence[str],
    premium: float,
    accuracy: float | None = None,
    chances: Floats | None = None,
) -> dict[Speaker, float]:
    """The budgets of voices, in the order in which they were chosen; the others stay silent.

    ranks: of each voice, the share u of reference samples with at most its value, of shape (n,), of
    the n samples with these losses, (n,). layers: in computing order. accuracy: the one to certify;
    chances: of an error, (n,), by which to tell how many can be asserted; by default the losses.
    """
    budgets: dict[Speaker, float] = {}
    said = np.ones(len(losses))

    def hear(speakers: Sequence[Speaker], budget: float) -> Floats:
        found: Floats = np.minimum.reduce([said, *(ranks[each] / budget for each in speakers)])
        return found

    lead, of_layers = [(None, CONFIDENCE)], [[(layer, n) for n in OF_CLASS] for layer in layers]
    leads = [lead] if lead[0] in ranks else of_layers  # else the layers must say what a sample is
    for speakers in leads:
        said = hear(speakers, 1.0)
        budgets.update(dict.fromkeys(speakers, 1.0))
    alone = costs_of(said, losses)
    risk = 1 - (accuracy or 0.0)
    price = max(float(alone.mean()), LEAST_PRICE, FEWEST_ERRORS / len(losses))
    chances = losses if chances is None else chances
    covered = coverage_at(said, chances, risk) * (1 - SHARE_OF_COVERAGE * min(premium, 1.0))
    of_familiarity = [(layer, FAMILIARITY) for layer in layers if (layer, FAMILIARITY) in ranks]
    asked = [([each], SHARE_OF_FAMILIARITY) for each in of_familiarity]
    asked += [(speakers, 1.0) for speakers in reversed(of_layers) if speakers not in leads]
    for speakers, share in asked:
        before = costs_of(said, losses) if share < 1 else alone
        speaks_anyway = share < 1 or (speakers[0][0], FAMILIARITY) not in ranks
        for budget in GRID:
            heard = hear(speakers, budget)
            dearer = costs_of(heard, losses) - before
            within = float(dearer.mean()) <= premium * share * price
            least = speaks_anyway and budget == LEAST
            if least or (within and coverage_at(heard, chances, risk) >= covered):
                said = heard
                budgets.update(dict.fromkeys(speakers, budget))
                break
    return budgets


def expected_losses(confidence: Floats | None, wrong: Bools | None, n: int) -> Floats:
    """What each of n samples is expected to cost if it is asserted, of shape (n,).

    confidence: `log_odds` of shape (n,). wrong: mask of shape (n,), if the truth is known.
    """
    chances = chances_of_error(confidence, wrong, n)
    return chances if wrong is None else np.asarray((wrong + chances) / 2)


def chances_of_error(confidence: Floats | None, wrong: Bools | None, n: int) -> Floats:
    """What the confidence, calibrated by the truth where that is known, says of each, (n,)."""
    if confidence is None:
        return np.ones(n) if wrong is None else wrong.astype(np.float64)
    temperature = 1.0 if wrong is None else find_temperature(confidence, wrong)
    return np.asarray(expit(-confidence / temperature))


def find_temperature(confidence: Floats, wrong: Bools) -> float:
    """By what to divide log-odds so that they fit the errors best; 1 where nothing can be told."""
    finite = np.isfinite(confidence)
    odds, signs = confidence[finite], np.where(wrong[finite], -1.0, 1.0)
    if not len(odds):
        return 1.0

    def surprise(log_temperature: float) -> float:
        return -float(log_expit(signs * odds * np.exp(-log_temperature)).mean())

    return float(np.exp(minimize_scalar(surprise, bounds=TEMPERATURES, method="bounded").x))


def augrc(levels: Floats, losses: Floats) -> float:
    """The mean over all coverages of the loss per sample of those with the highest levels.

    levels, losses: of shape (n,). Samples of one level share their mean loss.
    """
    return float(costs_of(levels, losses).mean())


def costs_of(levels: Floats, losses: Floats) -> Floats:
    """What each sample adds to `augrc`: its loss, times the share of coverages that assert it."""
    return np.asarray(losses * rankdata(levels) / len(levels))


def coverage_at(levels: Floats, losses: Floats, risk: float) -> float:
    """The largest share of samples, those with the highest levels, whose mean loss is at most a
    risk. levels, losses: of shape (n,).
    """
    order = np.argsort(-levels, kind="stable")
    counts = np.arange(1, len(losses) + 1)
    is_last = np.append(np.diff(levels[order]) != 0, True)  # of the samples of one level
    within = counts[is_last & (np.cumsum(losses[order]) <= risk * counts)]
    return float(within.max(initial=0) / len(losses))
