/* The detail pane: one sample beside the training samples for and against it. */

import * as Algebra from "./algebra.js";
import { h, byId, badge, label, short } from "./dom.js";
import * as Order from "./order.js";
import { PARAMETERS } from "./parameters.js";
import * as Pictures from "./pictures.js";
import * as Ruler from "./ruler.js";
import * as Slack from "./slack.js";
import * as Words from "./words.js";

function fact(term, ...value) {
  return [h("dt", null, term), h("dd", null, ...value)];
}

function facts(page, i, judged) {
  const { evidence, facts: { trueClasses, layers } } = page;
  const answered = evidence.belief[i] >= 0;
  const list = [...fact("the model says", h("b", null, label(page.facts, evidence.belief[i])),
    answered ? h("span", { class: "soft" }, ` score ${short(evidence.score[i])}`) : null)];
  if (evidence.truth) {
    const judgment = !answered ? "" : Order.isRight(evidence, i) ? "right" : "wrong";
    const sign = { "": "", right: " ✓ right", wrong: " ✗ wrong" }[judgment];
    list.push(...fact("it is", h("b", { class: judgment || null },
      `${trueClasses[evidence.truth[i]]}${sign}`)));
  }
  if (evidence.level && !evidence.invalid[i]) {
    const { voices, level: least } = page.facts, level = evidence.level[i];
    const held = level < 1 ? `, held down by ${voices[evidence.weakest[i]]}` : "";
    list.push(...fact("level", `${short(level, 2)}${held}`,
      least === null ? null : h("span", { class: "soft" }, ` (IK from ${short(least, 2)} on)`)));
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

function layerPart(page, i, look, l) {
  const part = h("section", { class: "layer" },
    h("h4", null, `Layer ${look.layer.name} `, h("span", { class: "verdict" }, verdict(look))),
    Ruler.draw(look),
    h("p", { class: "hint" }, `Reach: ${Words.reachWords(look, i)}.`),
    h("div", { class: "exemplars" },
      exemplar(look.own, "for"), exemplar(look.against, "against")));
  const ofTraining = (kind, { row }) => ({ at: Pictures.ofTraining(row), title: `${kind}: #${row}` });
  const columns = [{ at: Pictures.ofSample(i), title: "this sample" }, ofTraining("for", look.own)];
  if (Words.exists(look.against)) columns.push(ofTraining("against", look.against));
  if (columns.some(({ at }) => Pictures.isFeatures(at))) {
    const place = part.appendChild(h("div"));
    Pictures.compare(columns).then((table) => { if (table) place.replaceWith(table); });
  }
  part.append(slackWords(Slack.find(page.evidence, page.settings, i, l), look.setting));
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
    h("p", { class: "sentence" }, Words.explain(looks, judged.reason)),
    ...(Order.wrongIk(evidence, page.assessed, i) ? [h("p", { class: "wrong" },
      `And yet it is wrong: the truth is “${page.facts.trueClasses[evidence.truth[i]]}”.`)] : []),
    ...(judged.reason === Algebra.INVALID ? []
      : looks.map((look, l) => layerPart(page, i, look, l))),
    h("button", { type: "button", class: "back", onclick: () => page.leave() },
      "Back to the table"));
}
