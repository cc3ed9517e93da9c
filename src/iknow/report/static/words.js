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
  const nearest = setting.rule.fromBelief ? own
    : candidates.reduce((a, b) => (b.distance < a.distance ? b : a));
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

/* Where the reach comes from. */
export const reachWords = ({ layer, setting, own }, i) =>
  setting.rule.ballOf(layer, setting, i).words(short(own.reach), setting);

const few = ({ needed }) => (needed === 1 ? "there is no training sample"
  : `there are fewer than ${needed} training samples`);
function ownFact({ own }) {
  if (!exists(own)) return `${few(own)} of ${name(own)}`;
  return `the ${rankWords(own.needed)} training sample of ${name(own)} (#${own.row}) is at `
    + `${short(own.distance)}`;
}

const limit = (candidate) => `the reach of ${short(candidate.reach)}`;
/* What the class it says must be within. */
const ownLimit = ({ setting, own }) =>
  (setting.rule.fromBelief ? `ε = ${short(setting.radius)}` : limit(own));
/* What others must be within: the same again, or a reach of their own where classes differ. */
function again({ setting, own }, candidate) {
  if (setting.rule.fromBelief) return `${short(setting.ratio)} × that, ${short(candidate.reach)}`;
  return candidate.reach === own.reach ? "it" : `the reach of its class, ${short(candidate.reach)}`;
}

function known(looks) {
  const tight = looks.reduce((a, b) => (b.margin < a.margin ? b : a));
  const others = exists(tight.against)
    ? `; ${tight.against.needed === 1 ? "the nearest of another class, " : "of another class, "}`
      + `${deciding(tight.against)}, is at ${short(tight.against.distance)}, beyond `
      + `${again(tight, tight.against)}` : "";
  const every = looks.length > 1
    ? `The same holds in ${looks.length === 2 ? "the other layer" : "all layers"}. ` : "";
  return `In layer ${tight.layer.name} ${ownFact(tight)}, within ${ownLimit(tight)}${others}. `
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
    return `In layer ${mixed.layer.name} ${ownFact(mixed)}, within ${ownLimit(mixed)}. ${but}. `
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
  const empty = looks.find((l) => l.empty), { layer, nearest, setting } = empty;
  if (setting.rule.fromBelief && exists(empty.own) && empty.own.distance <= setting.radius) {
    return `In layer ${layer.name} fewer than ten training samples, of whatever class, are within `
      + `${short(setting.seen)}. Too little like this was seen in training, so: I don't know.`;
  }
  if (setting.rule.fromBelief) {
    const where = exists(nearest) ? `, beyond ${ownLimit(empty)}` : "";
    return `In layer ${layer.name} ${ownFact(empty)}${where}. No ${name(nearest)} like this was `
      + "seen in training, so: I don't know.";
  }
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
  return `In layer ${first.layer.name} ${ownFact(first)}, beyond ${ownLimit(first)}, while `
    + `${group(rival)} ${are(rival)} within ${again(first, rival)}, at ${short(rival.distance)}. `
    + `${where}, so: I don't know.`;
}

/* The reason of an assertion in plain sentences. looks: of each layer, with its margin. */
export function explain(looks, reason) {
  const [{ own }] = looks;
  const opening = own.code < 0 ? "The model gives no answer. " : `The model says ${name(own)}. `;
  if (reason === Algebra.INVALID) {
    return `${opening}But the input, or what the model makes of it, is not a finite number. `
      + "Nothing can be compared with it, so: I don't know.";
  }
  const but = { [Algebra.UNCERTIFIED]: "predictions of it have no certified accuracy",
    [Algebra.DOUBT]: "the model's own confidence is below the threshold" }[reason];
  if (but) {
    return `${opening}In every layer only that class has enough training samples within reach, `
      + `but ${but}, so: I may know.`;
  }
  return opening + [known, overlap, disagreement, extrapolation, contradiction][reason](looks);
}
