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
const { ARGS, watch, look, PAGES, EMPTY, fill, work } = require('./console_pages.cjs');

/** With a folder in CONSOLE_SHOTS, pictures of all pages are left there. */
const shots = (name) => process.env.CONSOLE_SHOTS && { folder: process.env.CONSOLE_SHOTS, name };

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const ask = async (what) => {
  console.log(what);
  await lines.next();
};

const ROOT = { user: 'root', password: 'of the root user' };
const ANN = { user: 'ann', password: 'of ann' };

/** A request of the API; JSON in and out. Once there are users, it is one of the superuser. */
function api(base) {
  const authorization = `Basic ${Buffer.from(`${ROOT.user}:${ROOT.password}`).toString('base64')}`;
  const call = async (method, path, body, headers = {}) => {
    const text = typeof body === 'string' ? body : body === undefined ? undefined : JSON.stringify(body);
    const login = call.isClosed ? { authorization } : {};
    const response = await fetch(`${base}/v1/${path}`, { method, body: text, headers: { 'content-type': 'application/json', ...login, ...headers } });
    assert(response.ok, `${method} ${path}: ${response.status} ${response.ok ? '' : await response.text()}`);
    return response.json();
  };
  return call;
}

async function logIn(page, { user, password }) {
  await page.getByRole('heading', { name: 'Log in' }).waitFor();
  await page.getByLabel('User', { exact: true }).fill(user);
  await page.getByLabel('Password').fill(password);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByRole('button', { name: user, exact: true }).waitFor();
}

