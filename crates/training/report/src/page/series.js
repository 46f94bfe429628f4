// Values of runs along an axis: which, how smooth, and how many a drawing needs.

/** A number of the page's data: infinities are strings, NaN is null. */
function numeric(value) {
  return value === null || value === undefined ? NaN : Number(value);
}

/** Names of horizontal axes with the column of each. */
const AXES = {
  steps: { column: 'steps', ticks: wholeTicks, labels: stepLabels, tell: (x) => 'step ' + grouped(x) },
  tokens: { column: 'tokens', ticks: wholeTicks, labels: (ticks) => distinct(ticks, compact), tell: (x) => compact(x) + ' tokens' },
  time: { column: 'seconds', ticks: timeTicks, labels: timeLabels, tell: duration },
};

/** A line of one run: `x` ascending, `y` with NaN where there is no number. */
function series(run, axis, column) {
  const values = run.columns[column];
  if (!values) return null;
  return { x: run.columns[AXES[axis].column], y: values.map(numeric), steps: run.columns.steps };
}

/** Losses that were measured between steps of a run; their places are those of the steps after which they were measured. */
function measured(run, axis, losses) {
  if (!losses.length) return null;
  const place = (step) => run.columns[AXES[axis].column][nearest(run.columns.steps, step)] ?? step;
  const steps = losses.map(([step]) => step);
  return { x: steps.map(place), y: losses.map(([, loss]) => numeric(loss)), steps, points: true };
}

/** Index of the value of ascending `values` that is nearest to `x`. */
function nearest(values, x) {
  let low = 0, high = values.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < x) low = middle + 1; else high = middle;
  }
  return low > 0 && x - values[low - 1] <= values[low] - x ? low - 1 : low;
}

/** The mean of the finite values of a window around each value; its width is a fiftieth of the line. */
function smoothed(line) {
  const half = Math.floor(line.y.length / 100);
  if (half < 1) return line;
  const sums = [0], counts = [0];
  for (const y of line.y) {
    const finite = Number.isFinite(y);
    sums.push(sums[sums.length - 1] + (finite ? y : 0));
    counts.push(counts[counts.length - 1] + (finite ? 1 : 0));
  }
  const y = line.y.map((own, i) => {
    // The window shrinks evenly towards both ends, so that a slope is not bent there.
    const reach = Math.min(half, i, line.y.length - 1 - i);
    const count = counts[i + reach + 1] - counts[i - reach];
    return Number.isFinite(own) && count ? (sums[i + reach + 1] - sums[i - reach]) / count : NaN;
  });
  return { ...line, y };
}

/**
 * The path of a line: of each column of pixels its first, smallest, largest and last value. NaN interrupts it, and a value alone is a dot,
 * as wide as the line.
 */
function path(line, toX, toY) {
  let out = '', column = null, points = 0;
  const point = (x, y) => {
    out += (points ? 'L' : 'M') + x.toFixed(1) + ' ' + toY(y).toFixed(1);
    points += 1;
  };
  const end = () => {
    flush();
    if (points === 1) out += 'h0';
    points = 0;
  };
  const flush = () => {
    if (!column) return;
    point(column.x, column.first);
    if (column.count > 1) {
      const [one, two] = column.lowFirst ? [column.low, column.high] : [column.high, column.low];
      if (one !== column.first) point(column.x, one);
      if (two !== one) point(column.x, two);
      point(column.lastX, column.last);
    }
    column = null;
  };
  for (let i = 0; i < line.y.length; i += 1) {
    const y = line.y[i];
    if (!Number.isFinite(y) || !Number.isFinite(toY(y))) { end(); continue; }
    const x = toX(line.x[i]), pixel = Math.round(x);
    if (column && column.pixel === pixel) {
      if (y < column.low) { column.low = y; column.lowFirst = false; }
      if (y > column.high) { column.high = y; column.lowFirst = true; }
      column.last = y;
      column.lastX = x;
      column.count += 1;
    } else {
      flush();
      column = { pixel, x, first: y, low: y, high: y, last: y, lastX: x, lowFirst: true, count: 1 };
    }
  }
  end();
  return out;
}

function median(values) {
  const finite = values.map(numeric).filter(Number.isFinite).sort((a, b) => a - b);
  return finite.length ? finite[finite.length >> 1] : NaN;
}

function last(values) {
  return values && values.length ? numeric(values[values.length - 1]) : NaN;
}
