/* The alarm: how strong the evidence is that the world has changed, and where it comes from.

Evidence is an e-value, given by its logarithm to base 10: without a change it reaches the threshold
with a probability of at most one in that threshold, however often one looks. */

import { brief, count, h, svg } from "../../report/static/dom.js";
import { odds } from "./words.js";

const MOST = 5;

/* How far the evidence is on its way to the threshold. */
function meter(evidence, threshold) {
  const most = Math.max(threshold * 1.2, evidence * 1.02), x = (value) => (100 * Math.max(value, 0)) / most;
  return svg("svg", { class: "meter", viewBox: "0 0 100 10", preserveAspectRatio: "none",
    "aria-hidden": "true" },
  svg("rect", { class: "rail", x: 0, y: 3, width: 100, height: 4 }),
  svg("rect", { class: evidence >= threshold ? "value over" : "value", x: 0, y: 3,
    width: x(evidence), height: 4 }),
  svg("line", { class: "limit", x1: x(threshold), x2: x(threshold), y1: 0, y2: 10 }));
}

/* The strongest of several, each beside its own threshold: more detectors, a higher one. */
function strongest(title, found) {
  const ranked = Object.entries(found ?? {}).filter(([, each]) => Number.isFinite(each?.evidence))
    .sort(([, a], [, b]) => b.evidence - a.evidence).slice(0, MOST);
  if (!ranked.length) return null;
  return h("table", { class: "strongest" }, h("caption", null, title), h("tbody", null,
    ranked.map(([label, { evidence, threshold }]) => h("tr", { class: evidence >= threshold ? "over" : null },
      h("th", { scope: "row", title: label }, brief(label, 24)),
      h("td", null, meter(evidence, threshold)), h("td", null, odds(evidence))))));
}

/** @param {DriftStatus} alarm */
function body(alarm) {
  const threshold = alarm.threshold ?? 2, evidence = alarm.evidence ?? NaN;
  const since = alarm.alarmed && alarm.since !== null ? `, since sample ${count(alarm.since)}` : "";
  return [
    h("p", { class: alarm.alarmed ? "verdict-line wrong" : "verdict-line" },
      h("span", { "aria-hidden": "true" }, alarm.alarmed ? "▲ " : "✓ "),
      alarm.alarmed ? `Drift${since}` : "No sign of drift"),
    alarm.text ? h("p", { class: "said" }, alarm.text) : null,
    Number.isFinite(evidence) ? [meter(evidence, threshold), h("p", { class: "hint" },
      `Evidence of change: ${odds(evidence)}; the alarm rings at ${odds(threshold)}.`
      + (Number.isFinite(alarm.n_samples) ? ` ${count(alarm.n_samples)} answers watched` : "")
      + (Number.isFinite(alarm.reference) ? ` beside ${count(alarm.reference)} reference samples.`
        : "."))] : null,
    strongest("By class", alarm.by_class),
    strongest("By layer", alarm.by_layer),
  ];
}

/** @returns {Part<ModelStatus>} */
export function make() {
  const content = h("div", null);
  const element = h("section", { class: "card alarm-card" }, h("h2", null, "Drift alarm"), content);
  /** @param {ModelStatus} status */
  const update = ({ alarm }) => {
    element.classList.toggle("ringing", alarm?.alarmed === true);
    content.replaceChildren(...(alarm ? body(alarm).flat().filter(Boolean)
      : [h("p", { class: "soft" }, "No alarm watches this model.")]));
  };
  return { element, update };
}
