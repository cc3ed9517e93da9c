/* The detail pane: one sample beside the training samples for and against it. */

import * as Algebra from "./algebra.js";
import { h, badge, brief, byId, label, percent, short, svg } from "./dom.js";
import * as Pictures from "./pictures.js";
import { PARAMETERS } from "./settings.js";
import * as Words from "./words.js";

const [WIDTH, LEFT, RIGHT, BASE] = [400, 12, 12, 46];

function mark(x, candidate) {
  const side = x > WIDTH * 0.72 ? "end" : x < WIDTH * 0.28 ? "start" : "middle";
  const shape = candidate.own
    ? svg("circle", { cx: x, cy: BASE, r: 6.5 })
    : svg("path", { d: `M${x} ${BASE - 7}l7 7l-7 7l-7-7z` });
  return svg("g", { class: candidate.own ? "mark for" : "mark against" }, shape,
    svg("text", { x, y: candidate.own ? BASE - 14 : BASE + 25, "text-anchor": side },
      `${brief(candidate.label, 14)} ${short(candidate.distance)}`));
}

/* The samples before one that completes a quorum, small: they do not count alone. */
const before = (x, { own, nearer }) => nearer.filter(({ distance }) => Number.isFinite(distance))
  .map(({ distance }) => svg("circle", { class: `before ${own ? "for" : "against"}`,
    cx: x(distance), cy: BASE, r: 3.5 }));

