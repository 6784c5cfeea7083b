// The work of a day with queues, done twice: by keys alone, and by the mouse alone. Queues are looked at with
// their history, a message as a record and as an entry of its queue, contents are dumped, purged, and dead letters
// sent back.
//
//   node daily.cjs CHROMIUM URL
//
// The broker is empty at first. Ends with 1 if anything is wrong. It finds its libraries by NODE_PATH.
'use strict';

const assert = require('node:assert');
const { readFileSync } = require('node:fs');
const { chromium } = require('playwright-core');
const { ARGS, fill, watch } = require('./console_pages.cjs');
const { keysOf, mouseOf, focused } = require('./hands.cjs');

async function call(base, method, path, body) {
  const text = body === undefined ? undefined : JSON.stringify(body);
  const response = await fetch(`${base}/v1/${path}`, { method, body: text, headers: { 'content-type': 'application/json' } });
  assert(response.ok, `${method} ${path}: ${response.status}`);
  return response.json();
}

async function lines(download) {
  const text = readFileSync(await download.path(), 'utf8');
  return text.trim().split('\n').map((line) => JSON.parse(line));
}

const opened = (page) => page.getByRole('dialog');

async function byKeys(page, base, ask) {
  const keys = keysOf(page);
  await page.goto(`${base}/console/`);
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await keys.go('q');
  await page.getByRole('link', { name: 'work.dead', exact: true }).waitFor();
  await keys.press('/');
  await keys.write('work');
  await page.getByText(/2 (of|queues)/).first().waitFor();
  await keys.enter('work');
  await page.getByRole('heading', { name: 'work', exact: true }).waitFor();
  // History: an hour, as a chart and as a table.
  await keys.enter('1 h');
  await page.waitForURL(/range=60/);
  await keys.enter('1 min', { back: true });
  await page.locator('figure canvas').first().waitFor();
  await keys.enter('As a table');
  await page.getByRole('table', { name: 'Waiting' }).waitFor();
  // One message, why it is there, and the record that it is.
  await keys.enter(/^Messages/, { back: true });
  await keys.reach(/"order"/);
  await keys.press('Enter');
  await opened(page).getByText('Why it is here').waitFor();
  await keys.enter(/^Offset /);
  await page.getByRole('heading', { name: 'queue.work' }).waitFor();
  await opened(page).getByText('Where it waits').waitFor();
  await opened(page).getByText('it waits to be handed out').waitFor();
  await keys.enter('work');
  await opened(page).getByText('The record that it is').waitFor();
  const before = await page.url();
  await keys.press('Escape');
  await opened(page).waitFor({ state: 'detached' });
  assert(before.includes('message='), 'the message that is open stands in the address');
  // A dump of everything.
  await keys.enter('Export');
  assert.equal(await focused(page), 'Save as NDJSON');
  const download = page.waitForEvent('download');
  await keys.press('Enter');
  const dumped = await lines(await download);
  assert.equal(dumped.length, (await ask('GET', 'queues/work')).ready);
  await keys.press('Escape');
  // A purge: Cancel has the focus, and the button says what goes.
  await keys.enter('Purge', { back: true });
  assert.equal(await focused(page), 'Cancel');
  await keys.enter(`Purge ${dumped.length} messages`);
  await opened(page).getByText(`${dumped.length} messages purged`).waitFor();
  await keys.press('Enter');
  assert.equal((await ask('GET', 'queues/work')).ready, 0);
  // Dead letters go back.
  await keys.press('Control+k');
  await keys.write('work.dead');
  await page.getByRole('option', { name: /^work.dead/ }).waitFor();
  await keys.press('Enter');
  await keys.enter(/^Messages \(2\)/);
  await page.getByText('rejected in work').first().waitFor();
  await keys.enter('Send dead letters back');
  await keys.enter('Send back');
  await opened(page).getByText('2 messages went back').waitFor();
  await keys.press('Enter');
  assert.equal((await ask('GET', 'queues/work')).ready, 2);
}

async function byMouse(page, base, ask) {
  const mouse = mouseOf(page);
  await page.goto(`${base}/console/`);
  await mouse.link(/^Queues/, page.getByRole('navigation', { name: 'Pages' }));
  await mouse.link('work');
  await mouse.button('1 h');
  await page.waitForURL(/range=60/);
  await mouse.button('1 min');
  await mouse.click(page.getByText('As a table').first());
  await page.getByRole('table', { name: 'Waiting' }).waitFor();
  await mouse.link(/^Messages/);
  await mouse.button(/"order"/);
  await opened(page).getByText('Why it is here').waitFor();
  await mouse.link(/^Offset /, opened(page));
  await opened(page).getByText('it waits to be handed out').waitFor();
  await mouse.link('work', opened(page));
  await opened(page).getByText('The record that it is').waitFor();
  await mouse.button('Close', opened(page));
  // Two beside each other.
  const boxes = page.getByRole('checkbox', { name: /^Choose message/ });
  await mouse.click(boxes.nth(0));
  await mouse.click(boxes.nth(1));
  await mouse.button('Compare');
  await opened(page).getByText(/Lines that differ|the same/).waitFor();
  await mouse.button('Close', opened(page));
  const { ready } = await ask('GET', 'queues/work');
  await mouse.button('Export');
  const download = page.waitForEvent('download');
  await mouse.button('Save as NDJSON', opened(page));
  assert.equal((await lines(await download)).length, ready);
  await mouse.button('Close', opened(page));
  await mouse.button('Purge');
  await mouse.button(`Purge ${ready} messages`, opened(page));
  await mouse.button('Close', opened(page));
  assert.equal((await ask('GET', 'queues/work')).ready, 0);
  await mouse.link(/^Queues/, page.getByRole('navigation', { name: 'Pages' }));
  await mouse.link('work.dead');
  await mouse.link(/^Messages/);
  await mouse.button('Send dead letters back');
  await mouse.button('Send back', opened(page));
  await opened(page).getByText('went back').waitFor();
  await mouse.button('Close', opened(page));
  assert.equal((await ask('GET', 'queues/work')).ready, 2);
}

/** Gives `work` messages, and two of them to its dead letters. */
async function again(ask) {
  for (let n = 0; n < 5; n += 1) await ask('POST', 'messages', { to: { queues: ['work'] }, content: { order: n }, priority: n });
  const { messages } = await ask('POST', 'queues/work/receive?ack=lease:60s&count=2');
  await ask('POST', 'queues/work/settle', { discard: messages.map(({ lease }) => lease) });
}

async function main() {
  const [executablePath, base] = process.argv.slice(2);
  const ask = (method, path, body) => call(base, method, path, body);
  const browser = await chromium.launch({ executablePath, args: ARGS, timeout: 0 });
  const found = [];
  await fill(ask);
  for (const [name, work] of [['keys', byKeys], ['mouse', byMouse]]) {
    const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    page.setDefaultTimeout(30_000);
    watch(page, base, found, /40[49]/);
    try {
      await work(page, base, ask);
    } catch (error) {
      found.push(`by ${name}: ${error.message} (${page.url()})`);
      if (process.env.CONSOLE_SHOTS) await page.screenshot({ path: `${process.env.CONSOLE_SHOTS}/failed-daily-${name}.png` });
    }
    await page.close();
    await again(ask);
  }
  await browser.close();
  for (const problem of found) console.log(problem);
  process.exit(found.length === 0 ? 0 : 1);
}

main().catch((error) => {
  console.log(error);
  process.exit(2);
});
