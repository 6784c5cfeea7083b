// The pages of the console, what fills a broker for them, and what may be wrong with any of them.
'use strict';

const { readFileSync } = require('node:fs');

const ARGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];

const PAGES = [
  '', 'queues', 'queues/%2F/work', 'queues/%2F/work?tab=messages', 'queues/%2F/work?tab=settings', 'topics', 'topics/clicks',
  'topics/clicks?tab=records', 'topics/clicks?tab=partitions', 'groups', 'groups/billing', 'exchanges', 'exchanges/%2F/shop',
  'apps', 'apps/totals', 'apps/totals?tab=workers', 'apps/totals?tab=state', 'apps/totals?tab=settings', 'sinks', 'sinks/archive', 'clients', 'live',
  'connections', 'consumers', 'node', 'node?tab=cluster', 'node?tab=settings', 'node?tab=threads', 'journal', 'events', 'log', 'users', 'users/ann',
  'users?tab=tokens', 'users?tab=rules', 'quotas', 'quotas?tab=limits', 'audit', 'namespaces', 'definitions', 'policies', 'api', 'clients/ann', 'none',
];

/** Pages that an empty broker has. */
const EMPTY = [
  '', 'queues', 'topics', 'groups', 'exchanges', 'apps', 'sinks', 'clients', 'live', 'connections', 'consumers', 'node', 'node?tab=cluster', 'journal', 'events', 'log',
  'users', 'quotas', 'audit', 'namespaces', 'definitions', 'policies', 'api',
];

const VIEWS = [
  { name: 'desktop', width: 1280, height: 900 },
  { name: 'tablet', width: 820, height: 1100 },
  { name: 'phone', width: 360, height: 780 },
];
const STANDARDS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];
/** The dark colours change contrast alone; a look at everything again would be half of the test's time. */
const SCHEMES = [
  { colorScheme: 'light', rules: { runOnly: STANDARDS } },
  { colorScheme: 'dark', rules: { runOnly: { type: 'rule', values: ['color-contrast'] } } },
];

/** Makes some of everything. */
async function fill(call) {
  await call('PUT', 'queues/work.dead', {});
  await call('PUT', 'queues/work', { priority_max: 10, dead_letter: { exchange: '', routing_key: 'work.dead' } });
  for (let n = 0; n < 6; n += 1) {
    await call('POST', 'messages', { to: { queues: ['work'] }, content: { order: n, customer: { name: 'Ann' } }, priority: n, headers: { trace: `t-${n}` } });
  }
  const { messages } = await call('POST', 'queues/work/receive?ack=lease:60s&count=2');
  await call('POST', 'queues/work/settle', { discard: messages.map(({ lease }) => lease) });
  await call('PUT', 'exchanges/shop', { kind: 'topic' });
  await call('POST', 'bindings', { source: 'shop', to: { queue: 'work' }, key: 'order.*' });
  await call('PUT', 'clients/ann');
  await call('PUT', 'topics/clicks', { partitions: 1 });
  for (let user = 0; user < 9; user += 1) await call('POST', `topics/clicks/records?key=k${user}`, { user, page: '/start' });
  await call('PUT', 'topics/sales', { partitions: 2 });
  for (let n = 0; n < 12; n += 1) await call('POST', `topics/sales/records?key=customer-${n}`, { amount: n * 10 });
  await call('PUT', 'apps/totals', { topics: ['sales'], tables: { sums: {} } });
  await call('PUT', 'groups/billing/offsets', { offsets: [{ topic: 'clicks', partition: 0, offset: 4 }] });
}

/** A worker of the app `totals`, which `fill` declares: it takes the tasks, and commits state. */
async function work(call, name = 'w-1', tasks = 2) {
  const { token } = await call('POST', `apps/totals/workers/${name}/join`, {});
  const command = (verb, body) => call('POST', `apps/totals/workers/${name}/${verb}`, body, { 'stafett-worker': token });
  let claimed = [];
  for (let after = 0; claimed.length < tasks; ) {
    const { events } = await command('poll', { after, wait_ms: 1000 });
    claimed = [...claimed, ...events.filter(({ event }) => event === 'claimed')];
    after = events.at(-1)?.number ?? after;
  }
  for (const { task, epoch, seq } of claimed) {
    const { records, next } = await command('fetch', { task, epoch, wait_ms: 1000 });
    if (records.length === 0) continue;
    await command('commit', { task, epoch, seq: seq + 1, next, put: { sums: records.map(({ key, value }) => [key, value]) } });
  }
  return command;
}

/** Notes errors in the console, and requests to another server. */
function watch(page, base, found, expected = /$^/) {
  const host = new URL(base).host;
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type()) && !expected.test(message.text())) found.push(`console: ${message.text()} (${page.url()})`);
  });
  page.on('pageerror', (error) => found.push(`console: ${error.message} (${page.url()})`));
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (!['data:', 'blob:'].includes(url.protocol) && url.host !== host) found.push(`${request.url()} was asked for`);
  });
}

/**
 * Looks at pages in all views, light and dark: accessibility, width, the console. `login` is a user and its
 * password; `shots` names a folder for pictures, and how their names begin.
 */
async function look(browser, base, pages, found, login, shots) {
  const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
  for (const view of VIEWS) {
    const context = await browser.newContext({ viewport: view });
    if (login) await context.request.post(`${base}/v1/login`, { data: login });
    const page = await context.newPage();
    watch(page, base, found);
    for (const path of pages) {
      await page.emulateMedia({ colorScheme: SCHEMES[0].colorScheme });
      await page.goto(`${base}/console/${path}`);
      await page.locator('h1').first().waitFor();
      await page.waitForLoadState('load');
      await page.evaluate(axe);
      for (const { colorScheme, rules } of SCHEMES) {
        await page.emulateMedia({ colorScheme });
        // Charts and colours follow with the next frame, which may come late on a busy machine.
        await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
        const where = `${path || 'overview'} (${view.name}, ${colorScheme})`;
        const { violations } = await page.evaluate((rules) => window.axe.run(rules), rules);
        for (const { id, nodes } of violations) found.push(`${where}: ${id}: ${nodes.slice(0, 2).map(({ html }) => html.slice(0, 160)).join(' | ')}`);
        if (shots) await page.screenshot({ path: `${shots.folder}/${shots.name}-${(path || 'overview').replace(/\W+/g, '-')}-${view.name}-${colorScheme}.png` });
      }
      const wider = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      if (wider > 0) found.push(`${path || 'overview'} (${view.name}): ${wider} px wider than the window`);
    }
    await context.close();
  }
}

module.exports = { ARGS, PAGES, EMPTY, VIEWS, fill, work, watch, look };
