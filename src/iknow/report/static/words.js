/* Words: why one sample got its assertion, in sentences that name the facts. */

import * as Algebra from "./algebra.js";
import { label, short } from "./dom.js";
import { countNeeded, rankWords } from "./layer.js";

/* The samples of the class in column j before the one that completes its quorum. */
function nearer({ width, nearerRows, nearerDistances }, { quorum }, i, j) {
  const before = Math.max(...quorum) - 1, from = (i * width + j) * before;
  return Array.from({ length: countNeeded({ quorum }, j) - 1 }, (_, m) =>
    ({ row: nearerRows[from + m], distance: nearerDistances[from + m] }));
}

/* What one layer says about a sample: its classes within reach, nearest first. */
export function look(facts, layer, setting, i) {
  const candidates = Array.from({ length: layer.width }, (_, j) => {
    const at = i * layer.width + j;
    return {
      j, own: j === 0, code: layer.codes[at], label: label(facts, layer.codes[at]),
      row: layer.rows[at], distance: layer.distances[at],
      needed: countNeeded(setting, j), nearer: nearer(layer, setting, i, j),
      within: Algebra.isWithin(layer, setting, i, j),
      reach: Algebra.reachOf(layer, setting, i, j),
    };
  });
  const [own, ...others] = candidates;
  const rivals = others.filter((other) => other.within);
  // Of classes with reaches of their own the one that matters may not be the nearest.
  const against = rivals[0] ?? others[0] ?? null;
  return {
    layer, setting, own, rivals, against,
    empty: !own.within && rivals.length === 0,
    alone: own.within && rivals.length === 0,
    none: setting.rule.ballOf(layer, setting, i).none === true,
    margin: setting.rule.marginOf(layer, setting, i),
  };
}

export const name = (candidate) => `“${candidate.label}”`;
export const exists = (candidate) => candidate !== null && Number.isFinite(candidate.distance);
export const list = (words) => (words.length < 2 ? words.join("")
  : `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`);

const few = ({ needed }) => (needed === 1 ? "there is no training sample"
  : `there are fewer than ${needed} training samples`);

/* Where rules have no voices: what is within reach, in the layers that decide. */
const LEADS = ["Only that class has enough training samples within reach",
  "Several classes have enough training samples within reach",
  "The layers find enough training samples within reach, but not of the same class",
  "A layer has too few training samples within reach",
  "Other classes have enough training samples within reach, and that class has not"];
const CONCERNED = { [Algebra.OVERLAP]: (look) => look.rivals.length + Number(look.own.within) > 1,
  [Algebra.EXTRAPOLATION]: (look) => look.empty };

function fact(candidate) {
  const { needed, row, distance, reach, within } = candidate;
  if (!exists(candidate)) return `${few(candidate)} of ${name(candidate)}`;
  const where = `${within ? "within" : "beyond"} the reach of ${short(reach)}`;
  return `the ${rankWords(needed)} training sample of ${name(candidate)} (#${row}) is at `
    + `${short(distance)}, ${Number.isFinite(reach) ? where : "out of reach"}`;
}

const byLayers = (looks, reason) => `${LEADS[reason]}: ${looks.filter(CONCERNED[reason] ?? Boolean)
  .map(({ layer, own, against }) =>
    `in layer ${layer.name} ${list([own, against].filter(Boolean).map(fact))}`).join("; ")}`;

/* Voices: what decides where the reach is measured from the believed class. As in
iknow.explain.voices, whose words these are. */

/* Two numbers with as many digits as it takes to see which is larger. */
function tellApart(value, limit) {
  let digits = 4;
  while (digits < 8 && value !== limit && short(value, digits) === short(limit, digits)) digits++;
  return [short(value, digits), short(limit, digits)];
}

