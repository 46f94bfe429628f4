// Parts of the page around the curves: the header, memory, time, pipeline, events and run files.

const RUN_COLOURS = 6;
/** Of the lines of runs with the same colour. */
const RUN_DASHES = [null, '1.5 3', '9 3 2 3'];

function runColour(index) {
  return '--run-' + (index % RUN_COLOURS);
}

/** How often the colours were used before: lines of runs with the same colour have other dashes. */
function runRound(index) {
  return Math.floor(index / RUN_COLOURS) % RUN_DASHES.length;
}

function runMark(index) {
  return swatch(runColour(index), runRound(index) ? `swatch round-${runRound(index)}` : 'swatch');
}

function runTitle(run, index, runs) {
  return runs.length > 1 ? el('h3', {}, runMark(index), run.name) : null;
}

function header(runs) {
  const title = runs.length === 1 ? runs[0].name : `${runs.length} runs`;
  const facts = runs.length === 1 ? runs[0].facts : [];
  const list = el('dl', { class: 'facts' }, facts.flatMap(({ subject, text }) => [el('dt', {}, subject), el('dd', {}, text)]));
  const name = el('div', {}, el('p', { class: 'program' }, 'pleach report', el('span', { class: 'server', id: 'server', role: 'status' })), el('h1', {}, title));
  return el('header', {}, el('div', { class: 'top' }, name, theme.button()), facts.length ? list : null);
}

/** The main figures of a run, without values that it does not have. */
function figuresOf(run) {
  const { columns } = run;
  const share = median(columns.peak ?? []), speed = median(columns.speed ?? []);
  const held = run.held_out[run.held_out.length - 1];
  const some = columns.steps.length > 0;
  const all = [
    ['Loss', columns.loss ? significant(last(columns.loss)) : null, 'nats per token, last step'],
    ['Held-out loss', held ? significant(numeric(held[1])) : null, held ? `after step ${grouped(held[0])}` : ''],
    ['Steps', large(last(columns.steps) || 0), run.rows > columns.steps.length ? `${grouped(columns.steps.length)} are drawn` : some ? 'all are drawn' : 'none has ended'],
    ['Tokens', some ? compact(last(columns.tokens)) : null, columns.steps[0] === 1 ? `${compact(columns.tokens[0])} in the first step` : ''],
    ['Time', some ? duration(last(columns.seconds)) : null, 'in steps'],
    ['Tokens per second', Number.isFinite(speed) ? compact(speed) : null, Number.isFinite(share) ? `${percent(share)} of the peak` : 'median'],
  ];
  return all.filter(([, value]) => value !== null);
}

function figures(runs) {
  if (runs.length > 1) return comparison(runs);
  const one = ([label, value, note]) => el('div', { class: 'figure' },
    el('div', { class: 'label' }, label), el('div', { class: 'value' }, value), el('div', { class: 'note' }, note));
  return el('div', { class: 'figures' }, figuresOf(runs[0]).map(one));
}

/** Several runs: a row for each; on a narrow window the table scrolls within itself. */
function comparison(runs) {
  const names = ['Loss', 'Held-out loss', 'Steps', 'Tokens', 'Time', 'Tokens per second'];
  const row = (run, index) => {
    const own = new Map(figuresOf(run).map(([label, value]) => [label, value]));
    return el('tr', {}, el('td', { class: 'word' }, runMark(index), run.name),
      names.map((name) => el('td', { class: 'number' }, own.get(name) ?? '–')));
  };
  const head = el('tr', {}, el('th', {}, 'Run'), names.map((name) => el('th', { class: 'number' }, name)));
  return el('section', {}, el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, head), el('tbody', {}, runs.map(row)))));
}

function choice(label, names, state, key, redraw) {
  const button = (name) => el('button', { type: 'button', 'aria-pressed': String(state[key] === name), onclick: (event) => {
    state[key] = name;
    for (const other of event.target.parentElement.children) other.setAttribute('aria-pressed', String(other === event.target));
    redraw();
  } }, name);
  return el('div', { class: 'control', role: 'group', 'aria-label': label }, label, el('span', { class: 'choices' }, names.map(button)));
}

function memorySection(runs) {
  const planned = runs.map((run, index) => ({ run, index })).filter(({ run }) => run.memory);
  if (!planned.length) return null;
  const lead = 'Planned bytes of one rank of each stage, at the peak of its arena, and the most memory that the process has held in its steps.';
  const parts = planned.map(({ run, index }) => {
    const rows = withoutCrumbs(run.memory.stages);
    const used = run.memory.resident_bytes;
    const sums = [['Arenas of all ranks', run.memory.arenas_bytes], ['Peak of the process', used]].filter(([, value]) => value);
    const of = (width) => stackedBars({ rows, colours: memoryColour, format: bytes, width });
    const most = Math.max(...sums.map(([, value]) => value));
    const all = (width) => stackedBars({
      rows: sums.map(([name, value]) => ({ name, parts: [[name, value]] })), colours: () => '--optimizer', format: bytes, width, mark: most,
    });
    return el('div', { class: 'of-run' }, runTitle(run, index, runs), drawing(of), el('div', { style: 'margin: 10px 0 18px' }, barLegend(rows, memoryColour)), drawing(all));
  });
  return el('section', {}, el('h2', {}, 'Memory, planned and used'), el('p', { class: 'lead' }, lead), parts);
}

