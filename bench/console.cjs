// Measures the console of a running broker in Chromium: first numbers, pages, memory, and the broker's cost.
//
//   NODE_PATH=target/browser/node_modules node bench/console.cjs URL BROKER_PID PART...
//
// Parts: `first` numbers with an empty cache, `pages` and the memory after them, `tab` that stays open for TAB_S
// seconds (600), `cost` of ten consoles for the broker. Prints a line of JSON for each figure. Times are
// medians and the highest of several rounds, in ms; memory is the proportional set of the page's process, in MiB;
// shares are of one core. ROUNDS (7) and WATCHED_S (60) say how much is measured. Fill the broker before.
'use strict';

const { readFileSync } = require('node:fs');
const { execFileSync } = require('node:child_process');
const { chromium } = require('playwright-core');

const ROUNDS = Number(process.env.ROUNDS ?? 7);
const PAGES = ['', 'queues', 'queues?sort=-ready', 'queues?q=99', 'topics', 'topics?q=99', 'topics?sort=-records', 'groups', 'exchanges', 'connections', 'events', 'journal', 'users', 'apps'];
const CONSOLES = 10;
const WATCHED_S = Number(process.env.WATCHED_S ?? 60);

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const say = (figure) => console.log(JSON.stringify(figure));
const ticks = Number(execFileSync('getconf', ['CLK_TCK']));

/** Seconds of processor time of a process. */
function cpu(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) / ticks;
}

const pssMib = (pid) => Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))[1]) / 1024;

function summary(times) {
  const sorted = [...times].sort((one, other) => one - other);
  return { median: Math.round(sorted[sorted.length >> 1]), highest: Math.round(sorted.at(-1)) };
}

async function share(pid, seconds) {
  const [before, begun] = [cpu(pid), performance.now()];
  await sleep(seconds * 1000);
  return Number(((cpu(pid) - before) / ((performance.now() - begun) / 1000)).toFixed(4));
}

/** Processes of pages. */
async function renderersOf(browser) {
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send('SystemInfo.getProcessInfo');
  await session.detach();
  return processInfo.filter(({ type }) => type === 'renderer').map(({ id }) => id);
}

/** Opens a page with an empty cache; the time from the request to the first of `selector`. */
async function open(browser, url, selector) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  const page = await context.newPage();
  await page.goto('about:blank');
  const begun = performance.now();
  await page.goto(url, { waitUntil: 'commit' });
  await page.locator(selector).first().waitFor();
  return { context, page, ms: performance.now() - begun };
}

const READY = 'main .figures dd, main tbody tr, main .empty, main .event';

const PARTS = {
  async first(browser, base) {
    const times = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const { context, ms } = await open(browser, `${base}/console/`, 'main .figures dd');
      times.push(ms);
      await context.close();
    }
    say({ what: 'first numbers, empty cache, ms', ...summary(times) });
  },

  async pages(browser, base) {
    const { context, page, renderer } = await openOwn(browser, base);
    for (const path of PAGES) {
      const times = [];
      for (let round = 0; round < ROUNDS; round += 1) {
        // From another page, as by a link, with nothing known: from the change of the address to the second frame
        // with the data.
        await page.goto(`${base}/console/none`);
        await page.getByText('There is no such page').waitFor();
        times.push(await page.evaluate(arrive, [`/console/${path}`, READY]));
      }
      say({ what: `page ${path || 'overview'}, ms`, ...summary(times) });
    }
    say({ what: 'memory of the tab after all pages, MiB', value: Math.round(pssMib(renderer)) });
    // The browser collects when it likes: the rest, and the documents that are still there, are the page's own.
    const session = await context.newCDPSession(page);
    await session.send('HeapProfiler.collectGarbage');
    const { documents, nodes, jsEventListeners } = await session.send('Memory.getDOMCounters');
    await sleep(2000);
    say({ what: 'the same after a collection, MiB', value: Math.round(pssMib(renderer)), documents, nodes, listeners: jsEventListeners });
    await context.close();
  },

  async tab(browser, base) {
    const { context, renderer } = await openOwn(browser, base);
    const seconds = Number(process.env.TAB_S ?? 600);
    await sleep(10_000);
    const before = pssMib(renderer);
    const used = await share(renderer, seconds);
    say({ what: `a tab with the overview for ${seconds} s, MiB before and after, share of a core`, before: Math.round(before), after: Math.round(pssMib(renderer)), share: used });
    await context.close();
  },

  async cost(browser, base, broker) {
    const idle = await share(broker, WATCHED_S);
    say({ what: 'broker without a console, share of a core', share: idle });
    for (const path of ['', 'queues', 'queues?sort=-ready', 'topics']) {
      const contexts = [];
      for (let n = 0; n < CONSOLES; n += 1) contexts.push((await open(browser, `${base}/console/${path}`, READY)).context);
      await sleep(3000);
      const used = await share(broker, WATCHED_S);
      say({ what: `broker with ${CONSOLES} consoles at ${path || 'the overview'}, share of a core above that`, share: Number((used - idle).toFixed(4)) });
      for (const each of contexts) await each.close();
    }
  },
};

/** Runs in the page. */
async function arrive([address, ready]) {
  const begun = performance.now();
  history.pushState(null, '', address);
  dispatchEvent(new PopStateEvent('popstate'));
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  // The page before has no figures and no rows, but is empty, too.
  while (document.querySelector('h1')?.textContent === 'There is no such page' || !document.querySelector(ready)) await frame();
  await frame();
  return performance.now() - begun;
}

/** Opens the overview in a process of its own. */
async function openOwn(browser, base) {
  const opened = await open(browser, `${base}/console/`, READY);
  // The others are spare, and small.
  const [renderer] = (await renderersOf(browser)).sort((one, other) => pssMib(other) - pssMib(one));
  return { ...opened, renderer };
}

async function main() {
  const [base, broker, ...parts] = process.argv.slice(2);
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu', '--site-per-process'] });
  for (const part of parts) await PARTS[part](browser, base, broker);
  await browser.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
