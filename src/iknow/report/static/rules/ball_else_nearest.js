/* BallElseNearest (H-1): the ball, or the k nearest samples where the ball is empty. */

import { isInhabited } from "../layer.js";
import { cross } from "../plot.js";
import { makeRule, UP_TO_KTH, WITHIN_RADIUS } from "./rule.js";

export const BallElseNearest = makeRule({
  name: "BallElseNearest", parameters: ["radius", "k"],
  words: "Samples within ε count; where there are none, the k nearest do (H-1).",
  lines: "Dotted lines are at ε; some samples' reach ends at their own k-th neighbor.",
  ballOf: (layer, setting, i) => (isInhabited(layer, setting, i) ? WITHIN_RADIUS : UP_TO_KTH),
  fullWithin: WITHIN_RADIUS.reach,
  drawLines: (plot, { radius }) => cross(plot, radius, [2, 4]),
});
