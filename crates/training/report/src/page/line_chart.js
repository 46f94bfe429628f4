// A chart of lines over the common horizontal axis.

const GAP = 8;
/** All charts of the page: the pointer over one is shown in all. */
const charts = [];

/**
 * A chart. `options`: title, unit, height, lines (of `[run, column]`), format of values, logarithmic, fromZero.
 * `lines(axis)` returns `{ line, colour, name, dashed, isRaw }` in the order in which they are drawn.
 */
function lineChart(options) {
  const picture = svg('svg', { role: 'img', 'aria-label': options.title, tabindex: '-1' });
  const legend = el('div', { class: 'legend' });
  const unit = options.unit ? el('span', { class: 'unit' }, options.unit) : null;
  const title = el(options.wide ? 'h2' : 'h3', {}, options.title, unit);
  const element = el('figure', { class: options.wide ? 'chart wide' : 'chart' }, el('div', { class: 'heading' }, title, legend), picture);
  const chart = { element, picture, legend, options, view: null };
  picture.addEventListener('pointermove', (event) => hover(chart, event));
  picture.addEventListener('pointerleave', () => { hideTip(); charts.forEach((other) => cross(other, null)); });
  charts.push(chart);
  return chart;
}

function drawChart(chart, state) {
  const { picture, options } = chart;
  const lines = options.lines(state.axis, state);
  const width = Math.max(160, picture.clientWidth || chart.element.clientWidth);
  const height = options.height;
  const isLog = options.isLog || (options.canBeLog && state.scale === 'log');
  const range = valueRange(lines, isLog, options);
  const yTicks = isLog ? logTicks(range.low, range.high, 5) : linearTicks(range.low, range.high, height > 220 ? 6 : 4);
  const yLabels = options.labels ? options.labels(yTicks) : isLog ? yTicks.map(logLabel) : tickLabels(yTicks);
  const left = Math.ceil(Math.max(24, ...yLabels.map((label) => measure(label)))) + GAP;
  const box = { left, right: width - 6, top: 8, bottom: height - 24 };
  const [from, to] = placeRange(lines);
  const toX = (x) => box.left + ((x - from) / (to - from || 1)) * (box.right - box.left);
  const scale = isLog ? Math.log10 : (y) => y;
  const [low, high] = [scale(range.low), scale(range.high)];
  const toY = (y) => box.bottom - ((scale(y) - low) / (high - low || 1)) * (box.bottom - box.top);
  picture.setAttribute('viewBox', `0 0 ${width} ${height}`);
  picture.setAttribute('height', height);
  picture.replaceChildren(
    ...yTicks.map((tick) => svg('path', { class: 'grid', d: `M${box.left} ${Math.round(toY(tick))}H${box.right}` })),
    ...yTicks.map((tick, i) => svg('text', { x: box.left - GAP, y: Math.round(toY(tick)) + 4, 'text-anchor': 'end' }, yLabels[i])),
    svg('path', { class: 'base', d: `M${box.left} ${box.bottom}H${box.right}` }),
    ...xAxis(state.axis, from, to, toX, box),
    ...eventMarks(options.events ? options.events() : [], state.axis, toX, box),
    ...lines.flatMap((one) => drawnLine(one, toX, toY, box)),
    svg('g', { class: 'pointer' }),
  );
  chart.view = { lines: lines.filter((one) => !one.isRaw), toX, toY, box, from, to, width };
  drawLegend(chart.legend, lines);
}

/** The least and the largest value that is drawn, with room around them. */
function valueRange(lines, isLog, options) {
  let low = Infinity, high = -Infinity;
  for (const { line } of lines) {
    for (const y of line.y) {
      if (!Number.isFinite(y) || (isLog && y <= 0)) continue;
      if (y < low) low = y;
      if (y > high) high = y;
    }
  }
  if (low > high) return isLog ? { low: 0.1, high: 1 } : { low: 0, high: 1 };
  if (isLog) {
    const room = Math.max(1.02, (high / low) ** 0.04);
    return { low: low / room, high: high * room };
  }
  if (options.fromZero) low = Math.min(0, low);
  const room = high > low ? (high - low) * 0.05 : Math.abs(high) * 0.1 || 1;
  return { low: options.fromZero && low === 0 ? 0 : low - room, high: high + room };
}

function placeRange(lines) {
  let from = Infinity, to = -Infinity;
  for (const { line } of lines) {
    if (!line.x.length) continue;
    from = Math.min(from, line.x[0]);
    to = Math.max(to, line.x[line.x.length - 1]);
  }
  return from > to ? [0, 1] : [from === to ? from - 1 : from, to];
}

function xAxis(axis, from, to, toX, box) {
  const { ticks, labels } = AXES[axis];
  const count = Math.max(2, Math.floor((box.right - box.left) / 90));
  const places = ticks(from, to, count);
  const texts = labels(places);
  let until = -Infinity;
  return places.flatMap((place, i) => {
    const half = measure(texts[i]) / 2;
    // A label at an end stays inside of the picture, and one without room is left out.
    const x = Math.min(Math.max(toX(place), half), box.right + 6 - half);
    if (x - half < until + 10) return [];
    until = x + half;
    return [
      svg('path', { class: 'base', d: `M${Math.round(toX(place))} ${box.bottom}v4` }),
      svg('text', { x, y: box.bottom + 18, 'text-anchor': 'middle' }, texts[i]),
    ];
  });
}

