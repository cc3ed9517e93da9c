/* Levels: how ordinary the last answers are, beside the reference samples, which are ordinary. */

import { count, h, short, svg } from "../../report/static/dom.js";
import { chart, levelLines, points, roundUp } from "./chart.js";
import { share } from "./words.js";

const [LEFT, RIGHT, TOP, BASE, HEIGHT] = [44, 8, 22, 130, 150];

/* The reference's shares as a line of steps. */
function steps(reference, x, y) {
  const corners = reference.flatMap((part, b) => [[x(b), y(part)], [x(b + 1), y(part)]]);
  return svg("polyline", { class: "reference", points: points(corners) });
}

function draw({ n, counts, reference, threshold }, width) {
  const x = (b) => LEFT + (b * (width - LEFT - RIGHT)) / counts.length;
  const parts = counts.map((c) => (n ? c / n : 0));
  const most = roundUp(Math.max(...parts, ...(reference ?? []), 0.05));
  const y = (part) => BASE - ((BASE - TOP) * part) / most;
  const at = threshold === null ? 0 : x(threshold * counts.length);
  const edge = (b) => short(b / counts.length, 2);
  const lowest = share(counts[0], n);
  return {
    label: `Levels of ${count(n)} answers; ${lowest} are below ${edge(1)}`,
    shapes: [
      levelLines(LEFT, width - RIGHT, y, [0, most / 2, most], (part) => `${short(100 * part, 2)}%`),
      parts.map((part, b) => svg("g", null,
        svg("title", null, `${edge(b)} to ${edge(b + 1)}: ${share(counts[b], n)}`),
        svg("rect", { class: threshold !== null && b / counts.length >= threshold ? "ik" : "low",
          x: x(b) + 0.5, y: y(part), width: x(1) - x(0) - 1, height: BASE - y(part) }))),
      reference && steps(reference, x, y),
      threshold === null ? null : [
        svg("line", { class: "threshold", x1: at, x2: at, y1: TOP - 6, y2: BASE }),
        svg("text", { class: "tick", x: at + (threshold > 0.6 ? -4 : 4), y: TOP - 8,
          "text-anchor": threshold > 0.6 ? "end" : "start" }, `IK from ${short(threshold, 2)}`)],
      [0, 0.25, 0.5, 0.75, 1].map((level) => svg("text", { class: "tick", y: HEIGHT - 3,
        x: x(level * counts.length), "text-anchor": level === 0 ? "start" : level === 1 ? "end" : "middle" },
      String(level))),
    ],
  };
}

/** @returns {Part<LiveStatus>} */
export function make() {
  /** @type {any} */ let levels = { n: 0, counts: new Array(20).fill(0), reference: null, threshold: null };
  const { picture, redraw } = chart(HEIGHT, (width) => draw(levels, width));
  const hint = h("p", { class: "hint" });
  const element = h("section", { class: "card levels" }, h("h2", null, "How ordinary"), picture, hint);
  /** @param {LiveStatus} status */
  const update = ({ levels: found }) => {
    element.hidden = !found;
    if (!found) return;
    levels = found;
    hint.textContent = `Levels of the last ${count(levels.n)} answers, from strange (0) to ordinary (1).`
      + (levels.reference ? " The line shows the reference samples; bars that rise above it at the left "
        + "speak of drift." : "");
    redraw();
  };
  return { element, update };
}
