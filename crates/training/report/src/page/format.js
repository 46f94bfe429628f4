// Numbers as people read them, and round numbers for axes.

/** Digits in groups of three. */
function grouped(value) {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}

/** The same, short where it is long. */
function large(value) {
  return value < 1e10 ? grouped(value) : exponential(value, 3);
}

/** `digits` significant digits, without an exponent where that is readable. */
function significant(value, digits = 4) {
  if (value === null || Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value > 0 ? '∞' : '−∞';
  if (value === 0) return '0';
  const magnitude = Math.floor(Math.log10(Math.abs(value)));
  if (magnitude < -3 || magnitude >= 7) return exponential(value, digits - 1);
  if (magnitude >= 4) return grouped(value);
  return value.toFixed(Math.max(0, digits - 1 - magnitude)).replace('-', '−');
}

/** `1.5e-4` as `1.5×10⁻⁴`. */
function exponential(value, decimals) {
  const [mantissa, exponent] = value.toExponential(decimals).split('e');
  const short = mantissa.includes('.') ? mantissa.replace(/\.?0+$/, '') : mantissa;
  const power = '10' + [...String(Number(exponent))].map((c) => (c === '-' ? '⁻' : '⁰¹²³⁴⁵⁶⁷⁸⁹'[Number(c)])).join('');
  return (short === '1' ? power : short + '×' + power).replace('-', '−');
}

/** With a prefix of a thousand: `2.05k`, `1.5M`. */
function compact(value, digits = 3) {
  const units = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']];
  for (const [size, unit] of units) {
    if (Math.abs(value) >= size * 0.99995) return trimmed(value / size, digits) + unit;
  }
  return trimmed(value, digits);
}

/** At most `digits` significant digits, without zeros at the end. */
function trimmed(value, digits) {
  const text = Number(value.toPrecision(digits)).toString();
  return text.includes('e') ? exponential(value, digits - 1) : text.replace('-', '−');
}

function bytes(value) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return (unit === 0 ? Math.round(value) : significant(value, 3)) + ' ' + units[unit];
}

/** `1 h 02 min`, `3 min 20 s`, `12.5 s`. */
function duration(seconds) {
  const two = (value) => String(value).padStart(2, '0');
  if (seconds < 1) return trimmed(seconds * 1000, 3) + ' ms';
  if (seconds < 99.95) return trimmed(seconds, 3) + ' s';
  const minutes = Math.floor(Math.round(seconds) / 60);
  if (minutes < 60) return `${minutes} min ${two(Math.round(seconds) % 60)} s`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
  return `${Math.floor(minutes / 1440)} d ${Math.floor(minutes / 60) % 24} h`;
}

function percent(share) {
  return trimmed(100 * share, 3) + ' %';
}

/** Time within a step, from microseconds. */
function moment(microseconds) {
  if (microseconds < 1e3) return trimmed(microseconds, 3) + ' µs';
  if (microseconds < 1e6) return trimmed(microseconds / 1e3, 3) + ' ms';
  return trimmed(microseconds / 1e6, 3) + ' s';
}

/** About `count` round numbers within `low` and `high`: multiples of 1, 2 or 5 times a power of `base`. */
function linearTicks(low, high, count, steps = [1, 2, 5, 10]) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * steps.find((factor) => factor * power >= rough * 0.999);
  const ticks = [];
  const first = Math.ceil(low / step - 1e-9);
  // Numbers so large that they have no neighbours have no ticks, either.
  for (let n = 0; n <= 3 * count && (first + n) * step <= high + step * 1e-9; n += 1) ticks.push((first + n) * step);
  return ticks;
}

/** Ticks of a number of things. */
function wholeTicks(low, high, count) {
  return linearTicks(low, high, count).filter(Number.isInteger);
}

/** Labels of `ticks` with as many digits, three or more, as make no two the same. */
function distinct(ticks, label) {
  let labels = [];
  for (let digits = 3; digits <= 9; digits += 1) {
    labels = ticks.map((tick) => label(tick, digits));
    if (new Set(labels).size === labels.length) break;
  }
  return labels;
}

/** Steps with a prefix of a thousand, or with all of their digits where these distinguish them. */
function stepLabels(ticks) {
  const short = ticks.map((tick) => compact(tick));
  return new Set(short).size === short.length ? short : ticks.map(grouped);
}

/** Times: multiples of seconds, minutes or hours that people count in. */
function timeTicks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const step = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400]
    .find((size) => size >= rough);
  if (rough < 1 || !step) return linearTicks(low, high, count);
  const ticks = [];
  for (let n = Math.ceil(low / step); n * step <= high; n += 1) ticks.push(n * step);
  return ticks;
}

/** Powers of ten, with 2 and 5 times them where these are few. */
function logTicks(low, high, count) {
  const from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high));
  const within = (factors) => {
    const ticks = [];
    for (let power = from; power <= to; power += 1) {
      for (const factor of factors) ticks.push(factor * 10 ** power);
    }
    return ticks.filter((tick) => tick >= low * 0.9999 && tick <= high * 1.0001);
  };
  const choice = [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 6, 8]].map(within).find((ticks) => ticks.length >= 3);
  if (!choice) return linearTicks(low, high, count);
  const every = Math.ceil(choice.length / Math.max(2, count));
  return choice.filter((_, index) => index % every === 0);
}

/** The label of a tick of a logarithmic axis, which has as many digits as it needs. */
function logLabel(tick) {
  if (tick >= 1e4) return compact(tick);
  return tick < 1e-3 ? exponential(tick, 1) : trimmed(tick, 2);
}

/** Labels with as many decimals as their distance needs, the same for all. */
function tickLabels(ticks) {
  const largest = Math.max(...ticks.map(Math.abs));
  const distance = ticks.length > 1 ? Math.min(...ticks.slice(1).map((tick, i) => Math.abs(tick - ticks[i]))) : largest || 1;
  if (largest >= 1e4) return distinct(ticks, compact);
  if (largest >= 1e3 && distance >= 1) return ticks.map(grouped);
  if (largest > 0 && largest < 1e-3) return ticks.map((tick) => (tick === 0 ? '0' : exponential(tick, 1)));
  const decimals = Math.max(0, Math.min(6, -Math.floor(Math.log10(distance) + 1e-9)));
  return ticks.map((tick) => tick.toFixed(decimals).replace('-', '−'));
}

/** Labels of times by the largest unit that all of them need. */
function timeLabels(ticks) {
  const last = ticks[ticks.length - 1] ?? 0;
  if (last < 120) return distinct(ticks, (tick, digits) => trimmed(tick, digits) + ' s');
  if (last < 7200) return distinct(ticks, (tick, digits) => trimmed(tick / 60, digits) + ' min');
  return distinct(ticks, (tick, digits) => trimmed(tick / 3600, digits) + ' h');
}
