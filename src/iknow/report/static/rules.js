/* The rules that the page can move: an entry of RULES for each, by its name in Python.

A rule is asked about a layer, its setting { rule, and a value for each parameter }, a sample i, and
the class in column j. It answers with a ball: how far it goes, what is within, and why in words.
Where nothing counts by rule, a ball with `none` says how near a sample would have to be. */

import { short } from "./dom.js";
import { distanceAt, isInhabited, isRanked, kthDistance } from "./layer.js";
import { cross, line, nameRegion } from "./plot.js";

/* Robustness: how far an input may be moved before something else could be known about it.

As in iknow.core.robustness, which says why: a change must use up each of several lengths in a
layer, so the largest counts, less rounding, divided by the layer's Lipschitz constant. Of the
layers the largest counts, as IK needs all. Rounding and bisectors ("crossing") are not settings. */

const AT_MOST = 1 + 1e-9, AT_LEAST = 1 - 1e-9; // of a measured distance
const FURTHEST = 1e15 / 2;

/* How far the activation may move before another class could be alone within reach. For that it
needs as many samples as a belief does, and the belief as many as contradict one: with a quorum,
distances of their own. Bisectors say which class has the nearest sample, and nothing of others. */
function clearance(layer, setting, i) {
  const { rule } = setting, { attack } = layer;
  const distanceAt = (j) => (attack ?? layer.distances)[i * layer.width + j];
  let [outside, other] = [Infinity, Infinity];
  for (let j = 1; j < layer.width; j++) {
    const distance = distanceAt(j) * AT_LEAST;
    if (distance === Infinity) continue;
    const limit = rule.emptyBeyond(layer, setting, i, j);
    other = Math.min(other, distance);
    outside = Math.min(outside, limit === Infinity ? -Infinity : distance - limit);
  }
  const own = distanceAt(0) * AT_MOST;
  const inside = own === Infinity ? -Infinity : rule.fullWithin(layer, setting, i, 0) - own;
  const ratio = rule.ratioOf(setting);
  const ahead = other === Infinity ? Infinity : ratio * other;
  const nearer = own === Infinity ? -Infinity : (ahead - own) / (1 + ratio);
  const crossing = ratio >= 1 && setting.quorum[1] === 1 ? layer.crossing[i] : -Infinity;
  return Math.max(inside, outside, nearer, crossing);
}

/* What one layer certifies about a sample; the rule decides, and asks here by default. */
function layerRadius(layer, setting, i) {
  const clear = clearance(layer, setting, i);
  if (clear === Infinity && Number.isFinite(layer.rounding[i])) return Infinity;
  const room = Math.min(clear, layer.jumpsAt) - layer.rounding[i];
  return room > 0 ? Math.min(room / (layer.lipschitz * layer.stretch[i]), FURTHEST) : 0;
}

/* The ℓ2 length below which no change of the input makes another class IK, of shape (n,). */
export const robustRadii = ({ n, invalid, layers }, settings) => Float64Array.from({ length: n },
  (_, i) => (invalid[i] ? 0 : layers.reduce((best, layer, l) => (Number.isFinite(layer.lipschitz)
    ? Math.max(best, settings[l].rule.robustRadius(layer, settings[l], i)) : best), 0)));

/** @type {Ball} */
const WITHIN_RADIUS = {
  reach: (layer, { radius }) => radius,
  holds: (layer, { radius }, i, j) => distanceAt(layer, i, j) <= radius,
  words: (reach) => `${reach}, the radius ε`,
};

/** @type {Ball} */
const UP_TO_KTH = {
  reach: kthDistance,
  holds: isRanked,
  words: (reach, { k }) => `${reach}, the distance to nearest sample number ${k}`,
  single: true,  // precision
};

/** @type {Ball} */
const NO_BALL = {
  reach: WITHIN_RADIUS.reach,
  holds: () => false,
  words: (reach) => `none, as no sample is within ε = ${reach}`,
  none: true,
};

