// Measures the console of a running broker in Chromium: first numbers, pages, memory, and the broker's cost.
//
//   NODE_PATH=target/browser/node_modules node bench/console.cjs URL BROKER_PID [SECONDS_OF_A_TAB]
//
// Prints a line of JSON for each figure. Times are medians and the highest of several rounds, in ms; memory is the
// proportional set of the page's process, in MiB; shares are of one core. Fill the broker before.
'use strict';

const { readFileSync } = require('node:fs');
const { execFileSync } = require('node:child_process');
const { chromium } = require('playwright-core');

const ROUNDS = 7;
const PAGES = ['', 'queues', 'queues?sort=-ready', 'queues?q=99', 'topics', 'topics?q=99', 'topics?sort=-records', 'groups', 'exchanges', 'connections', 'events', 'journal', 'users', 'apps'];
const CONSOLES = 10;
const WATCHED_S = 60;

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

/** Process of a page: the only renderer that has appeared since. */
async function rendererOf(browser, before) {
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send('SystemInfo.getProcessInfo');
  await session.detach();
  const renderers = processInfo.filter(({ type }) => type === 'renderer').map(({ id }) => id);
  return { renderers, own: renderers.find((id) => !before.includes(id)) };
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

async function main() {
  const [base, broker, seconds = '60'] = process.argv.slice(2);
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu', '--site-per-process'] });
  const first = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const { context, ms } = await open(browser, `${base}/console/`, 'main .figures dd');
    first.push(ms);
    await context.close();
  }
  say({ what: 'first numbers, empty cache, ms', ...summary(first) });

  const { renderers } = await rendererOf(browser, []);
  const { context, page } = await open(browser, `${base}/console/`, READY);
  const { own } = await rendererOf(browser, renderers);
  for (const path of PAGES) {
    const times = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      // From another page, by a link, as a person goes; from the change of the address to two frames with the data.
      await page.evaluate(() => {
        history.pushState(null, '', '/console/none');
        dispatchEvent(new PopStateEvent('popstate'));
      });
      await page.getByText('There is no such page').waitFor();
      const ms = await page.evaluate(
        async ([address, ready]) => {
          const begun = performance.now();
          history.pushState(null, '', address);
          dispatchEvent(new PopStateEvent('popstate'));
          const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
          while (!document.querySelector(ready)) await frame();
          await frame();
          return performance.now() - begun;
        },
        [`/console/${path}`, READY],
      );
      times.push(ms);
    }
    say({ what: `page ${path || 'overview'}, ms`, ...summary(times) });
  }
  say({ what: 'memory of the tab after all pages, MiB', value: Math.round(pssMib(own)) });

  await page.goto(`${base}/console/`);
  await page.locator(READY).first().waitFor();
  const tab = [pssMib(own)];
  const busy = await share(own, Number(seconds));
  tab.push(pssMib(own));
  say({ what: `the overview for ${seconds} s: memory before and after, MiB; share of a core`, value: tab.map(Math.round), share: busy });
  await context.close();

  const idle = await share(broker, WATCHED_S);
  say({ what: 'broker without a console, share of a core', share: idle });
  for (const path of ['', 'queues?sort=-ready', 'topics']) {
    const contexts = [];
    for (let n = 0; n < CONSOLES; n += 1) contexts.push((await open(browser, `${base}/console/${path}`, READY)).context);
    await sleep(3000);
    const used = await share(broker, WATCHED_S);
    say({ what: `broker with ${CONSOLES} consoles at ${path || 'the overview'}, share of a core above that`, share: Number((used - idle).toFixed(4)) });
    for (const each of contexts) await each.close();
  }
  await browser.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
