// Stacked horizontal bars with a legend: memory by category, time by kind of work.

const BAR = 22;
const BAR_GAP = 12;

/** `rows` of `{ name, parts: [[name, value]], total }`; `colours` by name of part; `format` of values. */
function stackedBars({ rows, colours, format, width, mark }) {
  const left = Math.ceil(Math.max(...rows.map((row) => measure(row.name)))) + GAP + 4;
  const sums = rows.map((row) => row.parts.reduce((sum, [, value]) => sum + value, 0));
  const ends = rows.map((row, i) => row.end ?? format(sums[i]));
  const right = width - Math.ceil(Math.max(...ends.map((text) => measure(text)))) - GAP;
  const most = Math.max(...sums, mark ?? 0, 1e-12);
  const toX = (value) => left + (value / most) * Math.max(20, right - left);
  const height = rows.length * (BAR + BAR_GAP) - BAR_GAP + 2;
  const picture = svg('svg', { viewBox: `0 0 ${width} ${height}`, height, role: 'img' });
  rows.forEach((row, index) => {
    const y = index * (BAR + BAR_GAP);
    let sum = 0;
    picture.append(svg('text', { class: 'row', x: left - GAP, y: y + BAR / 2 + 4, 'text-anchor': 'end' }, row.name));
    for (const [name, value] of row.parts) {
      const from = toX(sum);
      sum += value;
      const block = svg('rect', { x: from, y, width: Math.max(0, toX(sum) - from - (value > 0 ? 1 : 0)), height: BAR, style: `fill: var(${colours(name)})` });
      block.addEventListener('pointermove', (event) => {
        showTip(event, row.name, [[swatch(colours(name)), name, `${format(value)} (${percent(value / sums[index])})`]]);
      });
      block.addEventListener('pointerleave', hideTip);
      picture.append(block);
    }
    picture.append(svg('text', { x: toX(sums[index]) + GAP - 1, y: y + BAR / 2 + 4 }, ends[index]));
  });
  return picture;
}

/** Parts that are a hundredth of the largest row or less in every row, together as the last part. */
function withoutCrumbs(rows) {
  const sum = (row) => row.parts.reduce((total, [, value]) => total + value, 0);
  const least = Math.max(...rows.map(sum)) / 100;
  const large = new Set(rows.flatMap((row) => row.parts.filter(([, value]) => value > least).map(([name]) => name)));
  return rows.map((row) => {
    const crumbs = row.parts.filter(([name]) => !large.has(name)).reduce((total, [, value]) => total + value, 0);
    const parts = row.parts.filter(([name]) => large.has(name));
    return { ...row, parts: crumbs > 0 ? [...parts, ['other', crumbs]] : parts };
  });
}

/** The names of all parts with their colours, largest first in the order of the first row that has them. */
function barLegend(rows, colours) {
  const names = [...new Set(rows.flatMap((row) => row.parts.filter(([, value]) => value > 0).map(([name]) => name)))];
  return el('div', { class: 'legend' }, names.map((name) => el('span', {}, swatch(colours(name)), name)));
}

const KIND_COLOURS = {
  forward: '--forward', 'forward again': '--recompute', recompute: '--recompute', backward: '--backward',
  'backward of inputs': '--input', 'backward of weights': '--weight', communication: '--communication',
  'norm and update': '--optimizer', waiting: '--waiting',
};

function kindColour(kind) {
  return KIND_COLOURS[kind] ?? '--faint';
}

const MEMORY_COLOURS = {
  parameters: '--run-0', gradients: '--run-1', optimizer: '--run-2', activations: '--run-3', scratch: '--run-5',
  transfers: '--recompute', 'gathered parameters': '--input', 'unreduced gradients': '--weight', gaps: '--waiting', cache: '--communication',
};

function memoryColour(category) {
  return MEMORY_COLOURS[category] ?? '--optimizer';
}
