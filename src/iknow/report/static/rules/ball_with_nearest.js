/* BallWithNearest (H-2): the ball and the k nearest samples, or nothing where the ball is empty. */

import { distanceAt, isInhabited, isRanked, kthDistance } from "../layer.js";
import { K, RADIUS } from "../parameters.js";
import { cross } from "../plot.js";
import { makeRule, NO_BALL, UP_TO_KTH, WITHIN_RADIUS } from "./rule.js";

export const BallWithNearest = makeRule({
  name: "BallWithNearest",
  words: "Samples within ε and the k nearest count; nothing does where ε holds none (H-2).",
  lines: "Dotted lines are at ε; some samples' reach ends at their own k-th neighbor.",
  parameters: { radius: RADIUS, k: K },
  axis: "radius",
  ballOf(layer, setting, i) {
    if (!isInhabited(layer, setting, i)) return NO_BALL;
    return kthDistance(layer, setting, i) > Math.fround(setting.radius)
      ? UP_TO_KTH : WITHIN_RADIUS;
  },
  isWithin: (layer, setting, i, j) => isInhabited(layer, setting, i)
    && (distanceAt(layer, i, j) <= setting.radius || isRanked(layer, setting, i, j)),
  fullWithin: (layer, { radius }) => radius,
  emptyBeyond: (layer, { radius }) => radius,
  drawLines: (plot, { radius }) => cross(plot, radius, [2, 4]),
});
