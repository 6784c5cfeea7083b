// Looks at pages of the lab in Chromium, as desktop, phone and paper, light and dark, and names what is wrong with them.
//
//   node report.cjs CHROMIUM PAGE...
//
// Ends with 1 if anything is. It finds playwright-core by NODE_PATH.
'use strict';

const { pathToFileURL } = require('node:url');
const { chromium } = require('playwright-core');

const ARGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];
const VIEWS = [
  { name: 'desktop, light', width: 1280, height: 900, colorScheme: 'light' },
  { name: 'desktop, dark', width: 1280, height: 900, colorScheme: 'dark' },
  { name: 'phone, light', width: 360, height: 780, colorScheme: 'light' },
  { name: 'phone, dark', width: 360, height: 780, colorScheme: 'dark' },
  { name: 'paper', width: 794, height: 1123, colorScheme: 'dark', media: 'print' },
];

// Runs in the page.
function problems(isPaper) {
  const found = [];
  const page = document.documentElement;
  if (!isPaper && page.scrollWidth > page.clientWidth) {
    found.push(`the page is ${page.scrollWidth} px wide: wider than the window, which has ${page.clientWidth}`);
  }
  const shown = (element) => element.getClientRects().length > 0;
  const figures = [...document.querySelectorAll('figure')];
  if (figures.length === 0) found.push('there is no figure');
  for (const figure of figures) {
    const title = figure.querySelector('h3')?.textContent ?? '?';
    // Where nothing was measured, or it is said why, there may be nothing. Else a figure asks for what no point has.
    if (figure.querySelector('.nothing.empty')) found.push(`"${title}": empty figure: points were measured, and none has it`);
    if (figure.querySelector('.nothing')) continue;
    const charts = [...figure.querySelectorAll('svg.chart')].filter(shown);
    if (charts.length === 0) found.push(`"${title}": empty figure: no chart is shown`);
    for (const chart of charts) {
      const frame = chart.getBoundingClientRect();
      const marks = [...chart.querySelectorAll('[class^="m"], [class^="s"]:not(.shade)')];
      const drawn = marks.filter((mark) => {
        const box = mark.getBoundingClientRect();
        return box.width + box.height > 0 && box.right >= frame.left && box.left <= frame.right;
      });
      if (frame.width < 200 || frame.height < 50 || drawn.length === 0) found.push(`"${title}": empty figure: nothing is drawn in it`);
      for (const text of chart.querySelectorAll('text')) {
        const box = text.getBoundingClientRect();
        if (box.left < frame.left - 8 || box.right > frame.right + 8 || box.top < frame.top - 4 || box.bottom > frame.bottom + 4) {
          found.push(`"${title}": the label "${text.textContent}" reaches out of its chart`);
        }
      }
    }
  }
  // WCAG 2.2, 1.4.3 and 1.4.11: text 4.5 to 1, what is drawn 3 to 1.
  const luminance = (colour) => {
    const [r, g, b] = colour.match(/[\d.]+/g).map(Number).map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = luminance(getComputedStyle(document.body).backgroundColor);
  const contrast = (colour) => {
    const ink = luminance(colour);
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  };
  const check = (selector, property, least) => {
    for (const element of [...document.querySelectorAll(selector)].filter(shown).slice(0, 200)) {
      const colour = getComputedStyle(element)[property];
      if (contrast(colour) < least) found.push(`${selector}: ${colour} has a contrast of ${contrast(colour).toFixed(2)}, less than ${least}`);
    }
  };
  check('h1, p, td, th, .notes, .durability, .reach, .unit', 'color', 4.5);
  check('.tick, .note', 'fill', 4.5);
  check('svg [class^="m"]', 'fill', 3);
  check('svg [class^="s"][class*=" d"]', 'stroke', 3);
  return [...new Set(found)];
}

async function main() {
  const [executablePath, ...pages] = process.argv.slice(2);
  // How long a page takes says nothing about it: the machine may be busy. Whoever starts this bounds the whole.
  const browser = await chromium.launch({ executablePath, args: ARGS, timeout: 0 });
  let count = 0;
  for (const page of pages) {
    for (const view of VIEWS) {
      const tab = await browser.newPage({ viewport: { width: view.width, height: view.height }, colorScheme: view.colorScheme });
      tab.setDefaultTimeout(0);
      const found = [];
      tab.on('console', (message) => found.push(`console: ${message.text()}`));
      tab.on('pageerror', (error) => found.push(`console: ${error.message}`));
      tab.on('requestfailed', (request) => found.push(`console: ${request.url()} was asked for`));
      if (view.media) await tab.emulateMedia({ media: view.media });
      await tab.goto(pathToFileURL(page).href);
      found.push(...await tab.evaluate(problems, view.media === 'print'));
      for (const problem of found) console.log(`${page} (${view.name}): ${problem}`);
      count += found.length;
      await tab.close();
    }
  }
  await browser.close();
  process.exitCode = count === 0 ? 0 : 1;
}

main().catch((error) => {
  console.log(error);
  process.exitCode = 2;
});
