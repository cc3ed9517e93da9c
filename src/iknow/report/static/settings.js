/* Settings: a rule, and a slider for each of its parameters, in each layer. */

import { h, byId } from "./dom.js";
import { fewestNeighbors, PARAMETERS } from "./parameters.js";
import * as Quorum from "./quorum.js";
import { RULES } from "./rules/registry.js";
import * as Slider from "./slider.js";

/* For each parameter of any rule: what was given, or where to start. */
const startingValues = (layer) => Object.fromEntries(Object.entries(PARAMETERS).map(
  ([name, parameter]) => [name, layer.given[name] ?? parameter.start(layer)]));

const same = (one, other) => one.rule === other.rule
  && one.rule.parameters.every((name) => one[name] === other[name]);

const hint = (text) => h("p", { class: "hint" }, text);

/* The panel. onchange() is called after every change. */
export function create(layers, onchange) {
  const mostNeighbors = fewestNeighbors(layers);
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
  function slider(name, users, idle = false) {
    const parameter = PARAMETERS[name], [first] = users, { given } = layers[first];
    return Slider.create({
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
    const words = layers.map(({ given }) => Quorum.describe(given));
    if (new Set(words).size === 1) return words[0] ? [words[0]] : [];
    return layers.flatMap(({ name }, l) => (words[l] ? [`Layer ${name}: ${words[l]}`] : []));
  }

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
      ...quorumWords().map(hint), ...sliders(), ...neighborWords().map(hint));
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
