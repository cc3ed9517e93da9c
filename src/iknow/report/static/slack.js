/* Slack: how much one setting of a layer would have to change for an assertion to be another.

Only the values where a support can change are tried, the other layers staying as they are. Balls
are closed: growing turns the assertion from such a value on, shrinking below it. */

import * as Algebra from "./algebra.js";
import { PARAMETERS } from "./parameters.js";

/* { parameter, value, shrink, grow }; shrink and grow: { at, becomes }, or null for nothing.
null for a rule that cannot be moved. */
export function find(evidence, settings, i, l) {
  const { [l]: layer } = evidence.layers, { [l]: setting } = settings;
  const parameter = setting.rule.slack;
  if (!parameter) return null;
  const value = setting[parameter];
  const assertion = (tried) => {
    const changed = settings.slice();
    changed[l] = { ...setting, [parameter]: tried };
    return Algebra.judge(evidence, changed, i).assertion;
  };
  const now = assertion(value);
  const turns = PARAMETERS[parameter].turns(layer, i);
  const values = [...new Set(turns)].filter(Number.isFinite).sort((a, b) => a - b);
  const differs = (tried) => assertion(tried) !== now;
  const up = values.find((tried) => tried > value && differs(tried));
  const down = values.findLast((tried) => tried < value && differs(tried));
  const grow = up === undefined ? null : { at: up, becomes: assertion(up) };
  // What shrinking turns to holds up to the next value, where the present assertion begins.
  const shrink = down === undefined ? null : { becomes: assertion(down),
    at: Math.min(values.find((tried) => tried > down) ?? value, value) };
  return { parameter, value, shrink, grow };
}
