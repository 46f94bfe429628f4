// Elements of HTML and SVG, the tip at the pointer, and the theme.

/** An element with attributes and children; text is text, never markup. */
function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS('http://www.w3.org/2000/svg', name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Pixels of a text on the axes, near enough to leave room for it. */
const measure = (() => {
  const context = document.createElement('canvas').getContext('2d');
  const known = new Map();
  return (text, font = '12px') => {
    const key = font + text;
    if (!known.has(key)) {
      context.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
      known.set(key, context.measureText(text).width);
    }
    return known.get(key);
  };
})();

function swatch(colour, kind = 'swatch') {
  const style = kind.startsWith('swatch') ? `color: var(${colour})` : `border-color: var(${colour})`;
  return el('i', { class: kind, style });
}

/** Shows `title` and pairs of `[swatch, name, value]` next to the pointer, inside of the window. */
function showTip(event, title, pairs) {
  const tip = document.getElementById('tip');
  tip.replaceChildren(
    el('div', { class: 'title' }, title),
    ...pairs.map(([mark, name, value]) => el('div', { class: 'pair' }, el('span', {}, mark, name), el('b', {}, value))),
  );
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const right = event.clientX + 16 + width <= innerWidth - 8;
  const x = right ? event.clientX + 16 : Math.max(8, event.clientX - 16 - width);
  const y = Math.min(Math.max(8, event.clientY - height / 2), innerHeight - height - 8);
  tip.style.transform = `translate(${Math.round(x)}px, ${Math.round(y)}px)`;
}

function hideTip() {
  document.getElementById('tip').hidden = true;
}

/** The theme: the system's until somebody chooses the other one. */
const theme = {
  system: matchMedia('(prefers-color-scheme: dark)'),
  chosen: /[#&](dark|light)\b/.exec(location.hash)?.[1] ?? null,
  now() {
    return this.chosen ?? (this.system.matches ? 'dark' : 'light');
  },
  apply() {
    document.documentElement.dataset.theme = this.now();
  },
  button() {
    const label = () => (this.now() === 'dark' ? 'Light' : 'Dark');
    const button = el('button', { class: 'theme', type: 'button', 'aria-label': 'Change between dark and light' }, label());
    const update = () => { this.apply(); button.textContent = label(); };
    button.addEventListener('click', () => { this.chosen = this.now() === 'dark' ? 'light' : 'dark'; update(); });
    this.system.addEventListener('change', update);
    return button;
  },
};
theme.apply();
