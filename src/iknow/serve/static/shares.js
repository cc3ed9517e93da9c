/* How much it knows right now: one bar, three figures, and why. */

import { ASSERTIONS, MEANINGS, badge, count, h } from "../../report/static/dom.js";
import { duration, share } from "./words.js";

const ORDER = [2, 1, 0];
const REASONS = { IK: [], IMK: ["OVERLAP", "DISAGREEMENT", "UNCERTIFIED", "DOUBT"],
  IDK: ["EXTRAPOLATION", "CONTRADICTION", "INVALID"] };

/* A bar of IK, IMK and IDK, each as long as its share. */
export function bar(counts) {
  const parts = ORDER.filter((a) => counts[ASSERTIONS[a]] > 0).map((a) => {
    const part = h("span", { class: ASSERTIONS[a].toLowerCase() });
    part.style.flexGrow = counts[ASSERTIONS[a]];
    return part;
  });
  return h("div", { class: "bar", "aria-hidden": "true" }, parts);
}

function tile(a, shown, total) {
  const name = ASSERTIONS[a];
  const reasons = REASONS[name].filter((reason) => shown.reasons?.[reason]);
  return h("div", { class: `tile ${name.toLowerCase()}` },
    h("h3", null, badge(a), h("span", { class: "soft" }, MEANINGS[a])),
    h("p", { class: "big" }, share(shown[name], shown.rows)),
    h("p", { class: "of" }, `${count(shown[name])} ${shown[name] === 1 ? "answer" : "answers"}`,
      shown === total ? null : ` · ${share(total[name], total.rows)} since the start`),
    reasons.length ? h("ul", { class: "reasons" }, reasons.map((reason) => h("li", null,
      `${reason.toLowerCase()} `, h("b", null, count(shown.reasons[reason]))))) : null);
}

function sentence(lately, total) {
  if (!total.rows) return "No request has come yet. What it knows will appear here with the first one.";
  if (!lately.rows) {
    return `No request in the last ${duration(lately.seconds)}. Since the start it knew `
      + `${share(total.IK, total.rows)} of ${count(total.rows)} answers.`;
  }
  return `In the last ${duration(lately.seconds)} it knew ${share(lately.IK, lately.rows)} of `
    + `${count(lately.rows)} ${lately.rows === 1 ? "answer" : "answers"}, and did not know `
    + `${share(lately.IDK, lately.rows)}.`;
}

/** @returns {Part<LiveStatus>} */
export function make() {
  const words = h("p", { class: "lead-sentence" }), body = h("div", null);
  const element = h("section", { class: "card now" }, h("h2", null, "What it knows now"), words, body);
  /** @param {LiveStatus} status */
  const update = ({ lately, total }) => {
    words.textContent = sentence(lately, total);
    const shown = lately.rows ? lately : total;
    body.replaceChildren(...(shown.rows
      ? [bar(shown), h("div", { class: "tiles" }, ORDER.map((a) => tile(a, shown, total)))] : []));
  };
  return { element, update };
}
