/* Quorum: how many samples of a class must be within reach for it to count, in words.

    setting.quorum    [for the class the model says, for any other] */

const ORDINALS = ["", "", "second", "third", "fourth", "fifth"];

/* How many the class in column j needs. */
export const needed = ({ quorum }, j) => quorum[j === 0 ? 0 : 1];

/* The sample that completes a quorum of m: "nearest", "third nearest". */
export const rank = (m) => (m === 1 ? "nearest" : `${ORDINALS[m] ?? `${m}th`} nearest`);

/* What a distance goes to: "any other class", or "3 samples of any other class". */
export const target = (m, words) => (m === 1 ? words : `${m} samples of ${words}`);

/* A sentence, or nothing if one sample is enough for every class. */
export function describe({ quorum: [own, other] }) {
  if (own === 1 && other === 1) return "";
  if (own === other) return `A class counts with ${own} samples within reach.`;
  const one = own === 1 ? "one sample" : `${own} samples`;
  const another = other === 1 ? "one" : `${other}`;
  return `The class it says counts with ${one} within reach, any other with ${another}.`;
}
