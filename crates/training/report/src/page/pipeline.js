// The pipeline of one step: a row per stage, a block per pass of a microbatch.

const ROW_HEIGHTS = { few: 26, many: 14 };

function pipelinePicture(timeline, width) {
  const { stages, end_us: end } = timeline;
  const pitch = stages.length > 16 ? ROW_HEIGHTS.many : ROW_HEIGHTS.few;
  const bar = pitch - 5;
  const left = Math.ceil(Math.max(...stages.map((stage) => measure(stage.name)))) + GAP + 4;
  const right = width - 2;
  const toX = (time) => left + (time / end) * (right - left);
  const bottom = stages.length * pitch;
  const height = bottom + 22;
  const picture = svg('svg', { viewBox: `0 0 ${width} ${height}`, height, role: 'img', 'aria-label': 'pipeline of one step' });
  stages.forEach((stage, index) => {
    const y = index * pitch;
    picture.append(
      svg('text', { class: 'row', x: left - GAP, y: y + bar / 2 + 4, 'text-anchor': 'end' }, stage.name),
      svg('rect', { x: left, y, width: right - left, height: bar, style: 'fill: var(--waiting)' }),
      ...stageBlocks(stage.blocks, toX, y, bar),
      ...(bar >= 14 ? blockLabels(stage.blocks, toX, y, bar) : []),
    );
  });
  picture.append(...timeAxis(timeline, toX, left, right, bottom));
  picture.addEventListener('pointermove', (event) => hoverBlock(event, picture, timeline, { pitch, left, right, width }));
  picture.addEventListener('pointerleave', hideTip);
  return picture;
}

/** One path for all blocks of a kind; odd microbatches are a little lighter, and communication is a band below. */
function stageBlocks(blocks, toX, y, bar) {
  const paths = new Map();
  for (const [kind, microbatch, start, end] of blocks) {
    const isBeside = kind === 'communication';
    const key = kind + ((microbatch ?? 0) % 2 ? '/odd' : '');
    const x = toX(start), width = Math.max(0.4, toX(end) - x);
    const [top, height] = isBeside ? [y + bar - 4, 4] : [y, bar];
    paths.set(key, (paths.get(key) ?? '') + `M${x.toFixed(2)} ${top}h${width.toFixed(2)}v${height}h${(-width).toFixed(2)}z`);
  }
  return [...paths].map(([key, d]) => {
    const [kind, odd] = key.split('/');
    return svg('path', { d, style: `fill: var(${kindColour(kind)})`, opacity: odd ? 0.8 : null });
  });
}

function blockLabels(blocks, toX, y, bar) {
  return blocks.flatMap(([kind, microbatch, start, end]) => {
    const isDark = ['forward', 'backward', 'norm and update'].includes(kind);
    if (microbatch === null || kind === 'communication') return [];
    const width = toX(end) - toX(start), text = String(microbatch);
    if (width < measure(text, '11px') + 6) return [];
    const colour = isDark ? 'var(--raised)' : '#1b1d21';
    return [svg('text', { class: 'inside', x: (toX(start) + toX(end)) / 2, y: y + bar / 2 + 4, 'text-anchor': 'middle', style: `fill: ${colour}` }, text)];
  });
}

function timeAxis(timeline, toX, left, right, bottom) {
  if (timeline.source !== 'measured') return [];
  const ticks = linearTicks(0, timeline.end_us, Math.max(2, Math.floor((right - left) / 110)));
  let until = -Infinity;
  return ticks.flatMap((tick) => {
    const text = moment(tick), half = measure(text) / 2;
    const x = Math.min(Math.max(toX(tick), half), right - half);
    if (x - half < until + 10) return [];
    until = x + half;
    return [
      svg('path', { class: 'base', d: `M${Math.round(toX(tick))} ${bottom - 2}v4` }),
      svg('text', { x, y: bottom + 17, 'text-anchor': 'middle' }, text),
    ];
  });
}

function hoverBlock(event, picture, timeline, { pitch, left, right, width }) {
  const bounds = picture.getBoundingClientRect();
  const x = ((event.clientX - bounds.left) / bounds.width) * width;
  const stage = timeline.stages[Math.floor((event.clientY - bounds.top) / pitch)];
  const time = ((x - left) / (right - left)) * timeline.end_us;
  if (!stage || time < 0 || time > timeline.end_us) { hideTip(); return; }
  const found = stage.blocks.filter(([, , start, end]) => start <= time && time < end);
  const isMeasured = timeline.source === 'measured';
  const length = (start, end) => (isMeasured ? moment(end - start) : percent((end - start) / timeline.end_us));
  const pairs = found.map(([kind, microbatch, start, end]) => {
    const name = microbatch === null ? kind : `${kind}, microbatch ${microbatch}`;
    return [swatch(kindColour(kind)), name, length(start, end)];
  });
  const at = isMeasured ? `${stage.name}, at ${moment(time)}` : stage.name;
  showTip(event, at, pairs.length ? pairs : [[swatch('--waiting'), 'waiting', '']]);
}

/** Time by kind of work of each stage, the rest of the step being waiting. */
function timeRows(timeline) {
  return timeline.stages.map((stage) => {
    const spent = stage.spent.filter(([, time]) => time > 0);
    const worked = spent.reduce((sum, [, time]) => sum + time, 0);
    const waiting = Math.max(0, timeline.end_us - worked);
    return { name: stage.name, parts: [...spent, ['waiting', waiting]], end: percent(waiting / timeline.end_us) };
  });
}
