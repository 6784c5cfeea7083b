// Hands of a person: one that has the keys alone, and one that has the mouse alone.
'use strict';

/** Name of the element that has the focus, as assistive technology says it, roughly. */
const focused = (page) =>
  page.evaluate(() => {
    const element = document.activeElement;
    // A table that scrolls can have the focus too, and has no name.
    if (!element?.matches('a, button, input, select, textarea, summary')) return '';
    const labels = [...(element.labels ?? [])].map((label) => label.innerText);
    const text = element.getAttribute('aria-label') ?? (labels.join(' ') || element.innerText || element.getAttribute('placeholder') || element.value || '');
    return text.replace(/\s+/g, ' ').trim();
  });

/** Keys alone. No element is clicked, filled or focused by the test. */
function keysOf(page) {
  const press = async (...keys) => {
    for (const key of keys) await page.keyboard.press(key);
  };
  /** Moves the focus on until an element of this name has it. */
  const reach = async (name, { back = false, most = 400 } = {}) => {
    const seen = [];
    for (let step = 0; step <= most; step += 1) {
      const at = await focused(page);
      if (name instanceof RegExp ? name.test(at) : at === name) return at;
      seen.push(at);
      await press(back ? 'Shift+Tab' : 'Tab');
    }
    throw new Error(`${name} is not reached by Tab; on the way: ${[...new Set(seen)].slice(0, 60).join(' | ')} (${page.url()})`);
  };
  const enter = async (name, options) => {
    await reach(name, options);
    await press('Enter');
  };
  return {
    press,
    reach,
    enter,
    /** To a page by its two letters, from wherever the focus is. */
    go: (letter) => press('g', letter),
    write: (text) => page.keyboard.insertText(text),
    tick: async (name) => {
      await reach(name);
      await press('Space');
    },
  };
}

/** The mouse alone: it is moved to what is seen, and clicks. Nothing is typed. */
function mouseOf(page) {
  const click = (locator) => locator.click();
  const by = (role) => (name, within = page) => click(within.getByRole(role, typeof name === 'string' ? { name, exact: true } : { name }).first());
  return { click, link: by('link'), button: by('button'), box: by('checkbox') };
}

module.exports = { keysOf, mouseOf, focused };
