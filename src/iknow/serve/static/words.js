/* Words: times, durations and evidence as a person says them. */

import { count, short } from "../../report/static/dom.js";

/* The share of a whole; neither a few nor nearly all read as none or all. */
export function share(part, whole) {
  if (!whole) return "–";
  const value = (100 * part) / whole;
  if (part > 0 && value < 0.1) return "< 0.1%";
  if (part < whole && value > 99.9) return "> 99.9%";
  return `${value.toFixed(1)}%`;
}

const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
/* The largest unit that fits: "3 minutes". */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const [unit, size] = UNITS.find(([, length]) => whole >= Number(length)) ?? UNITS[3];
  const many = Math.floor(whole / Number(size));
  return `${count(many)} ${unit}${many === 1 ? "" : "s"}`;
}

export const ago = (seconds) => (seconds < 2 ? "just now" : `${duration(seconds)} ago`);

/* The time of day on the reader's clock. */
export const clock = (epoch, seconds = true) => new Date(1000 * epoch).toLocaleTimeString("en-GB",
  { hour: "2-digit", minute: "2-digit", ...(seconds ? { second: "2-digit" } : {}) });

export function latency(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  return seconds < 1 ? `${short(1000 * seconds, 2)} ms` : `${short(seconds, 3)} s`;
}

export const perSecond = (rate) =>
  (Number.isFinite(rate) ? `${rate < 10 ? short(rate, 2) : count(Math.round(rate))}/s` : "–");

/* An e-value given by its logarithm to base 10. */
export function odds(log) {
  if (!Number.isFinite(log)) return "–";
  if (log < 0) return "below 1";
  if (log < 6) return count(Number((10 ** log).toPrecision(2)));
  return "> 10⁶";
}

/* A text of the server's as a sentence. */
export const sentence = (text) => (text ? `${text[0].toUpperCase()}${text.slice(1)}`
  + (/[.!?]$/.test(text) ? "" : ".") : "");

/* A level has as many decimals as there can be reference samples to tell it by. */
export const level = (value) => (value === 0 ? "0" : value < 0.1 ? value.toFixed(3) : value.toFixed(2));

/* A name of the server's, such as n_samples, as words. */
export const spaced = (key) => key.replaceAll("_", " ");

/* Any value of the server's as a short text. */
export function plain(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return Number.isInteger(value) ? count(value) : short(value, 3);
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