/* The distances of a sample in one layer on a line, and how far the reach goes. look: what words.js
says about the layer. */
function drawRuler(look) {
  const { own, against, none } = look, { reach } = own;
  const candidates = [own, against].filter(Words.exists);
  const values = [...candidates.map((c) => c.distance), reach].filter(Number.isFinite);
  const most = 1.18 * Math.max(...values, 1e-300);
  const x = (value) => LEFT + ((WIDTH - LEFT - RIGHT) * Math.max(0, Math.min(value, most))) / most;
  const end = x(reach);
  const side = end > WIDTH * 0.75 ? "end" : end < WIDTH * 0.2 ? "start" : "middle";
  const words = candidates.map((c) => `${c.label} at ${short(c.distance)}`).join(", ");
  const of = look.setting.rule.fromBelief ? (none ? "near up to" : "others beyond") : none ? "limit" : "ρ";
  const far = reach === -Infinity ? "no reach" : `${of} ${short(reach)}`;
  return svg("svg", { class: "ruler", viewBox: `0 0 ${WIDTH} 80`, role: "img",
    "aria-label": `${far.replace("ρ", "reach")}; ${words}` },
  svg("rect", { class: none ? "reach none" : "reach", x: LEFT, y: BASE - 9,
    width: end - LEFT, height: 18, rx: 4 }),
  svg("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: BASE, y2: BASE }),
  svg("line", { class: "end", x1: end, x2: end, y1: 16, y2: BASE + 11 }),
  svg("text", { class: "reach-label", x: end, y: 12, "text-anchor": side }, far),
  candidates.flatMap((candidate) => before(x, candidate)),
  candidates.map((candidate) => mark(x(candidate.distance), candidate)));
}

/* Slack: how much one setting of a layer would have to change for an assertion to be another.

Only the values where a support can change are tried, the other layers staying as they are. Balls
are closed: growing turns the assertion from such a value on, shrinking below it. */

/* { parameter, value, shrink, grow }; shrink and grow: { at, becomes }, or null for nothing.
null for a rule that cannot be moved. */
export function findSlack(evidence, settings, i, l) {
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

function fact(term, ...value) {
  return [h("dt", null, term), h("dd", null, ...value)];
}

function facts(page, i, judged) {
  const { evidence, facts: { trueClasses, layers } } = page;
  const answered = evidence.belief[i] >= 0;
  const list = [...fact("the model says", h("b", null, label(page.facts, evidence.belief[i])),
    answered && !evidence.level
      ? h("span", { class: "soft" }, ` score ${short(evidence.score[i])}`) : null)];
  if (evidence.truth) {
    const judgment = !answered ? "" : Algebra.isRight(evidence, i) ? "right" : "wrong";
    const sign = { "": "", right: " ✓ right", wrong: " ✗ wrong" }[judgment];
    list.push(...fact("it is", h("b", { class: judgment || null },
      `${trueClasses[evidence.truth[i]]}${sign}`)));
  }
  if (evidence.level && !evidence.invalid[i]) {
    const { level: least } = page.facts, chance = Words.chance(evidence.confidence[i]);
    list.push(...fact("model's probability", short(chance, chance > 0.999 ? 6 : 3)),
      ...fact("level", short(evidence.level[i], 2),
        least === null ? null : h("span", { class: "soft" }, ` (IK from ${short(least, 2)} on)`)));
  }
  if (evidence.probability?.[i] >= 0) {  // there is none without an answer
    list.push(...fact("likely right", percent(evidence.probability[i], 1)));
  }
  list.push(...fact("margin", short(judged.margin)));
  const radius = page.assessed.radius[i];
  if (radius > 0) list.push(...fact("robust radius", `${short(radius)} of change in the input`));
  const counted = judged.assertion === Algebra.IK && layers.every((layer, l) =>
    layer.nHeld > 0 || evidence.layers[l].nearerRows !== null);
  if (page.isGiven() && counted) {
    const n = evidence.removals[i], bound = evidence.removalsExact[i] ? "" : "at least ";
    list.push(...fact("rests on", `${bound}${n} training sample${n === 1 ? "" : "s"}`));
    const changed = evidence.changes[i], are = changed === 1 ? "sample is" : "samples are";
    if (changed) list.push(...fact("stands", `whatever ${changed} ${are} added, removed or relabeled`));
  }
  return h("dl", { class: "facts" }, list);
}

function exemplar(candidate, kind) {
  if (!Words.exists(candidate)) {
    const few = candidate?.needed > 1 ? `fewer than ${candidate.needed} training samples`
      : "no training sample";
    return h("figure", { class: `exemplar ${kind}` }, h("figcaption", null, h("b", null, kind),
      h("span", { class: "soft" }, few)));
  }
  const { row, distance, within, needed, nearer } = candidate;
  const samples = [...nearer, { row, distance }];
  const where = `${within ? "within" : "beyond"} reach`;
  return h("figure", { class: `exemplar ${kind}${within ? "" : " far"}` },
    ...samples.map((each) =>
      Pictures.draw(Pictures.ofTraining(each.row), `training sample ${each.row}`)),
    h("figcaption", null, h("b", null, `${kind}: ${candidate.label}`), ...(needed === 1
      ? [h("span", null, `training #${row}`), h("span", null, `at ${short(distance)}, ${where}`)]
      : [...samples.map((each) => h("span", null, `training #${each.row} at ${short(each.distance)}`)),
        h("span", null, `${needed} needed: the last is ${where}`)])));
}

function slackWords(slack, { rule }) {
  if (slack === null) return h("p", { class: "slack" }, rule.words);
  const { symbol } = PARAMETERS[slack.parameter];
  const turns = [];
  if (slack.shrink) turns.push([badge(slack.shrink.becomes), ` below ${short(slack.shrink.at)}`]);
  if (slack.grow) turns.push([badge(slack.grow.becomes), ` from ${short(slack.grow.at)} on`]);
  const now = `Here ${symbol} = ${short(slack.value)}. `;
  if (!turns.length) return h("p", { class: "slack" }, now, "No other value alone changes that.");
  return h("p", { class: "slack" }, now, "The assertion becomes ", turns[0],
    turns.length > 1 ? [", and ", turns[1]] : "", ".");
}

function verdict(look) {
  const several = Math.max(...look.setting.quorum) > 1;  // of a class that does not count, some may be
  if (look.empty) return several ? "too few within reach" : "nothing within reach";
  const within = [look.own, ...look.rivals].filter((candidate) => candidate.within).slice(0, 3);
  const enough = several ? ` ${within.length > 1 ? "have" : "has"} enough` : "";
  return `${look.alone ? "only " : ""}${Words.list(within.map(Words.name))}${enough} within reach`;
}

/* What features add to the distance to the deciding sample, by name, the largest share first. */
function rankedOf({ layer: { names, features, shares, rows, width } }, i) {
  if (!features) return new Map();
  const most = (features.length * width) / rows.length;
  const places = [...features.subarray(i * most, (i + 1) * most)].filter((place) => place >= 0);
  return new Map(places.map((place, f) => [names[place], shares[i * most + f]]));
}

const voiceItem = ({ voice, found, needed, holds }) => h("li", null, `${voice} `,
  h("b", { class: holds ? null : "wrong" }, `${holds ? "✓" : "✗"} ${found}`), ` (IK: ${needed})`);

function layerPart(page, i, look, l) {
  const { rule } = look.setting;
  const part = h("section", { class: "layer" },
    h("h4", null, `Layer ${look.layer.name} `,
      rule.fromBelief ? null : h("span", { class: "verdict" }, verdict(look))),
    drawRuler(look),
    rule.fromBelief ? h("ul", { class: "hint voices" }, Words.voicesOf(look, i).map(voiceItem))
      : h("p", { class: "hint" }, `Reach: ${rule.ballOf(look.layer, look.setting, i)
        .words(short(look.own.reach), look.setting)}.`),
    h("div", { class: "exemplars" },
      exemplar(look.own, "for"), exemplar(look.against, "against")));
  const ofTraining = (kind, { row }) => ({ at: Pictures.ofTraining(row), title: `${kind}: #${row}` });
  const ranked = rankedOf(look, i);
  if (ranked.size) part.append(h("p", { class: "hint" }, `Of the distance to #${look.own.row}: ${
    Words.list([...ranked].map(([feature, share]) => `${feature} ${percent(share, 1)}`))}.`));
  const columns = [{ at: Pictures.ofSample(i), title: "this sample" }, ofTraining("for", look.own)];
  if (Words.exists(look.against)) columns.push(ofTraining("against", look.against));
  if (columns.some(({ at }) => Pictures.isFeatures(at))) {
    const place = part.appendChild(h("div"));
    Pictures.compare(columns, ranked).then((table) => { if (table) place.replaceWith(table); });
  }
  if (!rule.fromBelief) {
    part.append(slackWords(findSlack(page.evidence, page.settings, i, l), look.setting));
  }
  return part;
}

function picturePart(page, i) {
  const at = Pictures.ofSample(i);
  if (at >= 0) return Pictures.draw(at, `sample ${page.evidence.index[i]}`);
  return h("p", { class: "hint nopicture" }, page.album.index.length
    ? "No picture of this sample: there was no room for it."
    : "The report was made without the samples themselves.");
}

export function show(page) {
  const i = page.chosen;
  if (i === null) {
    byId("detail").replaceChildren(
      h("p", { class: "hint" }, "Choose a sample to see its evidence."));
    return;
  }
  const { evidence, settings } = page;
  const judged = Algebra.judge(evidence, settings, i);
  const looks = evidence.layers.map((layer, l) => Words.look(page.facts, layer, settings[l], i));
  byId("detail").replaceChildren(
    h("h3", null, `Sample #${evidence.index[i]} `, badge(judged.assertion),
      h("span", { class: "reason" }, Algebra.REASONS[judged.reason])),
    h("div", { class: "portrait" }, picturePart(page, i), facts(page, i, judged)),
    h("p", { class: "sentence" }, Words.explain(looks, i, judged,
      { odds: evidence.confidence?.[i], least: page.leastConfidence() },
      page.isGiven() && evidence.weakest ? page.facts.voices[evidence.weakest[i]] : null)),
    ...(Algebra.wrongIk(evidence, page.assessed, i) ? [h("p", { class: "wrong" },
      `And yet it is wrong: the truth is “${page.facts.trueClasses[evidence.truth[i]]}”.`)] : []),
    ...(judged.reason === Algebra.INVALID ? []
      : looks.map((look, l) => layerPart(page, i, look, l))),
    h("button", { type: "button", class: "back", onclick: () => page.leave() },
      "Back to the table"));
}
