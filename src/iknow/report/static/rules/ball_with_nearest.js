/* BallWithNearest (H-2): the ball and the k nearest samples, or nothing where the ball is empty. */

import { isInhabited, kthDistance } from "../layer.js";
import { cross } from "../plot.js";
import { makeRule, NO_BALL, UP_TO_KTH, WITHIN_RADIUS } from "./rule.js";

/* Which of the two is wider is found in single precision; what they hold is exact. */
const holds = (layer, setting, i, j) =>
  WITHIN_RADIUS.holds(layer, setting, i, j) || UP_TO_KTH.holds(layer, setting, i, j);
const [WIDE_KTH, WIDE_RADIUS] = [{ ...UP_TO_KTH, holds }, { ...WITHIN_RADIUS, holds }];

export const BallWithNearest = makeRule({
  name: "BallWithNearest", parameters: ["radius", "k"],
  words: "Samples within ε and the k nearest count; nothing does where ε holds none (H-2).",
  lines: "Dotted lines are at ε; some samples' reach ends at their own k-th neighbor.",
  ballOf(layer, setting, i) {
    if (!isInhabited(layer, setting, i)) return NO_BALL;
    return kthDistance(layer, setting, i) > Math.fround(setting.radius) ? WIDE_KTH : WIDE_RADIUS;
  },
  fullWithin: WITHIN_RADIUS.reach,
  emptyBeyond: WITHIN_RADIUS.reach,
  drawLines: (plot, { radius }) => cross(plot, radius, [2, 4]),
});
