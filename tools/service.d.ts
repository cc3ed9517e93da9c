/* What GET /v1/status answers, for tsc. A part of the page that misses something in it says so. */

interface Counts { IK: number; IMK: number; IDK: number }

interface Totals extends Counts {
  rows: number; requests: number; seconds?: number; reasons: Record<string, number>;
}

interface TimeSeries {
  width: number; start: number; IK: number[]; IMK: number[]; IDK: number[]; requests: number[];
  p50: (number | null)[]; p99: (number | null)[];
}

interface Exemplar { row: number; label: string; distance: number | null }

interface LayerEvidence {
  layer: string; reach: number | null; limit: string; findings: string[]; for: Exemplar[]; against: Exemplar[];
  features: { feature: string; value: number | string; share: number; unseen?: string }[];
}

type Portrayed = { png: string; width: number; height: number };

interface UnknownRow {
  time: string; request: string; row: number; belief: string | null; reason: string;
  level: number | null; decides: string; sentence: string; layers: LayerEvidence[];
  picture: Portrayed | null;
}

interface LiveStatus {
  now: number; layers: string[]; total: Totals; lately: Totals;
  rate: { rows: number; requests: number };
  latency: { p50: number | null; p95: number | null; p99: number | null };
  series: TimeSeries[];
  levels: { n: number; counts: number[]; reference: number[] | null; threshold: number | null } | null;
  by_class: { n: number; rows: (Counts & { label: string | null })[]; more: number };
  unknown: UnknownRow[];
  estimate: { n: number; accuracy: number; low: number; high: number; unseen: number } | null;
}

/* Evidence and what it takes to ring, both as logarithms to base 10. */
interface Strength { evidence: number; threshold: number }

interface DriftStatus {
  alarmed: boolean; since: number | null; evidence: number; threshold: number; n_samples: number;
  by_class: Record<string, Strength>; by_layer: Record<string, Strength>;
  reference: number; text: string;
}

interface AccuracyStatus {
  n: number; estimate: number | null; low: number | null; high: number | null;
  certified: number | null; alarmed: boolean; text: string;
}

interface ModelStatus {
  name: string; version: string; bundle: string; promises: string[]; live: LiveStatus;
  alarm: DriftStatus | null; accuracy: AccuracyStatus | null;
}

interface Status {
  server?: {
    version?: string; started?: string; uptime?: number; ready?: boolean;
    queue?: Record<string, unknown>; audit?: Record<string, unknown> | null;
  };
  models?: ModelStatus[];
}

/* A part of the page: built once, then told about every new status. */
interface Part<T> { element: HTMLElement; update: (value: T) => void }
