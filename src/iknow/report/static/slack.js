"use strict";
/* Slack: how much one setting of a layer would have to change for an assertion to be another.

As a radius grows, a support changes only where it reaches the nearest sample of a class: these
distances are all there is to try, the other layers staying as they are. Balls are closed: growing
turns the assertion from such a distance on, shrinking below it. */

const Slack = (() => {
  function parameterOf(setting) {
    if (setting.radii) return "factor";
    return setting.rule === "Nearest" ? "k" : "radius";
  }

  /* All values where anything changes, ascending. */
  function valuesToTry(layer, setting, i) {
    const parameter = parameterOf(setting);
    if (parameter === "k") return Array.from({ length: layer.nNeighbors }, (_, k) => k + 1);
    const values = new Set([0]);
    for (let j = 0; j < layer.width; j++) {
      const distance = Algebra.distanceAt(layer, i, j);
      const code = layer.codes[i * layer.width + j];
      values.add(setting.radii ? Algebra.inUnits(distance, setting.radii[code]) : distance);
    }
    return [...values].filter(Number.isFinite).sort((a, b) => a - b);
  }

  /* { parameter, value, shrink, grow }; shrink and grow: { at, becomes }, or null for nothing. */
  function find(evidence, settings, i, l) {
    const parameter = parameterOf(settings[l]);
    const value = settings[l][parameter];
    const assertion = (tried) => {
      const changed = settings.slice();
      changed[l] = { ...settings[l], [parameter]: tried };
      return Algebra.judge(evidence, changed, i).assertion;
    };
    const now = assertion(value);
    const values = valuesToTry(evidence.layers[l], settings[l], i);
    const differs = (tried) => assertion(tried) !== now;
    const up = values.find((tried) => tried > value && differs(tried));
    const down = values.findLast((tried) => tried < value && differs(tried));
    const grow = up === undefined ? null : { at: up, becomes: assertion(up) };
    let shrink = null;
    if (down !== undefined) {
      // It holds up to the next value, where the present assertion begins.
      const next = values.find((tried) => tried > down) ?? value;
      shrink = { at: Math.min(next, value), becomes: assertion(down) };
    }
    return { parameter, value, shrink, grow };
  }

  return { find };
})();
