// Uses the console of a broker as a person would, in Chromium, and names what is wrong.
//
//   node console.cjs CHROMIUM URL
//
// The broker is empty at first. The line `kill` asks for its end, `start` for its start; the answer to each is a line.
// Ends with 1 if anything is wrong. It finds its libraries by NODE_PATH.
'use strict';

const assert = require('node:assert');
const readline = require('node:readline');
const { chromium } = require('playwright-core');
const { ARGS, watch, look, PAGES, fill } = require('./console_pages.cjs');

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const ask = async (what) => {
  console.log(what);
  await lines.next();
};

/** A request of the API; JSON in and out. */
function api(base) {
  return async (method, path, body, headers = {}) => {
    const text = typeof body === 'string' ? body : body === undefined ? undefined : JSON.stringify(body);
    const response = await fetch(`${base}/v1/${path}`, { method, body: text, headers: { 'content-type': 'application/json', ...headers } });
    assert(response.ok, `${method} ${path}: ${response.status} ${response.ok ? '' : await response.text()}`);
    return response.json();
  };
}

const HOSTILE = '<img src=x onerror=alert(1)> \u202e evil \u0007';

const STEPS = {
  async 'a newcomer is led to the console and told how to begin'({ page, base }) {
    await page.goto(`${base}/`);
    await page.waitForURL('**/console/');
    await page.getByText('This broker is empty').waitFor();
    await page.getByText('curl -X PUT').first().waitFor();
  },

  async 'a queue is made by keyboard'({ page, call }) {
    await page.locator('main').focus();
    await page.keyboard.press('g');
    await page.keyboard.press('q');
    await page.getByText('There is no queue yet').waitFor();
    await page.getByRole('button', { name: 'Create a queue' }).focus();
    await page.keyboard.press('Enter');
    await page.keyboard.type('orders');
    await page.getByLabel('Highest priority').fill('10');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'orders' }).waitFor();
    assert.equal((await call('GET', 'queues/orders')).priority_max, 10);
  },

  async 'a message is sent, and looked at without effect'({ page, call }) {
    await page.getByRole('button', { name: 'Send', exact: true }).click();
    await page.getByLabel('Content').fill('{"amount": 12}');
    await page.getByLabel('Priority').fill('7');
    await page.getByRole('dialog').getByRole('button', { name: 'Send' }).click();
    await page.getByText('Stored as').waitFor();
    await page.keyboard.press('Escape');
    await call('POST', 'messages', { to: { queues: ['orders'] }, content: HOSTILE, headers: { trace: HOSTILE } });
    await page.getByRole('link', { name: /^Messages/ }).click();
    await page.getByRole('button', { name: /"amount"/ }).waitFor();
    await page.getByRole('button', { name: 'Look again' }).click();
    await page.getByRole('button', { name: /onerror/ }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('It was sent to this queue').waitFor();
    await dialog.getByText('⟨U+202E⟩').first().waitFor();
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('img').count(), 0, 'content became markup');
    const { messages } = await call('GET', 'queues/orders/messages?count=10');
    assert.deepEqual(messages.map((message) => [message.state, message.delivery_count]), [['ready', 0], ['ready', 0]]);
  },

  async 'a queue shows its history, and numbers follow'({ page, call }) {
    await page.getByRole('link', { name: 'Overview' }).last().click();
    await page.locator('.figures').getByText('Ready').waitFor();
    await call('POST', 'messages', { to: { queues: ['orders'] }, content: 'third' });
    await page.locator('.figures dd', { hasText: /^3/ }).first().waitFor();
    await page.locator('figure canvas').first().waitFor();
    await page.locator('figure').first().getByText('As a table').click();
    await page.locator('figure').first().getByRole('cell', { name: '3' }).first().waitFor();
  },

  async 'a purge says what it destroys, wants the name, and holds for what was seen'({ page, call }) {
    const many = (n) => Array.from({ length: n }, (_, index) => `{"n":${index}}\n`).join('');
    await call('POST', 'queues/orders/messages', many(1200), { 'content-type': 'application/x-ndjson' });
    await page.locator('.figures dd', { hasText: '1,203' }).first().waitFor();
    await page.getByRole('button', { name: 'Purge' }).click();
    const dialog = page.getByRole('dialog');
    const confirm = dialog.getByRole('button', { name: 'Purge 1,203 messages' });
    assert.equal(await confirm.isDisabled(), true, 'nothing was typed');
    assert.equal(await dialog.getByRole('button', { name: 'Cancel' }).evaluate((button) => button === document.activeElement), true);
    await call('DELETE', 'queues/orders');
    await call('PUT', 'queues/orders', {});
    await call('POST', 'messages', { to: { queues: ['orders'] }, content: 'of another queue' });
    await dialog.getByRole('textbox').fill('orders');
    await confirm.click();
    await dialog.getByRole('alert').waitFor();
    assert.equal((await call('GET', 'queues/orders')).ready, 1, 'a queue that was made anew was purged');
    await page.keyboard.press('Escape');
    await page.locator('.figures dd', { hasText: /^1/ }).first().waitFor();
    await page.getByRole('button', { name: 'Purge' }).click();
    await dialog.getByRole('button', { name: 'Purge 1 message' }).click();
    await dialog.getByText('1 message purged').waitFor();
    await page.keyboard.press('Escape');
    assert.equal((await call('GET', 'queues/orders')).ready, 0);
    const { items } = await call('GET', 'events?kind=queue.purged');
    assert.equal(items.length, 1);
  },

  async 'dead letters go back to where they came from'({ page, base, call }) {
    await fill(call);
    await page.goto(`${base}/console/queues/%2F/work.dead?tab=messages`);
    await page.getByText('rejected in work').first().waitFor();
    await page.getByRole('button', { name: 'Send dead letters back' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Send back' }).click();
    await page.getByText('2 messages are in work again').waitFor();
    await page.keyboard.press('Escape');
    assert.equal((await call('GET', 'queues/work.dead')).ready, 0);
  },

  async 'records are searched, and followed as they come'({ page, base, call }) {
    await page.goto(`${base}/console/topics/clicks?tab=records`);
    await page.getByLabel('Field of JSON').fill('user=3');
    await page.getByRole('button', { name: 'Look', exact: true }).click();
    await page.getByText('1 shown').waitFor();
    await page.getByRole('button', { name: /"user":3/ }).click();
    await page.getByRole('dialog').getByText('JSON').waitFor();
    await page.keyboard.press('Escape');
    await page.goto(`${base}/console/topics/clicks?tab=records&tail=1`);
    const row = page.getByRole('button', { name: /"followed"/ });
    while ((await row.count()) === 0) await call('POST', 'topics/clicks/records', { followed: true });
  },

  async 'a group is rewound after a dry run'({ page, base, call }) {
    await page.goto(`${base}/console/groups/billing`);
    await page.getByRole('button', { name: 'Rewind' }).click();
    const dialog = page.getByRole('dialog');
    assert.equal(await dialog.getByRole('button', { name: 'Look first' }).isDisabled(), true);
    await dialog.getByRole('button', { name: /dry run/ }).click();
    await dialog.getByRole('cell', { name: '-4' }).waitFor();
    assert.equal((await call('GET', 'groups/billing')).commits[0].committed, 4, 'the dry run moved something');
    await dialog.getByRole('button', { name: 'Move 1 places' }).click();
    await dialog.getByText('1 places are moved').waitFor();
    await page.keyboard.press('Escape');
    assert.equal((await call('GET', 'groups/billing')).commits[0].committed, 0);
  },

  async 'an exchange says where a message would go, and stores nothing'({ page, base, call }) {
    await page.goto(`${base}/console/exchanges/%2F/shop`);
    const before = (await call('GET', 'queues/work')).ready;
    await page.getByLabel('Routing key').fill('order.made');
    await page.getByRole('button', { name: 'Show the targets' }).click();
    await page.locator('.targets').getByRole('link', { name: 'work' }).waitFor();
    await page.getByLabel('Routing key').fill('elsewhere');
    await page.getByRole('button', { name: 'Show the targets' }).click();
    await page.getByText('It would go nowhere').waitFor();
    assert.equal((await call('GET', 'queues/work')).ready, before);
  },

  async 'live topics are tried in the page'({ page, base }) {
    await page.goto(`${base}/console/live`);
    await page.getByRole('button', { name: 'Subscribe' }).click();
    await page.getByRole('button', { name: 'Publish' }).click();
    await page.getByRole('log').getByText('hello').first().waitFor();
  },

  async 'lists are paged, sorted and searched by the broker, and the address keeps it'({ page, base, call }) {
    for (let n = 0; n < 120; n += 1) await call('PUT', `queues/many.${String(n).padStart(3, '0')}`, {});
    await page.goto(`${base}/console/queues`);
    await page.getByRole('searchbox').fill('many');
    await page.getByText('120 of').waitFor();
    assert.equal(await page.locator('tbody tr').count(), 50);
    await page.getByRole('button', { name: 'Next page' }).click();
    await page.getByRole('link', { name: 'many.050' }).waitFor();
    await page.reload();
    await page.getByRole('link', { name: 'many.050' }).waitFor();
    await page.goBack();
    await page.getByRole('link', { name: 'many.000' }).waitFor();
    await page.getByRole('columnheader', { name: 'Name' }).getByRole('button').click();
    await page.getByRole('columnheader', { name: 'Name' }).getByRole('button').click();
    await page.getByRole('link', { name: 'many.119' }).waitFor();
    await page.keyboard.press('Control+k');
    await page.keyboard.type('many.077');
    await page.getByRole('option', { name: /many\.077/ }).waitFor();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'many.077' }).waitFor();
  },

  async 'the broker goes and comes back'({ page, base, call }) {
    await page.goto(`${base}/console/queues?q=work`);
    await page.getByRole('link', { name: 'work', exact: true }).waitFor();
    await ask('kill');
    await page.getByText('The broker does not answer').waitFor();
    await ask('start');
    await page.getByText('The broker does not answer').waitFor({ state: 'detached' });
    await call('PUT', 'queues/work.new', {});
    await page.getByRole('link', { name: 'work.new' }).waitFor();
    assert.equal(await page.getByRole('link', { name: 'work', exact: true }).count(), 1, 'a row is there twice');
  },
};

