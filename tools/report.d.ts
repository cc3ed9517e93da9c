/* The shapes that the report's modules pass to each other, for tsc. None of it is in the page. */

interface Layer {
  name: string; width: number; nNeighbors: number; nHeld: number; lipschitz: number; jumpsAt: number;
  given: Setting;
  distances: Float64Array; codes: Int32Array; rows: BigInt64Array;
  ranks: Uint8Array | Uint16Array; neighbors: Float32Array;
  tenth: Float64Array;
  rounding: Float64Array; crossing: Float64Array; stretch: Float64Array;
  /* With a quorum. */
  attack: Float64Array | null; nearerRows: BigInt64Array | null; nearerDistances: Float32Array | null;
  /* Of a layer with a fixed rule. */
  within: Uint8Array; reach: Float64Array; none: Uint8Array; margin: Float64Array;
  robust: Float64Array;
}

/* A rule, a value for each of its parameters, and what else it keeps. */
interface Setting {
  rule: Rule; text: string; quorum: number[]; radius: any; k: any; ratio: any; seen: any;
  [value: string]: any;
}

interface Evidence {
  n: number; layers: Layer[];
  index: Int32Array; counted: Uint8Array; belief: Int32Array; truth: Int32Array | null;
  invalid: Uint8Array; uncertified: Uint8Array; doubted: Uint8Array; score: Float32Array;
  removals: Int32Array; removalsExact: Uint8Array; changes: Int32Array;
  level: Float32Array | null; weakest: Uint16Array | null;
  probability: Float32Array | null;
}

type OfClass<T> = (layer: Layer, setting: Setting, i: number, j: number) => T;
type OfSample<T> = (layer: Layer, setting: Setting, i: number) => T;

interface Ball {
  reach: OfClass<number>; words: (reach: string, setting: Setting) => string;
  holds: OfClass<boolean>; single?: boolean; none?: boolean;
}

interface Scale {
  valueAt: (place: number) => number; placeOf: (value: number) => number;
  steps: number; first: number;
}

interface Parameter {
  id: string; symbol: string; smallest: number; whole?: boolean; perLayer?: boolean;
  label: (layer: Layer) => string;
  start: (layer: Layer) => number;
  scale: (layers: Layer[]) => Scale;
  turns: (layer: Layer, i: number) => number[];
}

interface Plot {
  pen: CanvasRenderingContext2D; width: number; height: number;
  x: (value: number) => number; y: (value: number) => number; mostX: number; mostY: number;
  spots: Float32Array; quorum: number[];
}

/* Each member is explained in rules.js. */
interface Defaults {
  lines: string; slack: string; fromBelief: boolean;
  marginOf: OfSample<number>;
  fullWithin: OfClass<number>; emptyBeyond: OfClass<number>;
  ratioOf: (setting: Setting) => number; robustRadius: OfSample<number>;
  drawLines: (plot: Plot, setting: Setting) => void;
}

interface Necessary {
  name: string; words: string; parameters: string[];
  ballOf: OfSample<Ball>;
}

type OwnRule = Necessary & Partial<Defaults>;
type Rule = Necessary & Defaults;
