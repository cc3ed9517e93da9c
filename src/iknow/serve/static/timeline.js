/* Shares over time: a column for each moment, IK below, IMK, IDK on top; how many answers, underneath. */

import { badge, count, h, svg } from "../../report/static/dom.js";
import { chart, levelLines, roundUp, timeTicks } from "./chart.js";
import { SPANS, gather } from "./columns.js";
import { clock, perSecond, share } from "./words.js";

const [LEFT, RIGHT, TOP, MIDDLE, GAP, VOLUME] = [44, 4, 8, 168, 14, 36];
const HEIGHT = TOP + MIDDLE + GAP + VOLUME + 20;
const STACK = ["IK", "IMK", "IDK"];

function title({ start, end, rows, ...counts }) {
  const shares = STACK.map((name) => `${name} ${share(counts[name], rows)}`).join(", ");
  return `${clock(start)} to ${clock(end)}: ${count(rows)} answers; ${shares}`;
}

function column(found, left, width, fastest) {
  const { rows } = found, gap = width > 4 ? 1 : 0;
  let top = TOP + MIDDLE;
  const parts = STACK.map((name) => {
    const height = (MIDDLE * found[name]) / rows;
    top -= height;
    return height ? svg("rect", { class: name.toLowerCase(), x: left, y: top, width: width - gap,
      height }) : null;
  });
  const volume = Math.max(1, (VOLUME * rows) / (found.end - found.start) / fastest);
  return svg("g", null, svg("title", null, title(found)), parts, svg("rect", { class: "volume",
    x: left, y: TOP + MIDDLE + GAP + VOLUME - volume, width: width - gap, height: volume }));
}

function draw(columns, width) {
  const each = (width - LEFT - RIGHT) / columns.length, x = (c) => LEFT + c * each;
  const y = (part) => TOP + MIDDLE * (1 - part);
  const fastest = roundUp(Math.max(...columns.map((c) => c.rows / (c.end - c.start)), 1e-3));
  const rows = columns.reduce((sum, c) => sum + c.rows, 0);
  const known = columns.reduce((sum, c) => sum + c.IK, 0);
  const base = TOP + MIDDLE + GAP;
  return {
    label: `Shares over time: ${count(rows)} answers, ${share(known, rows)} of them known`,
    shapes: [
      levelLines(LEFT, width - RIGHT, y, [0, 0.5, 1], (part) => `${100 * part}%`),
      svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: base + VOLUME, y2: base + VOLUME }),
      rows ? svg("text", { class: "tick", x: LEFT - 6, y: base + 10, "text-anchor": "end" },
        perSecond(fastest)) : null,
      columns.map((found, c) => (found.rows ? column(found, x(c), each, fastest) : null)),
      rows ? null : svg("text", { class: "empty", x: LEFT + (width - LEFT) / 2, y: y(0.5) - 8,
        "text-anchor": "middle" }, "nothing yet"),
      timeTicks(columns, x, HEIGHT - 4, width > 480),
    ],
  };
}

/** range: the chosen one of SPANS, shared by the charts; choose: tells them all.
@returns {Part<LiveStatus>} */
export function make(range, choose) {
  let live = null;
  const { picture, redraw } = chart(HEIGHT, (width) =>
    draw(gather(live?.series ?? [], live?.now ?? Date.now() / 1000, range.chosen), width));
  const choice = SPANS.map((each) => h("label", null, h("input", { type: "radio", name: range.name,
    checked: each === range.chosen, onchange: () => choose(each) }), h("span", null, each.title)));
  const element = h("section", { class: "card timeline" },
    h("div", { class: "heading" }, h("h2", null, "Over time"),
      h("div", { class: "legend" }, [2, 1, 0].map(badge)),
      h("div", { class: "choice", role: "radiogroup", "aria-label": "How far back" }, choice)),
    picture,
    h("p", { class: "hint" }, "Above, the share of each answer; below, answers per second."));
  return { element, update: (status) => { live = status; redraw(); } };
}