async function main() {
  const [executablePath, base] = process.argv.slice(2);
  const browser = await chromium.launch({ executablePath, args: ARGS, timeout: 0 });
  const found = [];
  const call = api(base);
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  // A broker that is killed leaves lines in the console, and so does what is refused on purpose.
  watch(page, base, found, /ERR_CONNECTION|WebSocket connection|409|503|ERR_INCOMPLETE|ERR_EMPTY|ERR_SOCKET/);
  for (const [name, step] of Object.entries(STEPS)) {
    const begun = Date.now();
    try {
      await step({ page, base, call });
    } catch (error) {
      const text = `${name}: ${error.message} (${page.url()})`;
      found.push(text);
      if (process.env.CONSOLE_SHOTS) console.log(text);
      if (process.env.CONSOLE_SHOTS) await page.screenshot({ path: `${process.env.CONSOLE_SHOTS}/failed-${name.replace(/\W+/g, '-')}.png` });
    }
    if (process.env.CONSOLE_SHOTS) console.log(`# ${name}: ${Date.now() - begun} ms`);
  }
  await context.close();
  await look(browser, base, PAGES, found);
  await browser.close();
  for (const problem of found) console.log(problem);
  process.exit(found.length === 0 ? 0 : 1);
}

main().catch((error) => {
  console.log(error);
  process.exit(2);
});
