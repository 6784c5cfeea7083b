// The page of the lab, used in a browser: an experiment is cloned, changed, run and looked at.
//
//   node lab.cjs CHROMIUM URL [FOLDER]
//
// With a folder, screenshots of docs/lab/page.md are left there.
'use strict';

const { readFileSync } = require('node:fs');
const { chromium } = require('playwright-core');
const { ARGS } = require('./console_pages.cjs');

const TEXT = `question = "Do clients or durability decide?"
systems = ["stafett"]

[run]
duration = "2s"
warmup = "200ms"
break_in = "0s"
repetitions = 2
design = "factorial"

[topics.main]
partitions = 2

[roles.producers]
does = "produce"
rate = { fixed = 2000 }
linger = "0us"

[roles.consumers]
does = "consume"

[grid]
"roles.producers.clients" = [1, 4]
"system.durability" = ["os", "sync"]

[[figures]]
title = "Effects on the time to delivery"
kind = "effects"
y = ["delivery_p50_us"]
`;
const VIEWS = [
  [1280, 'light'],
  [820, 'dark'],
  [390, 'light'],
];

function must(holds, text) {
  if (!holds) throw new Error(text);
}

async function looked(page, name, axe) {
  for (const [width, colorScheme] of VIEWS) {
    await page.setViewportSize({ width, height: 900 });
    await page.emulateMedia({ colorScheme });
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => window.axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] }));
    const found = violations.map(({ id, nodes }) => `${id}: ${nodes[0].html}`);
    must(found.length === 0, `${name} at ${width}: ${found.join('; ')}`);
    const wider = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    must(wider <= 0, `${name} at ${width} is ${wider} pixels too wide`);
  }
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.emulateMedia({ colorScheme: 'light' });
}

async function main() {
  const [executablePath, base, folder] = process.argv.slice(2);
  const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
  const browser = await chromium.launch({ executablePath, args: ARGS });
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  page.setDefaultTimeout(60_000);
  const wrong = [];
  page.on('pageerror', (error) => wrong.push(String(error)));
  page.on('response', (response) => response.status() >= 400 && wrong.push(`${response.status()} ${response.url()}`));
  page.on('console', (message) => message.type() === 'error' && wrong.push(message.text()));
  const shot = async (name) => folder && page.screenshot({ path: `${folder}/lab-${name}.png` });

  await page.goto(`${base}/`);
  await page.getByText('No runs yet').waitFor();
  await looked(page, 'no runs', axe);
  // By keyboard to the experiments.
  await page.locator('body').press('g');
  await page.locator('body').press('e');
  await page.getByRole('searchbox', { name: 'Search experiments' }).fill('peak');
  await page.getByRole('link', { name: 'peak', exact: true }).click();
  await page.getByText('24, 3 of each').waitFor();
  must(await page.getByRole('textbox', { name: 'Text of peak, TOML' }).evaluate((it) => it.readOnly), 'a built-in experiment stays');
  await looked(page, 'an experiment', axe);
  await page.getByRole('button', { name: 'Clone' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('mine');
  await dialog.getByRole('button', { name: 'Clone' }).click();
  const text = page.getByRole('textbox', { name: 'Text of mine, TOML' });
  await text.fill(TEXT.replace('repetitions = 2', 'repetitions = "many"'));
  await page.getByText('Line 8:').waitFor();
  must(await page.getByRole('button', { name: 'Run' }).isDisabled(), 'a changed text is saved before it runs');
  await text.fill(TEXT);
  await page.getByText('8, 2 of each').waitFor();
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Saved.').waitFor();
  await shot('experiment');
  await page.getByRole('button', { name: 'Run' }).click();
  await dialog.getByLabel('Title').fill('A first try');
  await dialog.getByRole('button', { name: 'Run' }).click();

  await page.getByRole('heading', { name: 'A first try' }).waitFor();
  await page.getByRole('heading', { name: 'Messages per second' }).waitFor();
  await shot('run');
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await dialog.getByRole('button', { name: 'Stop behind this point' }).click();
  await page.getByText('interrupted', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Resume' }).click();
  await dialog.getByRole('button', { name: 'Resume' }).click();
  await page.getByText('8 of 8').first().waitFor();
  await page.getByText('finished', { exact: true }).waitFor();
  await looked(page, 'a run', axe);
  await page.getByRole('link', { name: 'Points', exact: true }).click();
  await page.getByRole('row', { name: /^8 stafett/ }).waitFor();
  await looked(page, 'points', axe);
  await page.getByRole('link', { name: 'Effects', exact: true }).click();
  await page.getByText('Sign table', { exact: true }).first().click();
  await shot('effects');
  await looked(page, 'effects', axe);
  await page.getByRole('link', { name: 'Laws', exact: true }).click();
  await page.getByRole('row', { name: /Bound/ }).first().waitFor();
  await looked(page, 'laws', axe);
  await page.getByRole('link', { name: 'Files', exact: true }).click();
  const download = page.waitForEvent('download');
  await page.getByRole('link', { name: 'Everything as zip' }).click();
  must((await download).suggestedFilename().endsWith('.zip'), 'the archive has a name');
  await page.getByRole('link', { name: 'Models', exact: true }).click();
  await page.getByRole('heading', { name: 'Fit' }).waitFor();
  await looked(page, 'models', axe);
  await page.getByRole('link', { name: 'Runs', exact: true }).click();
  await page.getByRole('link', { name: 'A first try' }).click();
  await page.getByRole('button', { name: 'Delete' }).click();
  const confirm = dialog.getByRole('button', { name: 'Delete' });
  must(await confirm.isDisabled(), 'a deletion asks for the name');
  await dialog.getByRole('textbox').fill(await dialog.getByRole('heading').innerText().then((it) => it.replace('Delete ', '')));
  // The page may ask once more for the run that it shows.
  must(wrong.length === 0, wrong.join('\n'));
  await confirm.click();
  await page.getByText('No runs yet').waitFor();
  must(wrong.every((text) => text.includes('404')), wrong.join('\n'));
  await browser.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
