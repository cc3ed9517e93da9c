/* The rules that the page can move, by their names in Python. */

import { Ball } from "./ball.js";
import { BallElseNearest } from "./ball_else_nearest.js";
import { BallWithNearest } from "./ball_with_nearest.js";
import { Fixed } from "./fixed.js";
import { Nearest } from "./nearest.js";
import { OWN } from "./own.js";
import { RelativeBall } from "./relative_ball.js";

/** @type {Record<string, import("../types").Rule>} */
export const RULES = {
  Ball, Nearest, BallElseNearest, BallWithNearest, RelativeBall, ...OWN,
};

/* JSON has no infinity: it comes as text. */
const number = (value) => (Array.isArray(value) ? value.map(number) : Number(value));

/* A setting as Python describes it. */
export function readSetting({ rule, text, ...values }) {
  const read = Object.entries(values).map(([name, value]) => [name, number(value)]);
  const found = RULES[rule] ?? Fixed;
  return found.settle({ ...Object.fromEntries(read), rule: found, text });
}