/** Events as dashed lines, one for each column of pixels; alarms in their colour. */
function eventMarks(events, axis, toX, box) {
  const places = new Map();
  for (const { run, event } of events) {
    const x = Math.round(toX(run.columns[AXES[axis].column][nearest(run.columns.steps, event.step)]));
    places.set(x, places.get(x) || isAlarm(event));
  }
  return [...places].map(([x, alarm]) => svg('path', { class: alarm ? 'event alarm' : 'event', d: `M${x + 0.5} ${box.top}V${box.bottom}` }));
}

function isAlarm(event) {
  return !['resumed', 'started', 'saved'].includes(event.kind);
}

function drawnLine({ line, colour, dashed, round, isRaw }, toX, toY, box) {
  const stroke = `stroke: var(${colour})`;
  const dash = dashed ? '5 4' : isRaw ? null : RUN_DASHES[round ?? 0];
  const drawn = [svg('path', { class: isRaw ? 'raw' : 'line', style: stroke, 'stroke-dasharray': dash, d: path(line, toX, toY) })];
  const isDrawn = (i) => i >= 0 && i < line.y.length && Number.isFinite(line.y[i]) && Number.isFinite(toY(line.y[i]));
  const isAlone = (i) => isDrawn(i) && !isDrawn(i - 1) && !isDrawn(i + 1);
  const dots = isRaw ? [] : [...line.y.keys()].filter(line.points ? isDrawn : isAlone);
  if (dots.length <= 200) {
    drawn.push(...dots.map((i) => svg('circle', { cx: toX(line.x[i]), cy: toY(line.y[i]), r: 2.75, style: `fill: var(${colour})` })));
  }
  // Values that are not numbers have crosses at the upper edge, at most one for every few pixels.
  let before = -Infinity;
  line.y.forEach((y, i) => {
    const x = toX(line.x[i]);
    if (isRaw || Number.isFinite(y) || x - before < 6) return;
    before = x;
    drawn.push(svg('path', { class: 'broken', d: `M${x - 3} ${box.top}l6 6m0 -6l-6 6` }));
  });
  return drawn;
}

/** The line of a legend, as it is drawn. */
function strokeOf({ colour, dashed, round }) {
  return swatch(colour, 'stroke' + (dashed ? ' dashed' : round ? ` round-${round}` : ''));
}

function drawLegend(legend, lines) {
  const named = lines.filter((one) => one.name && !one.isRaw);
  const entry = (one) => el('span', {}, strokeOf(one), one.name);
  legend.replaceChildren(...(named.length > 1 ? named.map(entry) : []));
}

/** Values of all lines at the pointer, and a line through all charts. */
function hover(chart, event) {
  if (!chart.view) return;
  const { lines, box, from, to, width } = chart.view;
  const bounds = chart.picture.getBoundingClientRect();
  const pixel = ((event.clientX - bounds.left) / bounds.width) * width;
  const share = Math.min(1, Math.max(0, (pixel - box.left) / (box.right - box.left)));
  const x = from + share * (to - from);
  const places = lines.filter((one) => isThere(one, x, chart.view)).map((one) => ({ one, i: nearest(one.line.x, x) }));
  if (!places.length) {
    hideTip();
    charts.forEach((other) => cross(other, null));
    return;
  }
  const own = places.reduce((best, place) => (gap(place, x) < gap(best, x) ? place : best));
  const at = own.one.line.x[own.i];
  const format = chart.options.format;
  const pairs = places.map(({ one, i }) => [strokeOf(one), one.name || chart.options.title, format(one.line.y[i])]);
  const title = AXES[chart.options.state.axis].tell(at);
  const step = chart.options.state.axis === 'steps' ? '' : `, step ${grouped(own.one.line.steps[own.i])}`;
  showTip(event, title + step, pairs);
  charts.forEach((other) => cross(other, at));
}

/** Whether a line has begun and not ended at `x`, or does so within some pixels. */
function isThere({ line }, x, { from, to, box }) {
  const near = (8 * (to - from)) / (box.right - box.left);
  return line.x.length > 0 && x >= line.x[0] - near && x <= line.x[line.x.length - 1] + near;
}

function gap({ one, i }, x) {
  return Math.abs(one.line.x[i] - x);
}

function cross(chart, x) {
  const group = chart.picture.querySelector('.pointer');
  if (!group || !chart.view) return;
  const { lines, toX, toY, box } = chart.view;
  if (x === null) { group.replaceChildren(); return; }
  const dots = lines.filter((one) => isThere(one, x, chart.view)).flatMap(({ line, colour }) => {
    const i = nearest(line.x, x), y = toY(line.y[i]);
    return Number.isFinite(y) ? [svg('circle', { cx: toX(line.x[i]), cy: y, r: 3.5, style: `fill: var(${colour})` })] : [];
  });
  const at = Math.round(Math.min(Math.max(toX(x), box.left), box.right)) + 0.5;
  group.replaceChildren(svg('path', { class: 'cross', d: `M${at} ${box.top}V${box.bottom}` }), ...dots);
}
