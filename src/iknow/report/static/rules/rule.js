/* What the page has to know of a rule, and what holds unless a rule says otherwise.

A rule is given a layer, its setting { rule, and a value for each parameter }, a sample i and the
column j of a class. Where no sample is within reach by rule, NO_BALL stands in. */

import { distanceAt, kthDistance } from "../layer.js";
import { layerRadius } from "../robustness.js";
import { short } from "../dom.js";

/* Which ball counts for a sample: how far it goes, and in words. single: in single precision. */
export const WITHIN_RADIUS = {
  reach: (layer, { radius }) => radius,
  words: (reach) => `${reach}, the radius ε`,
};
export const UP_TO_KTH = {
  reach: kthDistance,
  words: (reach, { k }) => `${reach}, the distance to nearest sample number ${k}`,
  single: true,
};
export const NO_BALL = {
  reach: WITHIN_RADIUS.reach,
  words: (reach, { radius }) => `none, as no sample is within ε = ${short(radius)}`,
  none: true,
};

/* How far the class in column j lies beyond the reach; negative within it. */
function beyond(layer, setting, i, j) {
  const distance = distanceAt(layer, i, j);
  if (distance === Infinity) return Infinity;
  const ball = setting.rule.ballOf(layer, setting, i);
  return (ball.single ? Math.fround(distance) : distance) - ball.reach(layer, setting, i, j);
}

function marginOf(layer, setting, i) {
  let margin = -beyond(layer, setting, i, 0);
  for (let j = 1; j < layer.width; j++) margin = Math.min(margin, beyond(layer, setting, i, j));
  return margin;
}

/** @type {import("../types").Defaults} */
const DEFAULTS = {
  lines: "",                         // what to know of the lines in its plot
  unit: "",                          // of distances as it measures them
  axis: null,                        // the parameter that is such a distance
  slack: "radius",                   // the parameter whose slack is told
  measure: (layer, setting, i, j) => distanceAt(layer, i, j),
  measuredReach: (layer, setting, i) => setting.rule.ballOf(layer, setting, i)
    .reach(layer, setting, i, 0),
  marginOf,
  // What robustness rests on: within which radius all samples count, beyond which there is no
  // reach, and what the reach is a multiple of (null where it depends on the class).
  fullWithin: () => 0,
  emptyBeyond: () => Infinity,
  ratioOf: () => 1,
  robustRadius: layerRadius,
  drawLines: () => {},
  settle: (setting) => setting,
};

/** @type {(own: import("../types").OwnRule) => import("../types").Rule} */
export const makeRule = (own) => ({ ...DEFAULTS, ...own });
