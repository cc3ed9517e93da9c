/* The rules that the page can move, by their names in Python. */

import { Ball } from "./ball.js";
import { BallElseNearest } from "./ball_else_nearest.js";
import { BallWithNearest } from "./ball_with_nearest.js";
import { Fixed } from "./fixed.js";
import { Nearest } from "./nearest.js";
import { RelativeBall } from "./relative_ball.js";

export const RULES = { Ball, Nearest, BallElseNearest, BallWithNearest, RelativeBall };

/* A setting as Python describes it: with a text where it is fixed. JSON has no infinity: it comes as text. */
export function readSetting({ rule: name, text, ...values }) {
  const number = (value) => (Array.isArray(value) ? value.map(number) : Number(value));
  const read = Object.entries(values).map(([key, value]) => [key, number(value)]);
  /** @type {Rule} */
  const rule = text === undefined ? RULES[name] : Fixed;
  return { ...Object.fromEntries(read), rule, text };
}
