/* Settings: a rule, and a slider for each of its parameters, in each layer. A slider follows the
data; it has a box for exact values and a mark at the given one. */

import { h, byId, short } from "./dom.js";
import { describeQuorum, distanceAt, distancesOf } from "./layer.js";
import { RULES } from "./rules.js";
import { chance } from "./words.js";

const STEPS = 1000;

/* A slider's places ↔ values: equally many of the observed distances lie between two places. */
function quantileScale(values) {
  const sorted = Float64Array.from(values.filter(Number.isFinite)).sort();
  const last = sorted.length - 1;
  if (last < 0) return linearScale(0, 1, STEPS);
  const valueAt = (place) => (place === 0 ? 0 : sorted[Math.round((last * place) / STEPS)]);
  const placeOf = (value) => {
    let [low, high] = [0, last + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < value) low = middle + 1; else high = middle;
    }
    return last ? Math.min(STEPS, (STEPS * low) / last) : STEPS / 2;
  };
  return { valueAt, placeOf, steps: STEPS, first: 0 };
}

function linearScale(from, to, steps) {
  return {
    valueAt: (place) => from + ((to - from) * place) / steps,
    placeOf: (value) => Math.max(0, Math.min(steps, (steps * (value - from)) / (to - from || 1))),
    steps, first: 0,
  };
}

/* The first place asks for no confidence at all. */
function confidenceScale(values) {
  const { valueAt, ...scale } = quantileScale(values);
  return { ...scale, valueAt: (place) => (place === 0 ? -Infinity : valueAt(place)) };
}

const wholeScale = (most) => ({ valueAt: Number, placeOf: Number, steps: most, first: 1 });

/* idle: the slider can be seen, but its value does not count at present. */
const asItIs = (value) => value;

/* read, write: from the numbers that the box shows to values, and back. */
function createSlider({ id, label, scale, value, given, smallest, whole = false, onset,
  idle = false, read = asItIs, write = asItIs }) {
  const givenPlace = given === null ? null : Math.round(scale.placeOf(given));
  const range = h("input", { type: "range", id, min: scale.first, max: scale.steps, step: 1,
    disabled: idle });
  const box = h("input", { type: "text", inputmode: "decimal", id: `${id}-exact`, size: 8,
    disabled: idle, "aria-label": `${label}, exact value`, autocomplete: "off",
    spellcheck: "false" });
  /* The box shows six digits; what is set has all of them. */
  const tell = (now) => {
    box.value = String(Number(write(now).toPrecision(6)));
    box.title = String(write(now));
    range.setAttribute("aria-valuetext", short(write(now)));
  };
  const show = (now) => { range.value = Math.round(scale.placeOf(now)); tell(now); };
  range.addEventListener("input", () => {
    const place = Number(range.value);
    const now = place === givenPlace ? given : scale.valueAt(place);
    tell(now);
    onset(now);
  });
  box.addEventListener("change", () => {
    const text = box.value.trim().replace(",", ".");
    const now = /^(inf|∞)/i.test(text) ? Infinity : read(Number(text));
    const usable = text !== "" && now >= smallest
      && (!whole || (Number.isInteger(now) && now <= scale.steps));
    show(usable ? now : value());
    if (usable) onset(now);
  });
  show(value());
  const track = h("div", { class: "track" }, range);
  if (givenPlace !== null) {
    const mark = h("span", { class: "mark", title: `given: ${short(write(given))}` });
    const share = (givenPlace - scale.first) / (scale.steps - scale.first || 1);
    mark.style.left = `calc(9px + ${share} * (100% - 18px))`;
    track.append(mark);
  }
  return h("div", { class: idle ? "slider idle" : "slider" }, h("label", { for: id }, label), track, box);
}

const fewestNeighbors = (layers) => Math.min(...layers.map((layer) => layer.nNeighbors));
const middle = (values) => values.sort((a, b) => a - b)[values.length >> 1];
const samplesOf = (layer) => Array.from({ length: layer.distances.length / layer.width }, (_, i) => i);

/* A radius to start from where none was given: the middle of d_g. */
function commonRadius(layer) {
  const own = samplesOf(layer).map((i) => distanceAt(layer, i, 0));
  return middle(own.filter(Number.isFinite)) ?? 1;
}

/* A parameter that is `perLayer` is set in each layer, another for all layers at once. turns: the
values where a support can change; of a radius, only where it reaches the nearest sample of a class. */
/** @type {Record<string, Parameter>} */
export const PARAMETERS = {
  radius: {
    id: "radius", symbol: "ε", smallest: 0, perLayer: true,
    label: ({ name }) => `ε in layer ${name}`,
    start: commonRadius,
    scale: ([layer]) => quantileScale(samplesOf(layer).flatMap((i) =>
      distancesOf(layer, i, Math.min(2, layer.width)))),
    turns: (layer, i) => [0, ...distancesOf(layer, i)],
  },
  k: {
    id: "k", symbol: "k", smallest: 1, whole: true,
    label: () => "k, nearest samples",
    start: (layer) => Math.min(5, layer.nNeighbors),
    scale: (layers) => wholeScale(fewestNeighbors(layers)),
    turns: (layer) => Array.from({ length: layer.nNeighbors }, (_, k) => k + 1),
  },
  ratio: {
    id: "ratio", symbol: "ratio", smallest: 0, perLayer: true,
    label: ({ name }) => `ratio in layer ${name}`,
    start: () => 1.5,
    scale: ([{ given }]) => linearScale(0, Math.max(4, Math.min(1.25 * (given.ratio ?? 0), 40)), 400),
    turns: () => [],
  },
};