/* By how much the believed class is within reach, or another is not: the smallest of these. */
function marginOf(layer, setting, i) {
  const ball = setting.rule.ballOf(layer, setting, i);
  let margin = Infinity;
  for (let j = 0; j < layer.width; j++) {
    const distance = distanceAt(layer, i, j);
    const measured = ball.single ? Math.fround(distance) : distance;
    const beyond = distance === Infinity ? Infinity : measured - ball.reach(layer, setting, i, j);
    margin = Math.min(margin, j === 0 ? -beyond : beyond);
  }
  // Near enough, and yet nothing counts: nobody can say how much is missing.
  return ball.none && margin >= 0 ? -Infinity : margin;
}

/** @type {(own: OwnRule) => Rule} */
const makeRule = (own) => ({
  slack: "radius",  // the parameter whose slack is shown
  lines: "",        // what to know of the lines in its plot
  fromBelief: false,  // whether the reach is measured from the believed class
  marginOf,
  // Robustness: within which radius all samples count, beyond which none do, and what multiple of
  // the nearest distance the reach is at least.
  fullWithin: () => 0,
  emptyBeyond: () => Infinity,
  ratioOf: () => 1,
  robustRadius: layerRadius,
  drawLines: () => {},
  ...own,
});

/* BallWithNearest: which of the two is wider is found in single precision; what they hold is exact. */
const holds = (layer, setting, i, j) =>
  WITHIN_RADIUS.holds(layer, setting, i, j) || UP_TO_KTH.holds(layer, setting, i, j);
const [WIDE_KTH, WIDE_RADIUS] = [{ ...UP_TO_KTH, holds }, { ...WITHIN_RADIUS, holds }];

/* RelativeBall: others count up to `ratio` times as far as the class the model says. */
const multiple = (layer, { ratio }, i) =>
  (ratio > 0 ? ratio * distanceAt(layer, i, 0) : -Infinity);

/** @type {Ball} */
const MULTIPLE = {
  reach: multiple,
  holds: (layer, setting, i, j) => j === 0 || distanceAt(layer, i, j) <= multiple(layer, setting, i),
  words: (reach, { ratio }) => `${reach}, ${short(ratio)} × the distance to the class it says`,
};

/** With a ratio below 1 the class it says would be beyond the reach for others, but counts.
@type {Ball} */
const SHORT = {
  ...MULTIPLE,
  reach: (layer, setting, i, j) =>
    (j === 0 ? distanceAt(layer, i, 0) : multiple(layer, setting, i)),
  words: (reach, { ratio }) =>
    `${reach}, the distance to the class it says, and ${short(ratio)} × that for others`,
};

/* With a ratio of 0 no other class counts, wherever it is. */
const isFamiliar = (layer, { seen }, i) => !(seen < Infinity) || layer.tenth[i] <= seen;
const STRANGE = { ...NO_BALL, words: () => "none, as fewer than ten samples lie near enough" };
const FAR = { ...NO_BALL, words: (reach) => `none, as the class it says is not within ε = ${reach}` };

/* Up to ε, a ray: the other class that many times as far. Beyond, nothing counts. */
function drawRay(plot, { radius, ratio }) {
  const { pen, x, y, mostX, mostY } = plot;
  const end = Math.min(radius, mostX, mostY / ratio);
  line(pen, [[x(0), y(0)], [x(end), y(end * ratio)]], [5, 3]);
  if (radius < mostX) line(pen, [[x(radius), y(0)], [x(radius), y(mostY)]], [5, 3]);
  nameRegion(plot, "IK", x(0) + 8, y(mostY) + 16, "left");
  if (radius < mostX) nameRegion(plot, "IDK", x(mostX) - 8, y(mostY) + 16, "right");
  nameRegion(plot, "IMK", Math.min(x(radius), x(mostX)) - 8, y(0) - 8, "right");
}

const TO_NEIGHBORS = "Dotted lines are at ε; some samples' reach ends at their own k-th neighbor.";

