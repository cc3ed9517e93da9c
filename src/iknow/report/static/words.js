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
  const nearest = candidates.reduce((a, b) => (b.distance < a.distance ? b : a));
  return {
    layer, setting, own, rivals, against, nearest,
    empty: !own.within && rivals.length === 0,
    alone: own.within && rivals.length === 0,
    none: setting.rule.ballOf(layer, setting, i).none === true,
    margin: setting.rule.marginOf(layer, setting, i),
  };
}

export const name = (candidate) => `“${candidate.label}”`;
export const exists = (candidate) => candidate !== null && Number.isFinite(candidate.distance);
/* What counts for a class: "#17 of “5”", or "3 samples of “5” up to #17". */
const group = ({ needed, row, ...candidate }) => (needed === 1 ? `#${row} of ${name(candidate)}`
  : `${needed} samples of ${name(candidate)} up to #${row}`);
const are = ({ needed }) => (needed === 1 ? "is" : "are");
/* The sample that decides about a class. */
const deciding = ({ needed, row, ...candidate }) => (needed === 1 ? `#${row} of ${name(candidate)}`
  : `the ${rankWords(needed)} of ${name(candidate)}, #${row}`);
export const list = (words) => (words.length < 2 ? words.join("")
  : `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`);

const few = ({ needed }) => (needed === 1 ? "there is no training sample"
  : `there are fewer than ${needed} training samples`);
function ownFact({ own }) {
  if (!exists(own)) return `${few(own)} of ${name(own)}`;
  return `the ${rankWords(own.needed)} training sample of ${name(own)} (#${own.row}) is at `
    + `${short(own.distance)}`;
}

const limit = (candidate) => `the reach of ${short(candidate.reach)}`;
/* What others must be within: the same again, or a reach of their own where classes differ. */
const again = ({ own }, candidate) => (candidate.reach === own.reach ? "it"
  : `the reach of its class, ${short(candidate.reach)}`);

function known(looks) {
  const tight = looks.reduce((a, b) => (b.margin < a.margin ? b : a));
  const others = exists(tight.against)
    ? `; ${tight.against.needed === 1 ? "the nearest of another class, " : "of another class, "}`
      + `${deciding(tight.against)}, is at ${short(tight.against.distance)}, beyond `
      + `${again(tight, tight.against)}` : "";
  const every = looks.length > 1
    ? `The same holds in ${looks.length === 2 ? "the other layer" : "all layers"}. ` : "";
  return `In layer ${tight.layer.name} ${ownFact(tight)}, within ${limit(tight.own)}${others}. `
    + `${every}Only ${name(tight.own)} is supported, so: I know.`;
}

function overlap(looks) {
  const mixed = looks.find((l) => l.own.within && l.rivals.length)
    ?? looks.find((l) => l.rivals.length > 1);
  const rivals = mixed.rivals.slice(0, 2);
  if (mixed.own.within) {
    const [rival] = rivals;
    const its = again(mixed, rival), at = short(rival.distance);
    const but = its === "it" ? `But so ${are(rival)} ${group(rival)}, at ${at}`
      : `But ${group(rival)}, at ${at}, ${are(rival)} within ${its}`;
    return `In layer ${mixed.layer.name} ${ownFact(mixed)}, within ${limit(mixed.own)}. ${but}. `
      + "Both classes are supported, so: I may know.";
  }
  const support = looks.find((l) => l.own.within);
  return `Layer ${support.layer.name} supports ${name(mixed.own)}, but in layer `
    + `${mixed.layer.name} it is other classes that are within ${limit(mixed.own)}: `
    + `${list(rivals.map((r) => `${group(r)} at ${short(r.distance)}`))}. `
    + "Several classes are supported, so: I may know.";
}

function disagreement(looks) {
  const words = list(looks.map((l) => {
    const only = l.own.within ? l.own : l.rivals[0];
    return `layer ${l.layer.name} has enough samples of ${name(only)} alone within reach `
      + `(#${only.row} at ${short(only.distance)}, reach ${short(only.reach)})`;
  }));
  return `${words[0].toUpperCase()}${words.slice(1)}. The layers disagree, so: I may know.`;
}

function extrapolation(looks) {
  const { layer, nearest } = looks.find((l) => l.empty);
  if (!exists(nearest)) {
    return `In layer ${layer.name} ${few(nearest)} of any class at all, so: I don't know.`;
  }
  const where = Number.isFinite(nearest.reach) ? `beyond ${limit(nearest)}`
    : "and the rule gives no reach there";
  const even = nearest.needed === 1 ? "even the nearest training sample, " : "even ";
  return `In layer ${layer.name} ${even}${deciding(nearest)}, is at ${short(nearest.distance)}, `
    + `${where}. Nothing like this was seen in training, so: I don't know.`;
}

function contradiction(looks) {
  const [first] = looks, [rival] = first.rivals;
  const where = looks.length > 1 ? "In no layer is that class within reach" : "That is too far";
  return `In layer ${first.layer.name} ${ownFact(first)}, beyond ${limit(first.own)}, while `
    + `${group(rival)} ${are(rival)} within ${again(first, rival)}, at ${short(rival.distance)}. `
    + `${where}, so: I don't know.`;
}

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
  if (!decides) return "No voice asks for anything, so: I know.";
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
      + "Nothing can be compared with it, so: I don't know.";
  }
  if (reason !== Algebra.UNCERTIFIED && looks.every(({ setting }) => setting.rule.fromBelief)) {
    return opening + byVoices(looks, i, judged, confidence, weakest);
  }
  const but = { [Algebra.UNCERTIFIED]: "predictions of it have no certified accuracy",
    [Algebra.DOUBT]: "the model's own confidence is below the threshold" }[reason];
  if (but) return `${opening}All else speaks for IK, but ${but}, so: I may know.`;
  return opening + [known, overlap, disagreement, extrapolation, contradiction][reason](looks);
}
