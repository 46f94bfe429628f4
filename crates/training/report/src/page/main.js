// The page: what it shows of which runs, drawn again when its width, its axes or its data change.

const state = { axis: 'steps', scale: 'linear', smoothing: 'on' };
/** Drawings that follow the width of the window: `[element, draw]`. */
let drawings = [];

/** An element that is filled by `draw(width)` as soon as it has a width. */
function drawing(draw) {
  const element = el('div');
  drawings.push([element, draw]);
  return element;
}

/** Lines of one column, of all runs: smooth ones with the measured values under them. */
function linesOf(runs, column, canBeSmooth) {
  return (axis) => runs.flatMap((run, index) => {
    const line = series(run, axis, column);
    if (!line) return [];
    const own = { colour: runColour(index), round: runRound(index), name: runs.length > 1 ? run.name : '' };
    const isSmooth = canBeSmooth && state.smoothing === 'on' && line.y.length >= 100;
    if (!isSmooth) return [{ ...own, line }];
    return [{ ...own, line, isRaw: true }, { ...own, line: smoothed(line) }];
  });
}

/** Lines of the corrections of routers: the largest and, dashed, the smallest. */
function correctionLines(runs) {
  const of = (column, name) => (axis) => linesOf(runs, column, true)(axis).map((one) => ({
    ...one, name: runs.length > 1 ? `${one.name}, ${name}` : name, dashed: name === 'smallest',
  }));
  const [largest, smallest] = [of('largest_correction', 'largest'), of('smallest_correction', 'smallest')];
  return (axis) => [...largest(axis), ...smallest(axis)];
}

function lossLines(runs) {
  const training = linesOf(runs, 'loss', true);
  return (axis) => {
    const several = runs.length > 1;
    const named = training(axis).map((one) => (several ? one : { ...one, name: 'training' }));
    const held = runs.flatMap((run, index) => {
      const line = measured(run, axis, run.held_out);
      if (!line) return [];
      const name = several ? `${run.name}, held out` : 'held out';
      return [{ line, colour: several ? runColour(index) : '--held-out', name, dashed: several }];
    });
    const validation = runs.flatMap((run, index) => run.validation.flatMap(([text, losses], place) => {
      const line = measured(run, axis, losses);
      if (!line) return [];
      const name = several ? `${run.name}, ${text}` : text;
      return [{ line, colour: runColour(several ? index : place + 2), name, dashed: true }];
    }));
    return [...named, ...held, ...validation];
  };
}

function chartsOf(runs) {
  charts.length = 0;
  const has = (column) => runs.some((run) => run.columns[column]);
  const events = () => runs.flatMap((run) => (run.columns.steps.length ? run.events.map((event) => ({ run, event })) : []));
  const all = [
    { column: 'loss', title: 'Loss', unit: 'nats per token', height: 340, wide: true, canBeLog: true, lines: lossLines(runs), format: (y) => significant(y, 5), events },
    { column: 'norm', title: 'Gradient norm', canBeLog: true, smooth: true, format: (y) => significant(y, 4), events },
    { column: 'rate', title: 'Learning rate', fromZero: true, format: (y) => significant(y, 4) },
    { column: 'speed', title: 'Tokens per second', fromZero: true, smooth: true, format: (y) => grouped(y) },
    { column: 'peak', title: 'Share of the peak', fromZero: true, smooth: true, format: percent, labels: (ticks) => ticks.map(percent) },
    { column: 'scale', title: 'Loss scale', isLog: true, format: (y) => grouped(y) },
    { column: 'load', title: 'Largest load of an expert', unit: 'balanced: 1', smooth: true, fromZero: true, format: (y) => significant(y, 4) },
    { column: 'idle', title: 'Experts without tokens', fromZero: true, format: (y) => grouped(y) },
    { column: 'dropped', title: 'Dropped choices', fromZero: true, smooth: true, format: percent, labels: (ticks) => ticks.map(percent) },
    { column: 'entropy', title: 'Entropy of routers', unit: 'nats', smooth: true, fromZero: true, format: (y) => significant(y, 4) },
    { column: 'balance', title: 'Balance loss of routers', canBeLog: true, smooth: true, format: (y) => significant(y, 4) },
    { column: 'z_loss', title: 'z-loss of routers', canBeLog: true, smooth: true, format: (y) => significant(y, 4) },
    { column: 'largest_correction', title: 'Corrections of routers', lines: correctionLines(runs), format: (y) => significant(y, 4) },
    { column: 'memory', title: 'Memory of the process', unit: 'peak so far', fromZero: true, format: bytes, labels: (ticks) => ticks.map(bytes) },
  ];
  return all.filter(({ column }) => has(column)).map((options) => lineChart({
    height: 190, lines: linesOf(runs, options.column, options.smooth), state, ...options,
  }));
}

function build(runs) {
  drawings = [];
  const elements = chartsOf(runs).map((chart) => chart.element);
  const controls = el('div', { class: 'controls' },
    choice('Over', Object.keys(AXES), state, 'axis', redraw),
    choice('Scale', ['linear', 'log'], state, 'scale', redraw),
    choice('Smoothing', ['on', 'off'], state, 'smoothing', redraw));
  const curves = runs.some((run) => run.columns.steps.length)
    ? [controls, el('div', { class: 'charts' }, elements)]
    : [el('section', {}, el('p', { class: 'empty' }, 'No step has ended yet.'))];
  const halves = [memorySection(runs), timeSection(runs)].filter(Boolean);
  document.getElementById('page').replaceChildren(...[
    header(runs), figures(runs), ...curves, pipelineSection(runs),
    halves.length ? el('div', { class: 'halves' }, halves) : null, eventSection(runs), runFileSection(runs),
  ].filter(Boolean));
  redraw();
}

function redraw() {
  for (const chart of charts) {
    if (chart.element.isConnected) drawChart(chart, state);
  }
  for (const [element, draw] of drawings) element.replaceChildren(draw(Math.max(160, element.clientWidth)));
}

/** While a server has newer data, shows that; where it is gone, says so, and asks again. */
function follow() {
  let seen = null;
  const note = (text) => { document.getElementById('server').textContent = text; };
  const ask = async () => {
    try {
      const answer = await fetch('data.json', { headers: seen ? { 'If-None-Match': seen } : {}, cache: 'no-store' });
      if (answer.status === 200) {
        const runs = (await answer.json()).runs;
        seen = answer.headers.get('ETag');
        rebuild(runs);
      }
      note(answer.ok || answer.status === 304 ? '' : await answer.text());
    } catch (error) {
      note('The server does not answer: newer steps are not shown.');
    }
    setTimeout(ask, 2000);
  };
  setTimeout(ask, 2000);
}

/** Builds the page again; what its reader has opened stays open. */
function rebuild(runs) {
  const open = () => [...document.querySelectorAll('details')];
  const before = open().map((details) => details.open);
  hideTip();
  build(runs);
  if (before.length === open().length) open().forEach((details, index) => { details.open = before[index]; });
}

const began = performance.now();
build(JSON.parse(document.getElementById('data').textContent).runs);
document.documentElement.dataset.drawnMs = (performance.now() - began).toFixed(1);
let drawnWidth = innerWidth;
addEventListener('resize', () => {
  if (innerWidth !== drawnWidth) { drawnWidth = innerWidth; requestAnimationFrame(redraw); }
});
if (document.documentElement.dataset.served === 'yes') follow();