export const RULES = {
  Ball: makeRule({
    name: "Ball", parameters: ["radius"],
    words: "Samples within the radius ε count.",
    ballOf: () => WITHIN_RADIUS,
    fullWithin: WITHIN_RADIUS.reach,
    emptyBeyond: WITHIN_RADIUS.reach,
    drawLines: (plot, { radius }) => cross(plot, radius, [5, 3]),
  }),
  Nearest: makeRule({
    name: "Nearest", parameters: ["k"], slack: "k",
    words: "The k nearest samples count, however far away they are.",
    lines: "Nearest draws no lines: each sample's reach ends at its own k-th neighbor.",
    ballOf: () => UP_TO_KTH,
  }),
  BallElseNearest: makeRule({
    name: "BallElseNearest", parameters: ["radius", "k"],
    words: "Samples within ε count; where there are none, the k nearest do (H-1).",
    lines: TO_NEIGHBORS,
    ballOf: (layer, setting, i) => (isInhabited(layer, setting, i) ? WITHIN_RADIUS : UP_TO_KTH),
    fullWithin: WITHIN_RADIUS.reach,
    drawLines: (plot, { radius }) => cross(plot, radius, [2, 4]),
  }),
  BallWithNearest: makeRule({
    name: "BallWithNearest", parameters: ["radius", "k"],
    words: "Samples within ε and the k nearest count; nothing does where ε holds none (H-2).",
    lines: TO_NEIGHBORS,
    ballOf(layer, setting, i) {
      if (!isInhabited(layer, setting, i)) return NO_BALL;
      return kthDistance(layer, setting, i) > Math.fround(setting.radius) ? WIDE_KTH : WIDE_RADIUS;
    },
    fullWithin: WITHIN_RADIUS.reach,
    emptyBeyond: WITHIN_RADIUS.reach,
    drawLines: (plot, { radius }) => cross(plot, radius, [2, 4]),
  }),
  RelativeBall: makeRule({
    name: "RelativeBall", parameters: ["radius", "ratio"], fromBelief: true, slack: "",
    words: "The class it says must be near, within ε, and any other class more than the ratio times "
      + "as far.",
    ballOf(layer, setting, i) {
      const own = distanceAt(layer, i, 0);
      if (own > setting.radius || own === Infinity) return FAR;
      if (!isFamiliar(layer, setting, i)) return STRANGE;
      return setting.ratio < 1 ? SHORT : MULTIPLE;
    },
    emptyBeyond: WITHIN_RADIUS.reach,
    ratioOf: ({ ratio }) => ratio,
    drawLines: drawRay,
  }),
};

/* Fixed: a rule that this page cannot move. It shows what Python found. */
/** @type {Ball} */
const GIVEN = {
  reach: (layer, setting, i, j) => layer.reach[i * layer.width + j],
  holds: (layer, setting, i, j) => layer.within[i * layer.width + j] === 1,
  words: (reach) => `${reach}, by the rule of this layer`,
};
const NOTHING = { ...GIVEN, words: () => "none, by the rule of this layer", none: true };

const Fixed = makeRule({
  name: "Fixed", parameters: [], slack: "",
  words: "Fixed: this page cannot move it.",
  lines: "A layer with a fixed rule has no lines.",
  ballOf: (layer, setting, i) => (layer.none[i] ? NOTHING : GIVEN),
  marginOf: (layer, setting, i) => layer.margin[i],
  robustRadius: (layer, setting, i) => layer.robust[i],
});

/* A setting as Python describes it: with a text where it is fixed. JSON has no infinity: it comes as text. */
export function readSetting({ rule: name, text, ...values }) {
  const number = (value) => (Array.isArray(value) ? value.map(number) : Number(value));
  const read = Object.entries(values).map(([key, value]) => [key, number(value)]);
  /** @type {Rule} */
  const rule = text === undefined ? RULES[name] : Fixed;
  return { ...Object.fromEntries(read), rule, text };
}
