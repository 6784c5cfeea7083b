// The pages of a broker that has many queues and topics: what axe says of them, their width, and their speed.
//
//   node many.cjs CHROMIUM URL [COUNT] [FOLDER]
//
// Makes COUNT queues and COUNT topics (2,000), unless they are there. With a folder, screenshots are left there. Ends
// with 1 if anything is wrong. It finds its libraries by NODE_PATH.
'use strict';

const { chromium } = require('playwright-core');
const { ARGS, look, watch } = require('./console_pages.cjs');

const PAGES = ['', 'queues', 'queues?sort=-ready', 'queues?q=99', 'topics', 'topics?q=99', 'topics?sort=-records', 'exchanges', 'groups', 'connections', 'events'];
const AT_ONCE = 32;

async function fill(base, count) {
  const put = async (path) => {
    const response = await fetch(`${base}/v1/${path}`, { method: 'PUT', body: '{}', headers: { 'content-type': 'application/json' } });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  };
  const { totals } = await (await fetch(`${base}/v1/overview`)).json();
  if (totals.queues >= count && totals.topics >= count) return;
  let next = 0;
  const worker = async () => {
    while (next < count) {
      const n = String(next++).padStart(6, '0');
      await put(`queues/many.${n}`);
      await put(`topics/many.${n}`);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

async function main() {
  const [executablePath, base, count = '2000', folder] = process.argv.slice(2);
  await fill(base, Number(count));
  const browser = await chromium.launch({ executablePath, args: ARGS, timeout: 0 });
  const found = [];
  await look(browser, base, PAGES, found, undefined, folder && { folder, name: 'many' });
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  watch(page, base, found);
  await page.goto(`${base}/console/queues?sort=-name`);
  await page.getByRole('link', { name: `many.${String(Number(count) - 1).padStart(6, '0')}` }).waitFor();
  await page.getByRole('searchbox').fill('000077');
  await page.getByRole('link', { name: 'many.000077' }).waitFor();
  await browser.close();
  for (const problem of found) console.log(problem);
  process.exit(found.length === 0 ? 0 : 1);
}

main().catch((error) => {
  console.log(error);
  process.exit(2);
});