function timeSection(runs) {
  const timed = runs.map((run, index) => ({ run, index })).filter(({ run }) => run.timeline);
  if (!timed.length) return null;
  const parts = timed.map(({ run, index }) => {
    const rows = timeRows(run.timeline);
    const format = run.timeline.source === 'measured' ? moment : (value) => percent(value / run.timeline.end_us);
    const of = (width) => stackedBars({ rows, colours: kindColour, format, width });
    return el('div', { class: 'of-run' }, runTitle(run, index, runs), drawing(of), el('div', { style: 'margin-top: 10px' }, barLegend(rows, kindColour)));
  });
  const lead = 'One rank of each stage during one step; the share at the right is waiting. Communication counts where no computation hides it.';
  return el('section', {}, el('h2', {}, 'Time by operation'), el('p', { class: 'lead' }, lead), parts);
}

function pipelineSection(runs) {
  const timed = runs.map((run, index) => ({ run, index })).filter(({ run }) => run.timeline && run.timeline.stages.length);
  if (!timed.length) return null;
  const about = ({ source, step }) => (source === 'measured' ? `As measured in step ${grouped(step)}.` : 'As planned: the run has not measured a step.');
  const parts = timed.map(({ run, index }) => {
    const kinds = new Set(run.timeline.stages.flatMap((stage) => stage.blocks.map(([kind]) => kind)));
    const names = Object.keys(KIND_COLOURS).filter((kind) => kinds.has(kind)).concat('waiting');
    const legend = el('div', { class: 'legend', style: 'margin-bottom: 12px' }, names.map((kind) => el('span', {}, swatch(kindColour(kind)), kind)));
    const lead = el('p', { class: 'note' }, about(run.timeline) + ' Numbers are microbatches.');
    return el('div', { class: 'of-run' }, runTitle(run, index, runs), lead, legend, drawing((width) => pipelinePicture(run.timeline, width)));
  });
  return el('section', {}, el('h2', {}, 'The pipeline in one step'), parts);
}

function eventSection(runs) {
  const events = runs.flatMap((run, index) => run.events.map((event) => ({ run, index, event })));
  const title = el('h2', {}, 'Events');
  if (!events.length) {
    return el('section', {}, title, el('p', { class: 'lead' }, 'Nothing was resumed or skipped, and no spike was found; the first 20 steps have none.'));
  }
  const more = runs.reduce((sum, run) => sum + run.more_events, 0);
  const several = runs.length > 1;
  const row = ({ run, index, event }) => el('tr', {}, el('td', { class: 'number' }, grouped(event.step)), el('td', { class: 'word' }, event.kind),
    several ? el('td', {}, runMark(index), run.name) : null, el('td', {}, event.text));
  const head = el('tr', {}, el('th', { class: 'number' }, 'Step'), el('th', {}, 'Event'), several ? el('th', {}, 'Run') : null, el('th', {}, 'Details'));
  return el('section', {}, title, el('div', { style: 'margin-top: 12px' }, el('table', {}, el('thead', {}, head), el('tbody', {}, events.map(row)))),
    more ? el('p', { class: 'empty', style: 'margin-top: 10px' }, `${grouped(more)} more are not listed.`) : null);
}

/** Keys of a resolved run file with their values. */
function keysOf(toml) {
  const keys = new Map();
  let section = '';
  for (const line of toml.split('\n')) {
    const header = /^\[+([^\]]+)\]+/.exec(line), pair = /^([A-Za-z0-9_]+) = (.*)$/.exec(line);
    if (header) section = header[1];
    else if (pair) keys.set(`${section}.${pair[1]}`, pair[2]);
  }
  return keys;
}

function differences(runs) {
  const all = runs.map((run) => keysOf(run.run_file));
  const keys = [...new Set(all.flatMap((own) => [...own.keys()]))].filter((key) => key !== 'run.folder');
  const different = keys.filter((key) => new Set(all.map((own) => own.get(key) ?? '')).size > 1);
  if (!different.length) return el('p', { class: 'lead' }, 'All keys of the run files have the same values.');
  const head = el('tr', {}, el('th', {}, 'Key'), runs.map((run, index) => el('th', {}, runMark(index), ' ', run.name)));
  const row = (key) => el('tr', {}, el('td', { class: 'mono' }, key), all.map((own) => el('td', { class: 'mono' }, own.get(key) ?? '–')));
  return el('div', { class: 'scroll', style: 'margin: 12px 0 20px' }, el('table', {}, el('thead', {}, head), el('tbody', {}, different.map(row))));
}

function runFileSection(runs) {
  const line = (text) => {
    const pair = /^([A-Za-z0-9_]+)( = .*)$/.exec(text);
    if (pair) return [el('span', { class: 'key' }, pair[1]), pair[2] + '\n'];
    return [text.startsWith('[') ? el('span', { class: 'section' }, text) : text, '\n'];
  };
  const part = (text) => el('span', { class: 'part' }, text.split('\n').filter(Boolean).flatMap(line));
  const file = (run, index) => el('details', runs.length === 1 ? { open: '' } : {}, el('summary', {}, runs.length > 1 ? run.name : 'run.toml'),
    el('pre', {}, run.run_file.split(/\n(?=\[)/).map(part)));
  const title = el('h2', {}, runs.length > 1 ? 'Run files, and keys that differ' : 'Run file');
  return el('section', {}, title, runs.length > 1 ? differences(runs) : null, el('div', { style: 'margin-top: 12px' }, runs.map(file)));
}
