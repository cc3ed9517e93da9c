/* The ruler: distances of one sample in one layer on a line, and how far the reach goes. */

import { brief, svg, short } from "./dom.js";
import * as Words from "./words.js";

const [WIDTH, LEFT, RIGHT, BASE] = [400, 12, 12, 46];

function mark(x, candidate) {
  const side = x > WIDTH * 0.72 ? "end" : x < WIDTH * 0.28 ? "start" : "middle";
  const shape = candidate.own
    ? svg("circle", { cx: x, cy: BASE, r: 6.5 })
    : svg("path", { d: `M${x} ${BASE - 7}l7 7l-7 7l-7-7z` });
  return svg("g", { class: candidate.own ? "mark for" : "mark against" }, shape,
    svg("text", { x, y: candidate.own ? BASE - 14 : BASE + 25, "text-anchor": side },
      `${brief(candidate.label, 14)} ${short(candidate.distance)}`));
}

/* The samples before one that completes a quorum, small: they do not count alone. */
const before = (x, { own, nearer }) => nearer.filter(({ distance }) => Number.isFinite(distance))
  .map(({ distance }) => svg("circle", { class: `before ${own ? "for" : "against"}`,
    cx: x(distance), cy: BASE, r: 3.5 }));

/* look: what words.js says about the layer. */
export function draw(look) {
  const { own, against, none } = look, { reach } = own;
  const candidates = [own, against].filter(Words.exists);
  const values = [...candidates.map((c) => c.distance), reach].filter(Number.isFinite);
  const most = 1.18 * Math.max(...values, 1e-300);
  const x = (value) => LEFT + ((WIDTH - LEFT - RIGHT) * Math.max(0, Math.min(value, most))) / most;
  const end = x(reach);
  const side = end > WIDTH * 0.75 ? "end" : end < WIDTH * 0.2 ? "start" : "middle";
  const words = candidates.map((c) => `${c.label} at ${short(c.distance)}`).join(", ");
  const far = reach === -Infinity ? "no reach" : `${none ? "limit" : "ρ"} ${short(reach)}`;
  return svg("svg", { class: "ruler", viewBox: `0 0 ${WIDTH} 80`, role: "img",
    "aria-label": `${far.replace("ρ", "reach")}; ${words}` },
  svg("rect", { class: none ? "reach none" : "reach", x: LEFT, y: BASE - 9,
    width: end - LEFT, height: 18, rx: 4 }),
  svg("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: BASE, y2: BASE }),
  svg("line", { class: "end", x1: end, x2: end, y1: 16, y2: BASE + 11 }),
  svg("text", { class: "reach-label", x: end, y: 12, "text-anchor": side }, far),
  candidates.flatMap((candidate) => before(x, candidate)),
  candidates.map((candidate) => mark(x(candidate.distance), candidate)));
}
