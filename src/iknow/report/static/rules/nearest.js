/* Nearest: the k nearest samples, however far. */

import { isRanked } from "../layer.js";
import { K } from "../parameters.js";
import { makeRule, UP_TO_KTH } from "./rule.js";

export const Nearest = makeRule({
  name: "Nearest",
  words: "The k nearest samples count, however far away they are.",
  lines: "Nearest draws no lines: each sample's reach ends at its own k-th neighbor.",
  parameters: { k: K },
  slack: "k",
  ballOf: () => UP_TO_KTH,
  isWithin: isRanked,
});
