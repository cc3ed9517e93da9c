/* Reliability: of the samples that are about so likely right, how many are. */

import * as Algebra from "./algebra.js";
import { byId, count, h, percent, svg } from "./dom.js";

const BINS = 10;
const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BASE] = [420, 320, 50, 22, 12, 278];

/* Samples by probability in bins of equal width: how likely right on average, how many are, and
Wilson's 95% interval for that. */
export function binned(evidence) {
  const bins = Array.from({ length: BINS }, () => ({ n: 0, likely: 0, right: 0 }));
  for (let i = 0; i < evidence.n; i++) {
    if (!evidence.counted[i] || evidence.belief[i] < 0) continue;
    const bin = bins[Math.min(BINS - 1, Math.floor(BINS * evidence.probability[i]))];
    bin.n += 1;
    bin.likely += evidence.probability[i];
    bin.right += Number(Algebra.isRight(evidence, i));
  }
  return bins.filter(({ n }) => n).map(({ n, likely, right }) => {
    const share = right / n, z = 1.96 ** 2 / n;
    const middle = (share + z / 2) / (1 + z);
    const reach = Math.sqrt(z * (share * (1 - share) + z / 4)) / (1 + z);
    return { n, likely: likely / n, right: share, low: middle - reach, high: middle + reach };
  });
}

function draw(bins) {
  const x = (value) => LEFT + (WIDTH - LEFT - RIGHT) * value;
  const y = (value) => BASE - (BASE - TOP) * value;
  const most = Math.max(...bins.map(({ n }) => n));
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  return svg("svg", { class: "stairs", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
    "aria-label": bins.map((b) => `${percent(b.likely, 1)} likely: ${percent(b.right, 1)} right`).join("; ") },
  ticks.map((tick) => [
    svg("line", { class: "axis", x1: x(0), x2: x(1), y1: y(tick), y2: y(tick) }),
    svg("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, `${100 * tick}%`),
    svg("text", { x: x(tick), y: BASE + 17, "text-anchor": "middle" }, `${100 * tick}%`)]),
  svg("line", { class: "ideal", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }),
  svg("text", { x: x(0.5), y: HEIGHT - 6, "text-anchor": "middle" }, "how likely right"),
  svg("text", { transform: `translate(11 ${y(0.5)}) rotate(-90)`, "text-anchor": "middle" }, "how many are"),
  bins.map((b) => svg("g", null,
    svg("title", null, `${count(b.n)} samples, ${percent(b.likely, 1)} likely right; `
      + `${percent(b.right, 1)} are, with a 95% interval from ${percent(b.low, 1)} to ${percent(b.high, 1)}`),
    svg("line", { class: "between", x1: x(b.likely), x2: x(b.likely), y1: y(b.low), y2: y(b.high) }),
    svg("circle", { cx: x(b.likely), cy: y(b.right), r: 3 + 6 * Math.sqrt(b.n / most) }))));
}

/* The section, if the page knows how likely each sample is right, and which are. */
export function show(evidence) {
  if (!evidence.probability || !evidence.truth) return;
  const bins = binned(evidence);
  const of = (name) => bins.reduce((sum, bin) => sum + bin.n * bin[name], 0);
  const n = bins.reduce((sum, bin) => sum + bin.n, 0);
  byId("reliability").hidden = n === 0;
  byId("stairs").replaceChildren(draw(bins), h("p", { class: "hint" },
    `All ${count(n)} together: ${percent(of("likely"), n)} likely right, ${percent(of("right"), n)} are.`));
}
