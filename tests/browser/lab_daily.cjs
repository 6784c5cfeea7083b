// The work of a day with the lab, done twice: by keys alone, and by the mouse alone. An experiment is made, run over
// two agents and watched, its analysis is read, and the run is downloaded.
//
//   node lab_daily.cjs CHROMIUM URL AGENT AGENT
//
// AGENT is HOST:PORT. Ends with 1 if anything is wrong. It finds its libraries by NODE_PATH.
'use strict';

const assert = require('node:assert');
const { readFileSync } = require('node:fs');
const { chromium } = require('playwright-core');
const { ARGS } = require('./console_pages.cjs');
const { keysOf, mouseOf } = require('./hands.cjs');

const TEXT = `question = "Do clients decide?"
systems = ["stafett"]

[run]
duration = "2s"
warmup = "200ms"
break_in = "0s"
repetitions = 1

[topics.main]
partitions = 2

[roles.producers]
does = "produce"
linger = "0us"
window = 1

[roles.consumers]
does = "consume"

[grid]
"roles.producers.clients" = [2, 4]
"system.durability" = ["os"]

[[figures]]
title = "Rate"
kind = "bars"
x = "system"
y = ["produce_rate"]
`;

const dialog = (page) => page.getByRole('dialog');

/** An agent takes one order at a time: it may be asked by another request just now. */
async function areReady(page) {
  for (const name of ['machine1', 'machine2']) await dialog(page).locator('input:enabled').and(page.getByRole('checkbox', { name, exact: true })).waitFor();
}

async function isArchive(waited) {
  const bytes = readFileSync(await (await waited).path());
  assert.equal(bytes.subarray(0, 2).toString(), 'PK', 'an archive is downloaded');
}

async function byKeys(page, base, agents) {
  const keys = keysOf(page);
  await page.goto(`${base}/lab/`);
  await page.getByText('No runs yet').waitFor();
  await keys.go('a');
  for (const [number, address] of agents.entries()) {
    await keys.enter('Add an agent');
    await dialog(page).waitFor();
    await keys.write(`machine${number + 1}`);
    await keys.press('Tab');
    await keys.write(address);
    await keys.press('Enter');
    await page.getByRole('row', { name: new RegExp(`machine${number + 1}`) }).getByText('● ready').waitFor();
  }
  // An experiment of one's own, out of one that came with the program.
  await keys.go('e');
  await page.getByRole('link', { name: 'peak', exact: true }).waitFor();
  await keys.enter('peak');
  await page.getByText('24, 3 of each').waitFor();
  await keys.enter('Clone');
  await dialog(page).waitFor();
  await keys.press('Control+a');
  await keys.write('by-keys');
  await keys.press('Enter');
  await page.getByRole('heading', { name: 'by-keys' }).waitFor();
  await keys.reach('Text of by-keys, TOML');
  await keys.press('Control+a');
  await keys.write(TEXT);
  await page.getByText('2, 1 of each').waitFor();
  await keys.enter('Save');
  await page.getByText('Saved.').waitFor();
  await keys.enter('Run', { back: true });
  await dialog(page).waitFor();
  await areReady(page);
  await keys.tick('machine1');
  await keys.tick('machine2');
  await keys.enter('Run');
  await page.getByText('finished', { exact: true }).waitFor({ timeout: 120_000 });
  // Its analysis.
  await keys.enter('Laws');
  await page.getByRole('row', { name: /Response time/ }).first().waitFor();
  await keys.go('y');
  await keys.tick(/^by-keys/);
  await keys.reach('role producers');
  await keys.press('Space');
  await page.getByRole('figure', { name: 'response time' }).waitFor();
  await keys.enter('Keep', { back: true });
  await dialog(page).waitFor();
  await keys.write('rates');
  await keys.press('Enter');
  await page.getByRole('link', { name: 'rates' }).waitFor();
  const chart = page.waitForEvent('download');
  await keys.enter('SVG');
  assert((await (await chart).suggestedFilename()).endsWith('.svg'));
  await keys.go('m');
  await page.getByRole('heading', { name: 'Closed network' }).waitFor();
  await keys.go('r');
  await keys.enter(/^by-keys/);
  await keys.enter('Files');
  const archive = page.waitForEvent('download');
  await keys.enter('Everything as zip');
  await isArchive(archive);
}

async function byMouse(page, base) {
  const mouse = mouseOf(page);
  const pages = page.getByRole('navigation', { name: 'Pages' });
  await page.goto(`${base}/lab/`);
  await mouse.link('Experiments', pages);
  await mouse.link('by-keys');
  await page.getByText('2, 1 of each').waitFor();
  await mouse.button('Clone');
  await mouse.button('Clone', dialog(page));
  await page.getByRole('heading', { name: 'by-keys-2' }).waitFor();
  await mouse.button('Run');
  await areReady(page);
  await mouse.box('machine1', dialog(page));
  await mouse.box('machine2', dialog(page));
  await mouse.button('Run', dialog(page));
  await page.getByText('finished', { exact: true }).waitFor({ timeout: 120_000 });
  await mouse.link('Points');
  await mouse.link('1', page.getByRole('table', { name: 'Points' }));
  await page.getByText('Messages per second, over the seconds of the point').first().waitFor();
  await mouse.link('Laws');
  await page.getByRole('row', { name: /Response time/ }).first().waitFor();
  await mouse.link('Analysis', pages);
  await mouse.box(/^by-keys-2/);
  await page.getByRole('figure', { name: 'response time' }).waitFor();
  await mouse.link('Runs', pages);
  await mouse.link(/^by-keys-2/);
  await mouse.link('Files');
  const archive = page.waitForEvent('download');
  await mouse.link('Everything as zip');
  await isArchive(archive);
}

async function main() {
  const [executablePath, base, ...agents] = process.argv.slice(2);
  const browser = await chromium.launch({ executablePath, args: ARGS, timeout: 0 });
  const found = [];
  for (const [name, work] of [['keys', byKeys], ['mouse', byMouse]]) {
    const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    page.setDefaultTimeout(60_000);
    page.on('pageerror', (error) => found.push(String(error)));
    try {
      await work(page, base, agents);
    } catch (error) {
      found.push(`by ${name}: ${error.message} (${page.url()})`);
      if (process.env.CONSOLE_SHOTS) await page.screenshot({ path: `${process.env.CONSOLE_SHOTS}/failed-lab-${name}.png` });
    }
    await page.close();
  }
  await browser.close();
  for (const problem of found) console.error(problem);
  process.exit(found.length === 0 ? 0 : 1);
}

main().catch((error) => {
  console.error(error);
  process.exit(2);
});
