"use strict";
/* Settings: a rule, and a slider for each of its parameters, in each layer. */

const Settings = (() => {
  const { h, byId } = Dom;
  const RULE_WORDS = {
    given: "The rules and parameters as they were given.",
    Ball: "Samples within the radius ε count.",
    Nearest: "The k nearest samples count, however far they are.",
    BallElseNearest: "Samples within ε count; where there are none, the k nearest (H-1).",
    BallWithNearest: "Samples within ε and the k nearest count; nothing if ε holds none (H-2).",
    RelativeBall: "If a sample is within ε, all up to so many times its distance count.",
  };

  function layerScale(layer, setting) {
    const distances = [];
    for (let at = 0; at < layer.distances.length; at++) {
      if (at % layer.width > 1) continue;
      const unit = setting.radii ? setting.radii[layer.codes[at]] : null;
      distances.push(unit === null ? layer.distances[at]
        : Algebra.inUnits(layer.distances[at], unit));
    }
    return Slider.quantileScale(distances);
  }

  function medianDistance(layer) {
    const own = [];
    for (let i = 0; i < layer.distances.length; i += layer.width) own.push(layer.distances[i]);
    const sorted = own.filter(Number.isFinite).sort((a, b) => a - b);
    return sorted[sorted.length >> 1] ?? 1;
  }

  function startingValues(layer) {
    const { given } = layer;
    const sorted = given.radii && given.radii.slice().sort((a, b) => a - b);
    const common = sorted && sorted[sorted.length >> 1];
    return {
      radius: given.radius ?? common ?? medianDistance(layer),
      k: given.k ?? Math.min(5, layer.nNeighbors),
      ratio: given.ratio ?? 1.5,
      factor: 1,
    };
  }

  const fewest = (layers) => Math.min(...layers.map((layer) => layer.nNeighbors));

  const same = (one, other) => one.rule === other.rule && !one.radii === !other.radii
    && (one.radii ? one.factor === other.factor
      : Algebra.RULES[one.rule].every((name) => one[name] === other[name]));

  /* The panel. onchange() is called after every change. */
  function create(layers, onchange) {
    const mostNeighbors = fewest(layers);
    let rule = "given";
    let values = layers.map(startingValues);

    const current = () => layers.map(({ given }, l) => ({
      ...values[l],
      rule: rule === "given" ? given.rule : rule,
      radii: rule === "given" ? given.radii : null,
    }));
    const isGiven = () => current().every((setting, l) => same(setting, layers[l].given));

    function changed() {
      byId("reset").disabled = isGiven() && rule === "given";
      onchange();
    }

    function layerSlider(layer, l, setting) {
      const parameter = setting.radii ? "factor" : "radius";
      const given = setting.radii ? 1 : layer.given.radius;
      return Slider.create({
        id: `radius-${l}`, smallest: 0, given, scale: layerScale(layer, setting),
        label: setting.radii ? `all ε of layer ${layer.name}, times` : `ε in layer ${layer.name}`,
        value: () => values[l][parameter],
        onset: (now) => { values[l][parameter] = now; changed(); },
      });
    }

    const usersOf = (name) => current().flatMap((setting, l) =>
      (Algebra.RULES[setting.rule].includes(name) ? [l] : []));

    function sharedSlider(name, label, scaleFor, { whole = false, idle = false } = {}) {
      const users = idle ? layers.map((_, l) => l) : usersOf(name);
      if (!users.length) return null;
      const scale = scaleFor(users.map((l) => layers[l]));
      const given = layers[users[0]].given[name];
      const put = (now) => { values.forEach((each) => { each[name] = now; }); changed(); };
      return Slider.create({ id: name, label, scale, given, smallest: 1, whole, idle, onset: put,
        value: () => values[users[0]][name] });
    }

    /* Where no rule has a k its slider stays, at rest: it tells that there are rules which do. */
    function kSlider() {
      if (!mostNeighbors) return [];
      const idle = usersOf("k").length === 0;
      const label = "k, nearest samples";
      const scale = (users) => Slider.wholeScale(fewest(users));
      return [
        sharedSlider("k", label, scale, { whole: true, idle }),
        idle ? h("p", { class: "hint" }, "For Nearest, BallElseNearest and BallWithNearest.") : null,
      ];
    }

    function controls() {
      const settings = current();
      return [
        ...layers.map((layer, l) => (Algebra.RULES[settings[l].rule].includes("radius")
          ? layerSlider(layer, l, settings[l]) : null)),
        ...kSlider(),
        sharedSlider("ratio", "ratio to the nearest", () => Slider.linearScale(1, 4, 300)),
      ].filter((control) => control !== null);
    }

    function ruleChooser() {
      const option = (value) => h("option", {
        value, disabled: !mostNeighbors && Algebra.RULES[value]?.includes("k"),
      }, value === "given" ? "as given" : value);
      const select = h("select", { id: "rule" }, Object.keys(RULE_WORDS).map(option));
      select.value = rule;
      select.addEventListener("change", () => { rule = select.value; show(); changed(); });
      return h("div", { class: "chooser" }, h("label", { for: "rule" }, "Rule"), select);
    }

    function show() {
      const words = rule === "given"
        ? `${[...new Set(current().map((setting) => setting.rule))].join(", ")}: as it was given.`
        : RULE_WORDS[rule];
      const focused = document.activeElement?.id;
      byId("controls").replaceChildren(ruleChooser(), h("p", { class: "hint" }, words),
        ...controls(), ...notes());
      if (focused) byId(focused)?.focus();
    }

    function notes() {
      const held = Math.min(...layers.map((layer) => layer.nHeld));
      const notes = [];
      if (!mostNeighbors) {
        notes.push("The rules with k need neighbours, which the evidence does not hold: "
          + "assess(X, k=20) collects them.");
      } else if (mostNeighbors < held) {
        notes.push(`k goes to ${mostNeighbors} here; the evidence holds ${held} neighbours.`);
      }
      return notes.map((note) => h("p", { class: "hint" }, note));
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

  return { create };
})();
