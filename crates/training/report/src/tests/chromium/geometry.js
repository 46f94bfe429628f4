// Writes into `data-problems` what is wrong with the geometry of this page: a list of sentences.
(() => {
  const problems = [];
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) problems.push(`the page is ${root.scrollWidth} pixels wide, and the window ${innerWidth}`);
  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.textContent.trim() || ['SCRIPT', 'STYLE'].includes(parent.tagName) || !parent.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const { left, right, top, bottom } of range.getClientRects()) {
      if (right > left && bottom > top) texts.push({ node, parent, left, right, top, bottom, text: node.textContent.trim() });
    }
  }
  const isCut = (element) => ['hidden', 'clip'].includes(getComputedStyle(element).overflowX) && element.tagName !== 'svg';
  for (const { parent, left, right, top, bottom, text } of texts) {
    const scrolls = parent.closest('.scroll');
    if (!scrolls && (left < -0.5 || right > innerWidth + 0.5)) problems.push(`"${text}" is outside of the window`);
    for (let box = parent; box && box !== document.body; box = box.parentElement) {
      if (!isCut(box)) continue;
      const outer = box.getBoundingClientRect();
      if (left < outer.left - 1 || right > outer.right + 1 || top < outer.top - 2 || bottom > outer.bottom + 2) problems.push(`"${text}" is cut off`);
    }
  }
  // The boxes of lines are higher than their letters: a quarter of them may touch.
  for (let i = 0; i < texts.length; i += 1) {
    for (let j = i + 1; j < texts.length; j += 1) {
      const [one, other] = [texts[i], texts[j]];
      if (one.node === other.node) continue;
      const height = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      const width = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      if (width > 1 && height > 0.25 * Math.min(one.bottom - one.top, other.bottom - other.top)) {
        problems.push(`"${one.text}" and "${other.text}" overlap`);
      }
    }
  }
  if (document.getElementById('page') && document.querySelectorAll('#page > *').length < 4) problems.push('the page is not drawn');
  root.dataset.problems = JSON.stringify(problems);
})();
