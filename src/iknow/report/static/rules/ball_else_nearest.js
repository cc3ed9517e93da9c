/* BallElseNearest (H-1): the ball, or the k nearest samples where the ball is empty. */

import { distanceAt, isInhabited, isRanked } from "../layer.js";
import { K, RADIUS } from "../parameters.js";
import { cross } from "../plot.js";
import { makeRule, UP_TO_KTH, WITHIN_RADIUS } from "./rule.js";

export const BallElseNearest = makeRule({
  name: "BallElseNearest",
  words: "Samples within ε count; where there are none, the k nearest do (H-1).",
  lines: "Dotted lines are at ε; some samples' reach ends at their own k-th neighbor.",
  parameters: { radius: RADIUS, k: K },
  axis: "radius",
  ballOf: (layer, setting, i) => (isInhabited(layer, setting, i) ? WITHIN_RADIUS : UP_TO_KTH),
  isWithin: (layer, setting, i, j) => (isInhabited(layer, setting, i)
    ? distanceAt(layer, i, j) <= setting.radius : isRanked(layer, setting, i, j)),
  fullWithin: (layer, { radius }) => radius,
  drawLines: (plot, { radius }) => cross(plot, radius, [2, 4]),
});