async function logOut(page, { user }) {
  await page.getByRole('button', { name: user, exact: true }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Log out' }).click();
  await page.getByRole('heading', { name: 'Log in' }).waitFor();
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
    // The number that is ready, not yet stored ones that count as published.
    await page.locator('.figures dd', { hasText: /^1,203/ }).first().waitFor();
    await page.getByRole('button', { name: 'Purge' }).click();
    const dialog = page.getByRole('dialog');
    const confirm = dialog.getByRole('button', { name: 'Purge 1,203 messages' });
    assert.equal(await confirm.isDisabled(), true, 'nothing was typed');
    assert.equal(await dialog.getByRole('button', { name: 'Cancel' }).evaluate((button) => button === document.activeElement), true);
    // A page that is told of the queue's end would close the dialog.
    await page.getByRole('banner').getByRole('button', { name: 'Pause' }).evaluate((button) => button.click());
    await call('DELETE', 'queues/orders');
    await call('PUT', 'queues/orders', {});
    await call('POST', 'messages', { to: { queues: ['orders'] }, content: 'of another queue' });
    await dialog.getByRole('textbox').fill('orders');
    await confirm.click();
    await dialog.getByRole('alert').waitFor();
    assert.equal((await call('GET', 'queues/orders')).ready, 1, 'a queue that was made anew was purged');
    await page.keyboard.press('Escape');
    await page.getByRole('banner').getByRole('button', { name: 'Go on' }).click();
    await page.getByRole('link', { name: 'Messages (1)' }).waitFor();
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
    await page.getByText('2 messages went back to where they came from').waitFor();
    await page.keyboard.press('Escape');
    assert.equal((await call('GET', 'queues/work.dead')).ready, 0);
  },

  async 'a sink shows its state with the reason, and is paused'({ page, base, call }) {
    await call('PUT', 'sinks/archive', { from: ['clicks'], to: 'webhook', url: 'http://127.0.0.1:9/none' });
    await page.goto(`${base}/console/sinks`);
    await page.getByRole('link', { name: 'archive' }).click();
    await page.getByText('"to": "webhook"').waitFor();
    const main = page.getByRole('main');
    await main.getByRole('button', { name: 'Pause' }).click();
    await main.getByText('◆ paused').waitFor();
    await main.getByRole('button', { name: 'Resume' }).waitFor();
  },

  async 'records are searched, and followed as they come'({ page, base, call }) {
    await page.goto(`${base}/console/topics/clicks?tab=records`);
    await page.getByLabel('Field of JSON').fill('user=3');
    await page.getByRole('button', { name: 'Look', exact: true }).click();
    await page.getByText('1 shown').waitFor();
    await page.getByRole('button', { name: /"user":3/ }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'JSON', exact: true }).waitFor();
    await page.getByRole('dialog').getByText('Where it waits').waitFor();
    await page.getByRole('dialog').getByText('billing').waitFor();
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
    await dialog.getByRole('button', { name: 'Move 1 place' }).click();
    await dialog.getByText('1 place moved').waitFor();
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
    await page.getByRole('option', { name: 'many.077 queue', exact: true }).waitFor();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'many.077' }).waitFor();
  },

  async 'an app is looked after: tasks, state, pause, reset after a dry run'({ page, base, call }) {
    const command = await work(call);
    const beats = setInterval(() => void command('beat', {}).catch(() => undefined), 2000);
    await page.goto(`${base}/console/apps`);
    await page.getByRole('link', { name: 'totals' }).click();
    await page.getByRole('cell', { name: 'w-1' }).first().waitFor();
    clearInterval(beats);
    assert.equal(await page.getByRole('button', { name: 'Reset' }).isDisabled(), true, 'the app is not paused');
    await page.getByRole('link', { name: 'State', exact: true }).click();
    await page.getByLabel('Key, exactly').fill('customer-7');
    await page.getByRole('button', { name: 'Look', exact: true }).click();
    await page.getByText('amount').waitFor();
    await page.getByLabel('Key, exactly').fill('');
    await page.getByRole('button', { name: 'Look', exact: true }).click();
    await page.getByRole('button', { name: 'customer-11' }).waitFor();
    await page.getByRole('button', { name: 'Pause', exact: true }).last().click();
    await page.getByRole('button', { name: 'Resume' }).waitFor();
    await page.getByRole('button', { name: 'Reset' }).click();
    const dialog = page.getByRole('dialog');
    assert.equal(await dialog.getByRole('button', { name: 'Look first' }).isDisabled(), true);
    await dialog.getByRole('button', { name: /dry run/ }).click();
    await dialog.getByRole('table').waitFor();
    const before = await call('GET', 'apps/totals');
    assert.equal(before.lag, 0, 'the dry run moved something');
    await dialog.getByRole('button', { name: 'Set 2 positions' }).click();
    await dialog.getByText('2 positions set').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Resume' }).click();
    await page.getByText('● running').waitFor();
  },

  async 'a task is given to a worker, and a worker is drained'({ page, base, call }) {
    const command = await work(call, 'w-2', 0);
    const beats = setInterval(() => void command('beat', {}).catch(() => undefined), 2000);
    await page.goto(`${base}/console/apps/totals?tab=workers`);
    const row = page.getByRole('row', { name: /w-2/ });
    await row.waitFor();
    await row.getByRole('button', { name: 'Drain' }).click();
    await page.getByRole('dialog').getByRole('button', { name: /Hand over/ }).click();
    await page.getByText('w-2 hands its tasks over').waitFor();
    await page.keyboard.press('Escape');
    await row.getByText('draining').waitFor();
    await row.getByRole('button', { name: 'End the drain' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'End the drain' }).click();
    await row.getByText('draining').waitFor({ state: 'detached' });
    await page.getByRole('link', { name: /^Tasks/ }).click();
    await page.getByRole('row', { name: /^1 / }).getByRole('button', { name: 'Assign' }).click();
    await page.getByRole('combobox', { name: /^Worker/ }).fill('w-2');
    await page.getByRole('dialog').getByRole('button', { name: 'Assign' }).click();
    await page.getByText('Task 1 is pinned to w-2').waitFor();
    await page.keyboard.press('Escape');
    const { tasks } = await call('GET', 'apps/totals');
    assert.equal(tasks[1].pinned, 'w-2');
    clearInterval(beats);
    await command('leave', {});
  },

  async 'definitions are exported, and imported after a comparison'({ page, base, call }) {
    await call('PUT', 'namespaces/shop');
    await call('PUT', 'queues/of-shop?namespace=shop', { length_max: 5 });
    await page.goto(`${base}/console/definitions`);
    const saving = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Save the definitions' }).click();
    const file = await (await saving).path();
    await page.goto(`${base}/console/namespaces`);
    await page.getByRole('row', { name: /shop/ }).getByRole('button', { name: 'Delete' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('textbox').fill('shop');
    await dialog.getByRole('button', { name: 'Delete 1 queue and 0 messages' }).click();
    await dialog.getByText('Deleted, with 1 queue').waitFor();
    await call('PATCH', 'queues/work', { ttl_ms: 3_600_000 });
    await page.goto(`${base}/console/definitions`);
    await page.getByLabel('File').setInputFiles(file);
    await page.getByText('2 new').waitFor();
    await page.getByRole('button', { name: 'Make 2 changes' }).click();
    await page.getByText('2 of 2 done, 0 refused').waitFor();
    assert.equal((await call('GET', 'queues/of-shop?namespace=shop')).length_max, 5);
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

  async 'the first administrator closes the broker, and the page asks for a login'({ page, base, call }) {
    await page.goto(`${base}/console/users`);
    await page.getByText('There is no user').waitFor();
    await page.getByRole('button', { name: 'Create a user' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name', { exact: true }).fill(ROOT.user);
    await dialog.getByLabel('Password').fill(ROOT.password);
    await dialog.getByLabel('superuser').check();
    await dialog.getByText('This closes the broker').waitFor();
    await dialog.getByRole('button', { name: 'Create', exact: true }).click();
    call.isClosed = true;
    await logIn(page, { ...ROOT, password: ROOT.password });
    await page.goto(`${base}/console/queues?q=work`);
    await page.getByRole('link', { name: 'work', exact: true }).waitFor();
  },

  async 'a user is made, with a rule, a permission and a token'({ page, base, call }) {
    await page.goto(`${base}/console/users`);
    await page.getByRole('button', { name: 'Create a user' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name', { exact: true }).fill(ANN.user);
    await dialog.getByLabel('Password').fill(ANN.password);
    await dialog.getByRole('button', { name: 'Create', exact: true }).click();
    await page.getByRole('heading', { name: 'ann' }).waitFor();
    await page.getByRole('button', { name: 'Add a rule' }).click();
    await dialog.getByLabel('describe', { exact: true }).check();
    await dialog.getByLabel('queue', { exact: true }).check();
    await dialog.getByRole('combobox', { name: 'Names', exact: true }).selectOption('prefix');
    await dialog.getByLabel('Beginning').fill('work');
    await dialog.getByText('User ann may see queues whose names begin with "work".').waitFor();
    await dialog.getByRole('button', { name: 'Add the rule' }).click();
    await page.keyboard.press('Escape');
    await page.getByRole('cell', { name: '✓ permits' }).waitFor();
    const tried = page.getByRole('region', { name: 'Try the rules' });
    await tried.getByRole('combobox', { name: 'On', exact: true }).selectOption('queue');
    await tried.getByRole('combobox', { name: 'Action', exact: true }).selectOption('describe');
    await tried.getByLabel('Name', { exact: true }).fill('work.dead');
    await tried.getByRole('button', { name: 'Ask' }).click();
    await tried.getByText('✓ ann may').waitFor();
    await tried.getByRole('combobox', { name: 'Action', exact: true }).selectOption('read');
    await tried.getByRole('button', { name: 'Ask' }).click();
    await tried.getByText('✕ ann may not').waitFor();
    await page.getByRole('button', { name: 'Set a permission' }).click();
    await dialog.getByLabel('Configure').fill('');
    await dialog.getByLabel('Write').fill('^ann');
    await dialog.getByLabel('Read').fill('^ann');
    await dialog.getByRole('button', { name: 'Set the permission' }).click();
    await dialog.getByText('Set. It holds').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('table', { name: 'Permissions' }).getByText('^ann').first().waitFor();
    await page.getByRole('button', { name: 'Make a token' }).click();
    await dialog.getByRole('button', { name: 'Make the token' }).click();
    const token = await dialog.locator('pre').first().textContent();
    const asked = await fetch(`${base}/v1/whoami`, { headers: { authorization: `Bearer ${token}` } });
    assert.equal((await asked.json()).name, 'ann');
    await page.keyboard.press('Escape');
    const { items } = await call('GET', 'rules?who=user:ann');
    assert.equal(items.length, 3, JSON.stringify(items));
  },

  async 'a user with few rights is told which one is missing'({ page, base, call }) {
    await logOut(page, ROOT);
    await logIn(page, ANN);
    await page.goto(`${base}/console/queues`);
    await page.getByText('The missing right: describe on the cluster').waitFor();
    await page.getByLabel('Name among queues').fill('work');
    await page.getByRole('button', { name: 'Open by its name' }).click();
    await page.getByRole('heading', { name: 'work' }).waitFor();
    const { ready } = await call('GET', 'queues/work');
    assert(ready > 0);
    await page.getByRole('button', { name: 'Purge' }).click();
    await page.getByRole('dialog').getByRole('button', { name: /^Purge/ }).click();
    await page.getByRole('dialog').getByText('The missing right: read on queue work').waitFor();
    assert.equal((await call('GET', 'queues/work')).ready, ready, 'it was purged without the right');
    await page.keyboard.press('Escape');
    await page.goto(`${base}/console/node`);
    await page.locator('button:disabled', { hasText: 'Shut down' }).waitFor();
    await logOut(page, ANN);
    await page.goto(`${base}/console/users`);
    await logIn(page, ROOT);
  },

  async 'the audit has what was done and what was refused, by its filters, in pages, and as it comes'({ page, base, call }) {
    await page.goto(`${base}/console/audit`);
    await page.getByRole('button', { name: 'Refused' }).click();
    const rows = page.getByRole('table', { name: 'entries' }).locator('tbody tr');
    // All entries are shown until the answer has come.
    await rows.filter({ hasText: '✓ done' }).first().waitFor({ state: 'detached' });
    await rows.filter({ hasText: '✕ refused' }).filter({ hasText: 'ann' }).filter({ hasText: 'work' }).first().waitFor();
    await page.getByText('Choose entries').click();
    await page.getByLabel('User', { exact: true }).fill('nobody');
    await page.getByRole('button', { name: 'Look' }).click();
    await page.getByText(/Nothing matches among [\d,]+ entr/).waitFor();
    await page.goto(`${base}/console/audit?by=root&action=user`);
    await page.getByText('Choose entries: 2 conditions').waitFor();
    await call('PUT', 'users/eve', { tags: [] });
    await rows.getByRole('link', { name: 'eve' }).first().waitFor();
    for (let n = 0; n < 60; n += 1) await call('PUT', `queues/noted.${n}`, {});
    await page.goto(`${base}/console/audit?by=root&action=queue`);
    await rows.getByRole('link', { name: 'noted.59' }).waitFor();
    await page.getByRole('button', { name: 'Next page' }).click();
    await rows.getByRole('link', { name: 'noted.0', exact: true }).waitFor();
    await page.reload();
    await rows.getByRole('link', { name: 'noted.0', exact: true }).waitFor();
    await page.goBack();
    await rows.getByRole('link', { name: 'noted.59' }).waitFor();
  },

  async 'quotas and limits are set, changed and removed'({ page, base, call }) {
    await page.goto(`${base}/console/quotas`);
    await page.getByText('There is no quota').waitFor();
    const dialog = page.getByRole('dialog');
    await page.getByRole('button', { name: 'Set a quota' }).click();
    await dialog.getByLabel('User').fill('ann');
    await dialog.getByLabel('Produces at most').fill('a lot');
    assert.equal(await dialog.getByRole('button', { name: 'Set the quota' }).isDisabled(), true);
    await dialog.getByLabel('Produces at most').fill('1.5 MiB');
    await dialog.getByRole('button', { name: 'Set the quota' }).click();
    await page.getByRole('cell', { name: '1.5 MiB/s' }).waitFor();
    assert.deepEqual((await call('GET', 'quotas')).items, [{ user: 'ann', produced_bytes_per_second: 1572864 }]);
    await page.getByText('1 quota', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Change', exact: true }).click();
    await dialog.getByLabel('Fetches at most').fill('10M');
    await dialog.getByRole('button', { name: 'Set the quota' }).click();
    await page.getByRole('cell', { name: '10 MiB/s' }).waitFor();
    await page.getByRole('button', { name: 'Remove' }).click();
    await dialog.getByRole('button', { name: 'Remove the quota' }).click();
    await page.getByText('There is no quota').waitFor();
    await page.getByRole('link', { name: 'Limits', exact: true }).click();
    await page.getByRole('button', { name: 'Set limits' }).click();
    await dialog.getByRole('combobox').selectOption('user');
    await dialog.getByRole('textbox', { name: 'Name' }).fill('ann');
    await dialog.getByLabel('Channels').fill('8');
    await dialog.getByRole('button', { name: 'Set the limits' }).click();
    await page.getByRole('row', { name: /user ann/ }).getByRole('cell', { name: '8' }).waitFor();
    assert.deepEqual((await call('GET', 'limits')).items, [{ user: 'ann', channels: 8 }]);
    await page.getByRole('button', { name: 'Remove' }).click();
    await dialog.getByRole('button', { name: 'Remove the limits' }).click();
    await page.getByText('There are no limits').waitFor();
  },
};

async function main() {
  const [executablePath, base] = process.argv.slice(2);
  const browser = await chromium.launch({ executablePath, args: ARGS, timeout: 0 });
  const found = [];
  const call = api(base);
  await look(browser, base, EMPTY, found, undefined, shots('empty'));
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  // A broker that is killed leaves lines in the console, and so does what is refused on purpose.
  watch(page, base, found, /ERR_CONNECTION|WebSocket connection|40[139]|503|ERR_INCOMPLETE|ERR_EMPTY|ERR_SOCKET/);
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
  await look(browser, base, PAGES, found, ROOT, shots('busy'));
  await browser.close();
  for (const problem of found) console.log(problem);
  process.exit(found.length === 0 ? 0 : 1);
}

main().catch((error) => {
  console.log(error);
  process.exit(2);
});
