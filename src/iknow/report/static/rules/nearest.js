/* Nearest: the k nearest samples, however far. */

import { makeRule, UP_TO_KTH } from "./rule.js";

export const Nearest = makeRule({
  name: "Nearest", parameters: ["k"], slack: "k",
  words: "The k nearest samples count, however far away they are.",
  lines: "Nearest draws no lines: each sample's reach ends at its own k-th neighbor.",
  ballOf: () => UP_TO_KTH,
});
