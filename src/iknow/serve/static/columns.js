/* Columns: buckets of a time series gathered into as many columns as a chart has room for. */

export const SPANS = [
  { title: "15 min", span: 900, column: 15, width: 5 },
  { title: "24 h", span: 86400, column: 900, width: 60 },
];

/** The columns of a span, oldest first; those without data are there too.
@param {TimeSeries[]} series @param {number} now @param {typeof SPANS[0]} range */
export function gather(series, now, { span, column, width }) {
  const end = Math.ceil((now + 1e-6) / column) * column;
  const columns = Array.from({ length: span / column }, (_, c) => ({
    start: end - span + c * column, end: end - span + (c + 1) * column,
    IK: 0, IMK: 0, IDK: 0, rows: 0, requests: 0, p50: NaN, p99: NaN }));
  const chosen = series.find((each) => each.width === width);
  chosen?.requests.forEach((_, i) => {
    const found = columns[Math.floor((chosen.start + i * chosen.width - end + span) / column)];
    if (found) add(found, chosen, i);
  });
  return columns;
}

/* Medians are averaged by requests; of the slowest the slowest counts. */
function add(column, series, i) {
  for (const name of ["IK", "IMK", "IDK"]) {
    column[name] += series[name][i];
    column.rows += series[name][i];
  }
  const [n, p50, p99] = [series.requests[i], series.p50[i], series.p99[i]];
  if (n && p50 !== null) {
    const before = column.requests ? column.p50 * column.requests : 0;
    column.p50 = (before + n * p50) / (column.requests + n);
  }
  if (n && p99 !== null) column.p99 = Math.max(p99, Number.isNaN(column.p99) ? 0 : column.p99);
  column.requests += n;
}
