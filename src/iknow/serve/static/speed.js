/* How fast it answers: quantiles of the last minutes, and how they went. */

import { h, svg } from "../../report/static/dom.js";
import { chart, levelLines, points, roundUp, timeTicks } from "./chart.js";
import { gather } from "./columns.js";
import { latency, perSecond } from "./words.js";

const [LEFT, RIGHT, TOP, BASE, HEIGHT] = [52, 6, 10, 110, 130];

/* A line through the columns that have a value; one alone is a dot. */
function line(columns, key, x, y) {
  /** @type {number[][][]} */ const runs = [[]];
  columns.forEach((column, c) => {
    if (Number.isNaN(column[key])) runs.push([]);
    else runs[runs.length - 1].push([x(c + 0.5), y(column[key])]);
  });
  return runs.filter((run) => run.length).map((run) => (run.length === 1
    ? svg("circle", { class: `dot ${key}`, cx: run[0][0], cy: run[0][1], r: 2.5 })
    : svg("polyline", { class: `line ${key}`, points: points(run) })));
}

function draw(columns, width) {
  const x = (c) => LEFT + (c * (width - LEFT - RIGHT)) / columns.length;
  const slowest = Math.max(...columns.map(({ p99 }) => (Number.isNaN(p99) ? 0 : p99)));
  const most = roundUp(slowest || 0.001), y = (value) => BASE - ((BASE - TOP) * value) / most;
  return {
    label: slowest ? `Latency over time; the slowest hundredth took up to ${latency(slowest)}`
      : "Latency over time; nothing yet",
    shapes: [
      levelLines(LEFT, width - RIGHT, y, slowest ? [0, most / 2, most] : [0],
        (value) => (value ? latency(value) : "0")),
      line(columns, "p99", x, y), line(columns, "p50", x, y),
      timeTicks(columns, x, HEIGHT - 4, false),
    ],
  };
}

const figure = (name, value, kind) => h("div", null,
  h("dt", { class: kind }, name), h("dd", null, value));

/** @returns {Part<LiveStatus>} */
export function make(range) {
  let live = null;
  const figures = h("dl", { class: "figures" });
  const { picture, redraw } = chart(HEIGHT, (width) =>
    draw(gather(live?.series ?? [], live?.now ?? Date.now() / 1000, range.chosen), width));
  const element = h("section", { class: "card speed" }, h("h2", null, "Speed"), figures, picture,
    h("p", { class: "hint" }, "Solid: half of the requests are faster. Dashed: 99 of 100 are."));
  /** @param {LiveStatus} status */
  const update = (status) => {
    live = status;
    const { latency: slow, rate } = status;
    figures.replaceChildren(figure("p50", latency(slow?.p50), "p50"), figure("p95", latency(slow?.p95)),
      figure("p99", latency(slow?.p99), "p99"), figure("requests", perSecond(rate?.requests)),
      figure("answers", perSecond(rate?.rows)));
    redraw();
  };
  return { element, update };
}