/* For each parameter of any rule: what was given, or where to start. */
const startingValues = (layer) => Object.fromEntries(Object.entries(PARAMETERS).map(
  ([name, parameter]) => [name, layer.given[name] ?? parameter.start(layer)]));

const same = (one, other) => one.rule === other.rule
  && one.rule.parameters.every((name) => one[name] === other[name]);

const hint = (text) => h("p", { class: "hint" }, text);

/* The panel. confidence: of each sample, as log-odds, or null; given: the least that IK needs.
onchange() is called after every change. */
export function create(layers, confidence, given, onchange) {
  const mostNeighbors = fewestNeighbors(layers);
  let rule = "given", least = given;
  let values = layers.map(startingValues);

  const current = () => layers.map(({ given }, l) => ({
    ...given, ...values[l], rule: rule === "given" ? given.rule : RULES[rule],
  }));
  const isGiven = () => least === given
    && current().every((setting, l) => same(setting, layers[l].given));

  function changed() {
    byId("reset").disabled = isGiven() && rule === "given";
    onchange();
  }

  /* One slider for a parameter of some layers. idle: it is seen, but sets nothing at present. */
  function slider(name, users, idle = false) {
    const parameter = PARAMETERS[name], [first] = users, { given } = layers[first];
    return createSlider({
      ...parameter, idle,
      id: parameter.perLayer ? `${parameter.id}-${first}` : parameter.id,
      label: parameter.label(layers[first]),
      scale: parameter.scale(users.map((l) => layers[l])),
      given: given.rule.parameters.includes(name) ? given[name] : null,
      value: () => values[first][name],
      onset: (now) => {
        (parameter.perLayer ? [values[first]] : values).forEach((each) => { each[name] = now; });
        changed();
      },
    });
  }

  function sliders() {
    const usersOf = (name) => current().flatMap((setting, l) =>
      (setting.rule.parameters.includes(name) ? [l] : []));
    const made = Object.keys(PARAMETERS).flatMap((name) => {
      const users = usersOf(name);
      if (PARAMETERS[name].perLayer) return users.map((l) => slider(name, [l]));
      return users.length ? [slider(name, users)] : [];
    });
    if (usersOf("k").length || !mostNeighbors) return made;
    // Without a rule that has a k, an idle slider shows that there are such rules.
    const having = Object.keys(RULES).filter((name) => RULES[name].parameters.includes("k"));
    return [...made, slider("k", layers.map((_, l) => l), true), hint(`For ${having.join(", ")}.`)];
  }

  const confidenceSlider = () => createSlider({
    id: "confidence", label: "least probability by the model", smallest: -Infinity,
    scale: confidenceScale(confidence), value: () => least,
    given: given > -Infinity ? given : null,
    read: (share) => (share <= 0 ? -Infinity : Math.log(share / (1 - share))), write: chance,
    onset: (now) => { least = now; changed(); },
  });

  function ruleChooser() {
    const isClosed = (name) => !mostNeighbors && RULES[name].parameters.includes("k");
    const select = h("select", { id: "rule" }, h("option", { value: "given" }, "as given"),
      Object.keys(RULES).map((name) =>
        h("option", { value: name, disabled: isClosed(name) }, name)));
    select.value = rule;
    select.addEventListener("change", () => { rule = select.value; show(); changed(); });
    return h("div", { class: "chooser" }, h("label", { for: "rule" }, "Rule"), select);
  }

  /* What the given quorums ask for: another rule keeps them. */
  function quorumWords() {
    const words = layers.map(({ given }) => describeQuorum(given));
    if (new Set(words).size === 1) return words[0] ? [words[0]] : [];
    return layers.flatMap(({ name }, l) => (words[l] ? [`Layer ${name}: ${words[l]}`] : []));
  }

  /* That something like it must have been seen: a bound without a slider. */
  const seenWords = () => layers.flatMap(({ name }, l) => (current()[l].rule === RULES.RelativeBall
    && current()[l].seen < Infinity ? [`Layer ${name}: something like it must have been seen, the tenth `
      + `nearest sample of any class within ${short(current()[l].seen)}.`] : []));

  const ruleWords = () => (rule !== "given" ? [RULES[rule].words]
    : [...new Set(layers.map(({ name, given }) => (given.rule.parameters.length
      ? `${given.rule.name}: ${given.rule.words}`
      : `Layer ${name}: ${given.text}. ${given.rule.words}`)))]);

  function neighborWords() {
    const held = Math.min(...layers.map((layer) => layer.nHeld));
    if (mostNeighbors) return mostNeighbors === held ? []
      : [`k goes up to ${mostNeighbors} here; the evidence holds ${held} neighbors.`];
    return ["The rules with k need neighbors, which this evidence does not hold: "
      + "assess(X, k=20) collects them."];
  }

  function show() {
    const focused = document.activeElement?.id;
    byId("controls").replaceChildren(ruleChooser(), ...ruleWords().map(hint),
      ...seenWords().map(hint), ...quorumWords().map(hint), ...sliders(), ...(confidence ? [confidenceSlider()] : []),
      ...neighborWords().map(hint));
    if (focused) byId(focused)?.focus();
  }

  byId("reset").addEventListener("click", () => {
    rule = "given";
    least = given;
    values = layers.map(startingValues);
    show();
    changed();
    byId("rule").focus();
  });
  show();
  return { current, isGiven, leastConfidence: () => least };
}
