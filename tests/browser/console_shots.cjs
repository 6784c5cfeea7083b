// Makes the screenshots of docs/console.md.
//
//   node console_shots.cjs CHROMIUM URL FOLDER
//
// Fills the broker, which is empty at first, and loads it for SHOTS_SECONDS (60), so that there is a history.
'use strict';

const { mkdirSync } = require('node:fs');
const { chromium } = require('playwright-core');
const { ARGS, fill, work } = require('./console_pages.cjs');

const WIDE = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 780 };
const SHOTS = [
  ['overview', '', WIDE, 'light'],
  ['queue', 'queues/%2F/work?range=1', WIDE, 'dark'],
  ['message', 'topics/queue.work?tab=records&partition=0&from=-1', WIDE, 'light'],
  ['messages', 'queues/%2F/work.dead?tab=messages', WIDE, 'light'],
  ['records', 'topics/clicks?tab=records', WIDE, 'light'],
  ['exchange', 'exchanges/%2F/shop', WIDE, 'light'],
  ['app', 'apps/totals', WIDE, 'light'],
  ['user', 'users/ann', WIDE, 'light'],
  ['phone', 'queues?sort=-ready', PHONE, 'dark'],
];

/** Of a broker that asks for a login. */
const CLOSED = [
  ['quotas', 'quotas', WIDE, 'light'],
  ['audit', 'audit', WIDE, 'light'],
];
const ROOT = { user: 'root', password: 'of the root user' };

/** Closes the broker by its first administrator, and does some of what the audit notes. */
async function close(base, call) {
  await call('PUT', 'users/root', { password: ROOT.password, tags: ['superuser'] });
  const as = ({ user, password }) => ({ authorization: `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}` });
  const root = as(ROOT);
  await call('PUT', 'quotas', { user: 'ann', produced_bytes_per_second: 1 << 20, fetched_bytes_per_second: 10 << 20 }, root);
  await call('PUT', 'quotas', { client: '*', produced_bytes_per_second: 100 << 10 }, root);
  await call('PUT', 'queues/returns', {}, root);
  await call('DELETE', 'queues/returns', undefined, root);
  for (const [method, path] of [['GET', 'topics/clicks/records'], ['POST', 'queues/work/purge'], ['GET', 'users']]) {
    const ann = as({ user: 'ann', password: 'of ann' });
    await fetch(`${base}/v1/${path}`, { method, headers: ann });
  }
}

async function load(call, seconds) {
  const end = Date.now() + seconds * 1000;
  for (let n = 0; Date.now() < end; n += 1) {
    const some = Array.from({ length: 20 + (n % 17) }, (_, index) => `{"user":${(n * 7 + index) % 400},"page":"/item/${index}"}\n`).join('');
    await call('POST', 'topics/clicks/records?key_field=user', some, { 'content-type': 'application/x-ndjson' });
    await call('POST', 'exchanges/shop/publish', { routing_key: 'order.made', content: { order: n, amount: (n * 37) % 900 } });
    if (n % 3 > 0) await call('POST', `queues/work/receive?count=${1 + (n % 2)}`);
    await new Promise((resolve) => setTimeout(resolve, 60));
  }
}

async function main() {
  const [executablePath, base, folder] = process.argv.slice(2);
  const call = async (method, path, body, headers = {}) => {
    const text = typeof body === 'string' ? body : body === undefined ? undefined : JSON.stringify(body);
    const response = await fetch(`${base}/v1/${path}`, { method, body: text, headers: { 'content-type': 'application/json', ...headers } });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return response.json();
  };
  mkdirSync(folder, { recursive: true });
  await fill(call);
  await work(call);
  await call('PUT', 'users/ann', { password: 'of ann', tags: ['clerks'] });
  for (const rule of [
    { who: 'user:ann', actions: ['read', 'write'], on: ['topic'], prefix: 'orders-' },
    { who: 'user:ann', actions: ['read'], on: ['namespace'], name: '/' },
    { who: 'user:ann', actions: ['read', 'write'], on: ['queue', 'exchange'], pattern: '^shop\\.', namespace: '/' },
    { who: 'role:clerks', deny: true, actions: ['delete'], on: ['queue'], prefix: '' },
  ]) {
    await call('POST', 'rules', rule);
  }
  await load(call, Number(process.env.SHOTS_SECONDS ?? 60));
  const browser = await chromium.launch({ executablePath, args: ARGS, timeout: 0 });
  const shoot = async ([name, path, viewport, colorScheme], login) => {
    const page = await browser.newPage({ viewport, colorScheme });
    if (login) await page.request.post(`${base}/v1/login`, { data: login });
    await page.goto(`${base}/console/${path}`);
    await page.locator('h1').first().waitFor();
    if (name === 'exchange') {
      await page.getByLabel('Routing key').fill('order.made');
      await page.getByRole('button', { name: 'Show the targets' }).click();
      await page.locator('.targets').waitFor();
    }
    if (name === 'message') {
      await page.locator('tbody button.link').first().click();
      await page.getByText('Where it waits').waitFor();
    }
    await page.waitForLoadState('networkidle').catch(() => undefined);
    await page.screenshot({ path: `${folder}/console-${name}.png` });
    await page.close();
  };
  for (const shot of SHOTS) await shoot(shot);
  await close(base, call);
  for (const shot of CLOSED) await shoot(shot, ROOT);
  await browser.close();
}

main().catch((error) => {
  console.log(error);
  process.exit(1);
});
