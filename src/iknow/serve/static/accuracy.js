/* Accuracy of what it knows, from labels that came later, beside what was certified. */

import { count, h, svg } from "../../report/static/dom.js";

export const percent = (value) => (Number.isFinite(value) ? `${(100 * value).toFixed(1)}%` : "–");

export function interval({ low, high, estimate, certified }) {
  if (!Number.isFinite(low) || !Number.isFinite(high)) return null;
  const least = Math.max(0, Math.min(low, certified ?? low, estimate ?? low) - 0.02);
  const x = (value) => (100 * (value - least)) / (1 - least || 1);
  const at = (value, kind, y1, y2) => (Number.isFinite(value)
    ? svg("line", { class: kind, x1: x(value), x2: x(value), y1, y2 }) : null);
  return svg("svg", { class: "meter interval", viewBox: "0 0 100 10", preserveAspectRatio: "none",
    "aria-hidden": "true" },
  svg("rect", { class: "rail", x: 0, y: 4, width: 100, height: 2 }),
  svg("rect", { class: "range", x: x(low), y: 2, width: Math.max(x(high) - x(low), 0.5), height: 6 }),
  at(estimate, "estimate", 1, 9), at(certified, "limit", 0, 10));
}

/** @returns {Part<ModelStatus>} */
export function make() {
  const content = h("div", null);
  const element = h("section", { class: "card accuracy-card" },
    h("h2", null, "Accuracy of what it knows"), content);
  /** @param {ModelStatus} status */
  const update = ({ accuracy }) => {
    element.hidden = !accuracy;
    element.classList.toggle("ringing", accuracy?.alarmed === true);
    if (!accuracy) return;
    const { n, estimate, low, high, certified, text, alarmed } = accuracy;
    content.replaceChildren(...[
      h("p", { class: alarmed ? "verdict-line wrong" : "verdict-line" }, alarmed ? "▲ " : "",
        n ? `${percent(estimate)} of ${count(n)} labels` : "No labels yet"),
      text ? h("p", { class: "said" }, text) : null,
      n ? interval(accuracy) : null,
      h("p", { class: "hint" }, [n ? `Surely between ${percent(low)} and ${percent(high)}` : null,
        Number.isFinite(certified) ? `certified: at least ${percent(certified)}` : null]
        .filter(Boolean).join("; ")),
    ].filter((child) => child !== null));
  };
  return { element, update };
}
