/* What the page has to know of a rule, and what holds unless a rule says otherwise.

A rule is asked about a layer, its setting { rule, and a value for each parameter }, a sample i, and
the class in column j. It answers with a ball: how far it goes, what is within, and why in words.
Where nothing counts by rule, a ball with `none` says how near a sample would have to be. */

import { distanceAt, isRanked, kthDistance } from "../layer.js";
import { layerRadius } from "../robustness.js";

/** @type {Ball} */
export const WITHIN_RADIUS = {
  reach: (layer, { radius }) => radius,
  holds: (layer, { radius }, i, j) => distanceAt(layer, i, j) <= radius,
  words: (reach) => `${reach}, the radius ε`,
};

/** @type {Ball} */
export const UP_TO_KTH = {
  reach: kthDistance,
  holds: isRanked,
  words: (reach, { k }) => `${reach}, the distance to nearest sample number ${k}`,
  single: true,  // precision
};

/** @type {Ball} */
export const NO_BALL = {
  reach: WITHIN_RADIUS.reach,
  holds: () => false,
  words: (reach) => `none, as no sample is within ε = ${reach}`,
  none: true,
};

/* By how much the believed class is within reach, or another is not: the smallest of these. */
function marginOf(layer, setting, i) {
  const ball = setting.rule.ballOf(layer, setting, i);
  let margin = Infinity;
  for (let j = 0; j < layer.width; j++) {
    const distance = distanceAt(layer, i, j);
    const measured = ball.single ? Math.fround(distance) : distance;
    const beyond = distance === Infinity ? Infinity : measured - ball.reach(layer, setting, i, j);
    margin = Math.min(margin, j === 0 ? -beyond : beyond);
  }
  return margin;
}

/** @type {(own: OwnRule) => Rule} */
export const makeRule = (own) => ({
  slack: "radius",  // the parameter whose slack is shown
  lines: "",        // what to know of the lines in its plot
  fromBelief: false,  // whether the reach is measured from the believed class
  marginOf,
  // Robustness: within which radius all samples count, beyond which none do, and what multiple of
  // the nearest distance the reach is at least.
  fullWithin: () => 0,
  emptyBeyond: () => Infinity,
  ratioOf: () => 1,
  robustRadius: layerRadius,
  drawLines: () => {},
  ...own,
});
