/* By class: what it says, and how often it knows that. */

import { brief, count, h } from "../../report/static/dom.js";
import { bar } from "./shares.js";
import { share } from "./words.js";

function row({ label, ...counts }) {
  const n = counts.IK + counts.IMK + counts.IDK, text = label ?? "no answer";
  const shares = ["IK", "IMK", "IDK"].map((name) => `${name} ${share(counts[name], n)}`).join(", ");
  return h("tr", null, h("th", { scope: "row", title: text }, brief(text, 24)),
    h("td", { class: "shares", title: shares }, bar(counts)),
    h("td", null, count(counts.IDK)), h("td", null, count(n)));
}

/** @returns {Part<LiveStatus>} */
export function make() {
  const body = h("tbody", null), hint = h("p", { class: "hint" });
  const head = h("tr", null, ["It says", "Shares", "IDKs", "Answers"].map((text) =>
    h("th", { scope: "col" }, text)));
  const element = h("section", { class: "card classes" }, h("h2", null, "By class"),
    h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Answers by class" },
      h("table", null, h("thead", null, head), body)), hint);
  /** @param {LiveStatus} status */
  const update = ({ by_class: found }) => {
    element.hidden = !found?.rows.length;
    body.replaceChildren(...(found?.rows ?? []).map(row));
    hint.textContent = `Of the last ${count(found?.n ?? 0)} answers; most IDKs first`
      + (found?.more ? `, and ${count(found.more)} more classes.` : ".");
  };
  return { element, update };
}
