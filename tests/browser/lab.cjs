// The page of the lab, used in a browser: an experiment is cloned, changed, run and looked at.
//
//   node lab.cjs CHROMIUM URL AGENT AGENT [FOLDER]
//
// The second run is carried by the two agents, HOST:PORT. With a folder, screenshots of docs/lab/page.md are left there.
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
const VIEWS = [1280, 820, 390].flatMap((width) => [
  [width, 'light'],
  [width, 'dark'],
]);

function must(holds, text) {
  if (!holds) throw new Error(text);
}

async function looked(page, name, axe) {
  for (const [width, colorScheme] of VIEWS) {
    await page.setViewportSize({ width, height: 900 });
    await page.emulateMedia({ colorScheme });
    // Charts and colours follow with the next frame, which may come late on a busy machine.
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    // What lies half under the bar is no small target.
    await page.evaluate(() => scrollTo(0, 0));
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
  const [executablePath, base, ...rest] = process.argv.slice(2);
  const [agents, [folder]] = [rest.slice(0, 2), rest.slice(2)];
  const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
  const browser = await chromium.launch({ executablePath, args: ARGS, timeout: 0 });
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  page.setDefaultTimeout(60_000);
  const wrong = [];
  page.on('pageerror', (error) => wrong.push(String(error)));
  // A run without closed loops has no closed network, and the lab says so with 400.
  page.on('response', (response) => response.status() >= 400 && !response.url().endsWith('/models/closed') && wrong.push(`${response.status()} ${response.url()}`));
  page.on('console', (message) => message.type() === 'error' && !message.location().url.endsWith('/models/closed') && wrong.push(message.text()));
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
  // The form and the text are two views of one document.
  await page.getByRole('button', { name: 'Form', exact: true }).click();
  const duration = page.getByLabel('Duration of a point');
  must((await duration.inputValue()) === '2s', 'the form shows the text');
  await duration.fill('1s');
  await duration.press('Enter');
  await page.getByLabel('Path of a setting').fill('roles.producers.size');
  await page.getByRole('button', { name: 'Add a factor' }).click();
  await page.getByText('16, 2 of each').waitFor();
  await page.getByLabel('Fraction').fill('s = cd');
  await page.getByLabel('Fraction').press('Enter');
  await page.getByText('A fraction of resolution 3').waitFor();
  await page.getByText('8, 2 of each').waitFor();
  await looked(page, 'the form', axe);
  await page.evaluate(() => scrollTo(0, 0));
  await shot('form');
  await page.getByRole('button', { name: 'Text', exact: true }).click();
  const edited = await text.inputValue();
  must(edited.includes('duration = "1s"') && edited.includes('fraction = "s = cd"') && edited.includes('[[figures]]'), edited);
  await page.getByRole('button', { name: 'Undo changes' }).click();
  await page.getByText('8, 2 of each').waitFor();
  // A run that waits for tomorrow.
  await page.getByRole('button', { name: 'Run' }).click();
  await dialog.getByLabel('Not before').fill('2099-01-01T00:00');
  await dialog.getByRole('button', { name: 'Run' }).click();
  await page.getByText('queued', { exact: true }).waitFor();
  await page.getByRole('link', { name: 'Queue', exact: true }).click();
  await page.getByText('not before').waitFor();
  await looked(page, 'the queue', axe);
  await page.getByRole('button', { name: /^Do not run/ }).click();
  await page.getByText('No run waits').waitFor();
  // Another machine.
  await page.getByRole('link', { name: 'Machines', exact: true }).click();
  await page.getByText('No agent is known').waitFor();
  await page.getByRole('button', { name: 'Add an agent' }).click();
  await dialog.getByLabel('Name').fill('far');
  await dialog.getByLabel('Address').fill('127.0.0.1:9');
  await dialog.getByRole('button', { name: 'Add', exact: true }).click();
  await page.getByText('✕ not there').waitFor();
  await page.getByText('ssh 127.0.0.1 ./stafett-lab agent').waitFor();
  await looked(page, 'machines', axe);
  await page.getByRole('button', { name: 'Remove' }).click();
  await dialog.getByRole('button', { name: 'Remove it' }).click();
  await page.getByText('No agent is known').waitFor();
  for (const [number, address] of agents.entries()) {
    await page.getByRole('button', { name: 'Add an agent' }).click();
    await dialog.getByLabel('Name').fill(`machine${number + 1}`);
    await dialog.getByLabel('Address').fill(address);
    await dialog.getByRole('button', { name: 'Add', exact: true }).click();
    await page.getByRole('row', { name: new RegExp(`machine${number + 1}`) }).getByText('● ready').waitFor();
  }
  await page.goto(`${base}/lab/experiments/mine`);
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
  await page.getByText('8 of 8').first().waitFor({ timeout: 240_000 });
  await page.getByText('finished', { exact: true }).waitFor();
  await looked(page, 'a run', axe);
  await page.getByRole('link', { name: 'Points', exact: true }).click();
  await page.getByRole('row', { name: /^8 stafett/ }).getByRole('link', { name: '8', exact: true }).click();
  await page.getByText('Latency: median, and the band from 2.5 to 97.5 %', { exact: true }).first().waitFor();
  await shot('point');
  await looked(page, 'points', axe);
  await page.getByRole('link', { name: 'Effects', exact: true }).click();
  await page.getByText('Sign table', { exact: true }).first().click();
  await page.getByText('Interactions', { exact: true }).first().click();
  await page.getByRole('figure', { name: 'c with d' }).first().waitFor();
  await page.getByText('Residuals', { exact: true }).first().click();
  await page.getByRole('figure', { name: 'Residuals over normal quantiles' }).first().waitFor();
  await shot('effects');
  await looked(page, 'effects', axe);
  await page.getByRole('link', { name: 'Laws', exact: true }).click();
  await page.getByRole('row', { name: /Bound/ }).first().waitFor();
  await looked(page, 'laws', axe);
  // An analysis over the seconds of the run, and the protocol of all runs.
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Analysis', exact: true }).click();
  await looked(page, 'an analysis without a run', axe);
  await page.getByRole('checkbox', { name: 'A first try' }).check();
  await page.getByRole('checkbox', { name: 'role consumers' }).check();
  await page.getByRole('combobox', { name: 'Window' }).selectOption('1');
  await page.getByRole('figure', { name: 'response time' }).waitFor();
  await looked(page, 'an analysis', axe);
  await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
  await shot('analysis');
  await page.goto(`${base}/lab/protocol`);
  await page.getByRole('heading', { name: 'A first try' }).waitFor();
  await looked(page, 'the protocol', axe);
  await page.goBack();
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Runs', exact: true }).click();
  await page.getByRole('link', { name: 'A first try' }).click();
  await page.getByRole('link', { name: 'Files', exact: true }).click();
  const download = page.waitForEvent('download');
  await page.getByRole('link', { name: 'Everything as zip' }).click();
  must((await download).suggestedFilename().endsWith('.zip'), 'the archive has a name');
  await page.getByRole('link', { name: 'Models', exact: true }).click();
  await page.getByRole('heading', { name: 'Fit' }).waitFor();
  await looked(page, 'models', axe);
  // The same at another scale, beside it.
  await page.goto(`${base}/lab/experiments/mine`);
  await page.getByRole('button', { name: 'Run' }).click();
  await dialog.getByLabel('Scale').fill('0.3');
  await dialog.getByLabel('Title').fill('A second try');
  await dialog.getByRole('checkbox', { name: 'machine1' }).check();
  await dialog.getByRole('checkbox', { name: 'machine2' }).check();
  await dialog.getByRole('button', { name: 'Run' }).click();
  await page.getByText('8 of 8').first().waitFor({ timeout: 240_000 });
  await page.getByText('finished', { exact: true }).waitFor();
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Runs', exact: true }).click();
  const box = (title) => page.getByRole('row', { name: new RegExp(title) }).getByRole('checkbox');
  await box('A first try').check();
  await box('A second try').check();
  await page.getByRole('link', { name: 'Compare 2 runs' }).click();
  const compared = page.getByRole('table', { name: 'Comparison' });
  await compared.getByText('×').first().waitFor();
  must((await compared.locator('tbody tr').count()) === 4, 'a line for each combination');
  await page.getByRole('row', { name: /^scale/ }).getByText('0.3').waitFor();
  must(await page.getByText('machine2').first().isVisible(), 'the comparison says that agents carried one of the runs');
  await looked(page, 'a comparison', axe);
  await shot('compare');
  const remove = async (title) => {
    await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Runs', exact: true }).click();
    await page.getByRole('link', { name: title }).click();
    await page.getByRole('button', { name: 'Delete' }).click();
    await dialog.getByRole('textbox').fill(await dialog.getByRole('heading').innerText().then((it) => it.replace('Delete ', '')));
    await dialog.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('searchbox', { name: 'Search runs' }).waitFor();
  };
  await remove('A second try');
  wrong.splice(0, wrong.length, ...wrong.filter((line) => !line.includes('404')));
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Runs', exact: true }).click();
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
