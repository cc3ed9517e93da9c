/* Settings: a rule, and a slider for each of its parameters, in each layer. */

import { h, byId } from "./dom.js";
import { fewestNeighbors, K } from "./parameters.js";
import { RULES } from "./rules/registry.js";
import * as Slider from "./slider.js";

/* For each parameter of any rule: what was given, or where to start. */
function startingValues(layer) {
  const rules = [layer.given.rule, ...Object.values(RULES)];
  const parameters = Object.assign({}, ...rules.map((rule) => rule.parameters));
  return Object.fromEntries(Object.entries(parameters).map(([name, parameter]) =>
    [name, layer.given[name] ?? parameter.start(layer)]));
}

const same = (one, other) => one.rule === other.rule
  && Object.keys(one.rule.parameters).every((name) => one[name] === other[name]);

/* The panel. onchange() is called after every change. */
export function create(layers, onchange) {
  let rule = "given";
  let values = layers.map(startingValues);

  const current = () => layers.map(({ given }, l) => ({
    ...given, ...values[l], rule: rule === "given" ? given.rule : RULES[rule],
  }));
  const isGiven = () => current().every((setting, l) => same(setting, layers[l].given));

  function changed() {
    byId("reset").disabled = isGiven() && rule === "given";
    onchange();
  }

  /* One slider for a parameter of some layers. idle: it is seen, but sets nothing at present. */
  function slider(name, parameter, users, idle = false) {
    const [first] = users;
    const { given } = layers[first];
    return Slider.create({
      id: parameter.shared ? parameter.id : `${parameter.id}-${first}`,
      label: parameter.label(layers[first]),
      scale: parameter.scale(users.map((l) => layers[l]), current()[first]),
      given: name in given.rule.parameters ? given[name] : null,
      smallest: parameter.smallest, whole: parameter.whole, idle,
      value: () => values[first][name],
      onset: (now) => {
        const set = parameter.shared ? values : [values[first]];
        set.forEach((each) => { each[name] = now; });
        changed();
      },
    });
  }

  /* A slider in each layer, and one for all layers of a parameter that they share. */
  function sliders() {
    const users = new Map();
    current().forEach((setting, l) => {
      for (const [name, parameter] of Object.entries(setting.rule.parameters)) {
        const place = parameter.shared ? name : `${name} ${l}`;
        if (!users.has(place)) users.set(place, [name, parameter, []]);
        users.get(place)[2].push(l);
      }
    });
    const found = [...users.values()].sort((one, other) => one[1].shared - other[1].shared);
    const made = found.map(([name, parameter, its]) => slider(name, parameter, its));
    // Where no rule has a k its slider stays, at rest: it tells that there are rules that do.
    if (!users.has("k") && K.isThere(layers)) {
      const having = Object.keys(RULES).filter((name) => "k" in RULES[name].parameters);
      made.push(slider("k", K, layers.map((_, l) => l), true), hint(`For ${having.join(", ")}.`));
    }
    return made;
  }

  const hint = (text) => h("p", { class: "hint" }, text);

  function ruleChooser() {
    const isClosed = (name) =>
      Object.values(RULES[name].parameters).some((parameter) => !parameter.isThere(layers));
    const select = h("select", { id: "rule" }, h("option", { value: "given" }, "as given"),
      Object.keys(RULES).map((name) =>
        h("option", { value: name, disabled: isClosed(name) }, name)));
    select.value = rule;
    select.addEventListener("change", () => { rule = select.value; show(); changed(); });
    return h("div", { class: "chooser" }, h("label", { for: "rule" }, "Rule"), select);
  }

  function ruleWords() {
    if (rule !== "given") return [RULES[rule].words];
    return [...new Set(layers.map(({ name, given }) => (given.rule.slack === null
      ? `Layer ${name}: ${given.text}. ${given.rule.words}`
      : `As given: ${given.rule.name}. ${given.rule.words}`)))];
  }

  function neighborWords() {
    const most = fewestNeighbors(layers), held = Math.min(...layers.map((layer) => layer.nHeld));
    if (!most) {
      return ["The rules with k need neighbors, which this evidence does not hold: "
        + "assess(X, k=20) collects them."];
    }
    return most < held ? [`k goes up to ${most} here; the evidence holds ${held} neighbors.`] : [];
  }

  function show() {
    const focused = document.activeElement?.id;
    byId("controls").replaceChildren(ruleChooser(), ...ruleWords().map(hint), ...sliders(),
      ...neighborWords().map(hint));
    if (focused) byId(focused)?.focus();
  }

  byId("reset").addEventListener("click", () => {
    rule = "given";
    values = layers.map(startingValues);
    show();
    changed();
    byId("rule").focus();
  });
  show();
  return { current, isGiven };
}
