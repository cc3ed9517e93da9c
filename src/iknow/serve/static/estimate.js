/* The estimated accuracy of the last answers, which nobody has labeled yet. */

import { count, h } from "../../report/static/dom.js";
import { interval, percent } from "./accuracy.js";

/** @returns {Part<LiveStatus>} */
export function make() {
  const content = h("div", null);
  const element = h("section", { class: "card estimate-card" }, h("h2", null, "Estimated accuracy"), content);
  /** @param {LiveStatus} status */
  const update = ({ estimate }) => {
    element.hidden = !estimate;
    if (!estimate) return;
    const { n, accuracy, low, high, unseen } = estimate;
    content.replaceChildren(
      h("p", { class: "verdict-line" }, `${percent(accuracy)} of the last ${count(n)} answers`),
      interval({ low, high, estimate: accuracy, certified: null }) ?? "",
      h("p", { class: "hint" }, `Between ${percent(low)} and ${percent(high)}, if the data comes like `
        + `the validation data. ${percent(unseen)} of it is unlike anything seen before; what is right `
        + "there, only labels can tell."));
  };
  return { element, update };
}