/* What each voice in a layer finds: strain is 1 where it is about to fail. */
export function voicesOf({ layer, setting, own, against }, i) {
  const { radius, ratio, seen } = setting, title = (voice) => `${voice} in ${layer.name}`;
  if (!exists(own)) {
    return [{ voice: "nearness", title: title("nearness"), holds: false, strain: Infinity, found: "∞",
      needed: `${short(radius)} or less`, fact: `${few(own)} of ${name(own)}` }];
  }
  const voices = [];
  const add = (voice, value, most, holds, strain, words, ask = (text) => `${text} or less`) => {
    const [found, limit] = tellApart(value, most);
    voices.push({ voice, title: title(voice), holds, strain, found, needed: ask(limit),
      fact: `${words(found)}; IK needs ${ask(limit)}` });
  };
  if (radius < Infinity) {
    add("nearness", own.distance, radius, own.distance <= radius, own.distance / radius, (found) =>
      `the ${rankWords(own.needed)} training sample of ${name(own)} (#${own.row}) is ${found} away`);
  }
  if (ratio > 0 && exists(against)) {
    const times = against.distance / own.distance;
    add("clarity", times, ratio, ratio * own.distance < against.distance, ratio / times, (found) =>
      `the ${rankWords(against.needed)} training sample of another class (${name(against)}, `
      + `#${against.row}) is ${short(against.distance)} away, ${found} times as far as `
      + `${own.needed === against.needed ? "that" : `the ${rankWords(own.needed)}`} of ${name(own)} `
      + `(${short(own.distance)})`, (text) => `more than ${text} times`);
  }
  if (seen < Infinity) {
    const tenth = layer.tenth[i];
    add("familiarity", tenth, seen, tenth <= seen, tenth / seen, (found) =>
      `the tenth nearest training sample, of whatever class, is ${found} away`);
  }
  return voices;
}

export const chance = (odds) => 1 / (1 + Math.exp(-odds));

const FAILED = {
  nearness: "No training sample of that class is near enough",
  familiarity: "Too little like it was seen in training",
  clarity: "Another class is too near",
  confidence: "The model itself is not sure enough",
};
const ABLE = { [Algebra.EXTRAPOLATION]: ["nearness", "familiarity"], [Algebra.OVERLAP]: ["clarity"],
  [Algebra.DOUBT]: ["confidence"] };
const THUS = ["I don't know", "I may know", "I know"];

/* Which voice decides, and how. confidence: { odds, least }; weakest: its title, if it is known. */
function byVoices(looks, i, { assertion, reason }, { odds, least }, weakest) {
  const own = name(looks[0].own);
  const voices = looks.flatMap((each) => voicesOf(each, i));
  if (least > -Infinity) {
    const [found, needed] = tellApart(chance(odds), chance(least));
    voices.push({ voice: "confidence", title: "confidence", holds: odds >= least, strain: 0,
      fact: `the model gives ${own} a probability of ${found}; IK needs ${needed} or more` });
  }
  const able = voices.filter(({ voice, holds }) => ABLE[reason]?.includes(voice) && !holds);
  const from = ABLE[reason] ? able : voices;
  const decides = from.find(({ title }) => title === weakest)
    ?? from.reduce((a, b) => (b.strain > a.strain ? b : a), from[0]);
  if (!decides) return "No voice asks for anything. So: I know.";
  const others = voices.filter((voice) => !voice.holds && voice !== decides);
  const also = others.length ? ` Failing too: ${others.map(({ title }) => title).join(", ")}.` : "";
  const part = decides.holds ? "is closest to failing" : "decides";
  return `${decides.holds ? "Every voice agrees" : FAILED[decides.voice]} (${decides.title} ${part}): `
    + `${decides.fact}. So: ${THUS[assertion]}.${also}`;
}

/* The reason of an assertion in plain sentences. looks: of each layer, with its margin. */
export function explain(looks, i, judged, confidence, weakest) {
  const [{ own }] = looks, { reason } = judged;
  const opening = own.code < 0 ? "The model gives no answer. " : `The model says ${name(own)}. `;
  if (reason === Algebra.INVALID) {
    return `${opening}But the input, or what the model makes of it, is not a finite number. `
      + "Nothing can be compared with it. So: I don't know.";
  }
  if (reason !== Algebra.UNCERTIFIED && looks.every(({ setting }) => setting.rule.fromBelief)) {
    return opening + byVoices(looks, i, judged, confidence, weakest);
  }
  const but = { [Algebra.UNCERTIFIED]: "predictions of it have no certified accuracy",
    [Algebra.DOUBT]: "the model's own confidence is below the threshold" }[reason];
  const why = but ? `All else speaks for IK, but ${but}` : byLayers(looks, reason);
  return `${opening}${why}. So: ${THUS[judged.assertion]}.`;
}
