// Lines of numbers before they are drawn: smoothed, or several seeds as one mean with a band.

const GRID = 240; // points of a mean
const NEAR = 0.02; // share of the axis within which two runs count as ending at the same place

export const isKnown = (value) => value !== null && value !== undefined;

// Each point as the mean of those within half of `share` of the axis on either side, as `pronk plot --smooth` does.
export function smoothed(line, share) {
  const at = line.x.map((_, i) => i).filter((i) => isKnown(line.y[i]) && isKnown(line.x[i]));
  if (!share || at.length < 3) return line;
  const half = (share * (line.x[at.at(-1)] - line.x[at[0]])) / 2;
  const y = Array(line.y.length).fill(null);
  let [first, next, sum] = [0, 0, 0];
  for (const i of at) {
    while (next < at.length && line.x[at[next]] <= line.x[i] + half) sum += line.y[at[next++]];
    while (line.x[at[first]] < line.x[i] - half) sum -= line.y[at[first++]];
    y[i] = sum / (next - first);
  }
  return { ...line, y, raw: line.y };
}

// The mean of several lines wherever at least two have values, from the lowest to the highest or one deviation around it.
export function meanOf(lines, band) {
  const known = lines.map((line) => line.x.map((x, i) => [x, line.y[i]]).filter(([x, y]) => isKnown(x) && isKnown(y))).filter((points) => points.length > 1);
  if (known.length < 2) return null;
  const [starts, ends] = [known.map((points) => points[0][0]), known.map((points) => points.at(-1)[0])];
  const near = NEAR * (Math.max(...ends) - Math.min(...starts));
  const begin = [...starts].sort((a, b) => a - b)[1];
  const end = [...ends].sort((a, b) => b - a)[1];
  if (!(end > begin)) return null;
  const mean = { x: [], y: [], low: [], high: [] };
  const places = known.map(() => 0); // the grid ascends, and so do these
  for (let n = 0; n <= GRID; n++) {
    const x = begin + ((end - begin) * n) / GRID;
    const values = known.flatMap((points, k) => (x < starts[k] - near || x > ends[k] + near ? [] : [valueAt(points, x, places, k)]));
    if (values.length < 2) continue;
    const middle = values.reduce((sum, value) => sum + value, 0) / values.length;
    const half = Math.sqrt(values.reduce((sum, value) => sum + (value - middle) ** 2, 0) / (values.length - 1));
    mean.x.push(x); mean.y.push(middle);
    mean.low.push(band === "deviation" ? middle - half : Math.min(...values));
    mean.high.push(band === "deviation" ? middle + half : Math.max(...values));
  }
  return mean.x.length ? mean : null;
}

function valueAt(points, x, places, k) {
  while (places[k] < points.length - 2 && points[places[k] + 1][0] < x) places[k]++;
  const [[x0, y0], [x1, y1]] = [points[places[k]], points[places[k] + 1]];
  const part = x1 > x0 ? Math.min(1, Math.max(0, (x - x0) / (x1 - x0))) : 1;
  return y0 + part * (y1 - y0);
}

export function lastOf(line) {
  for (let i = line.y.length - 1; i >= 0; i--) if (isKnown(line.y[i])) return i;
  return -1;
}

export function nearest(line, x) {
  let best = -1;
  for (let i = 0; i < line.x.length; i++) {
    if (!isKnown(line.y[i])) continue;
    if (best < 0 || Math.abs(line.x[i] - x) < Math.abs(line.x[best] - x)) best = i;
  }
  return best;
}
