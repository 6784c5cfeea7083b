// amqplib: everyday use, and a kill of the broker in the middle.
//
// Usage: amqp.js HOST:PORT. Prints `kill` when the broker may be killed, and continues after a line on stdin.
'use strict';

const assert = require('node:assert/strict');
const readline = require('node:readline');
const amqp = require('amqplib');

const URL = `amqp://guest:guest@${process.argv[2]}`;
const PERSISTENT = { persistent: true };

/** What comes, in order, for whoever waits for it. */
class Inbox {
  #come = [];
  #waiting = [];

  push(value) {
    const next = this.#waiting.shift();
    if (next) next(value);
    else this.#come.push(value);
  }

  next() {
    if (this.#come.length > 0) return Promise.resolve(this.#come.shift());
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  get length() {
    return this.#come.length;
  }
}

async function confirmsAndReturns(channel) {
  for (let number = 0; number < 100; number++) {
    channel.publish('node', 'key', Buffer.from(`${number}`), PERSISTENT);
  }
  await channel.waitForConfirms();
  assert.equal((await channel.checkQueue('node')).messageCount, 100);

  const returned = [];
  channel.on('return', (message) => returned.push(message));
  channel.publish('node', 'nowhere', Buffer.from('lost'), { mandatory: true });
  await channel.waitForConfirms();
  assert.equal(returned.length, 1);
  assert.equal(returned[0].fields.replyCode, 312);
  assert.equal(returned[0].content.toString(), 'lost');
}

async function prefetchAndRequeue(channel) {
  const inbox = new Inbox();
  await channel.prefetch(2);
  const { consumerTag } = await channel.consume('node', (message) => inbox.push(message));
  const [first, second] = [await inbox.next(), await inbox.next()];
  assert.equal((await channel.checkQueue('node')).messageCount, 98);
  assert.equal(inbox.length, 0, 'no more than two at once');

  channel.nack(first, false, true);
  const again = await inbox.next();
  assert.equal(again.content.toString(), '0');
  assert.deepEqual([first.fields.redelivered, again.fields.redelivered], [false, true]);
  channel.ack(second);
  channel.ack(again);
  for (let number = 2; number < 100; number++) {
    const message = await inbox.next();
    assert.equal(message.content.toString(), `${number}`);
    channel.ack(message);
  }
  await channel.cancel(consumerTag);
}

async function deadLetters(channel) {
  await channel.assertQueue('node.dead');
  const arguments_ = { 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': 'node.dead' };
  await channel.assertQueue('node.short', { arguments: arguments_ });
  channel.sendToQueue('node.short', Buffer.from('unwanted'));
  const inbox = new Inbox();
  const refusing = await channel.consume('node.short', (message) => channel.nack(message, false, false));
  const { consumerTag } = await channel.consume('node.dead', (message) => inbox.push(message), { noAck: true });
  const dead = await inbox.next();
  assert.equal(dead.content.toString(), 'unwanted');
  const [death] = dead.properties.headers['x-death'];
  assert.deepEqual([death.queue, death.reason, death.count], ['node.short', 'rejected', 1]);
  assert.deepEqual(death['routing-keys'], ['node.short']);
  assert.equal(death.time['!'], 'timestamp');
  assert.equal(dead.properties.headers['x-first-death-reason'], 'rejected');
  await channel.cancel(consumerTag);
  await channel.cancel(refusing.consumerTag);
}

async function cancelNotification(channel, other) {
  await channel.assertQueue('node.fleeting');
  const inbox = new Inbox();
  await channel.consume('node.fleeting', (message) => inbox.push(message));
  await other.deleteQueue('node.fleeting');
  assert.equal(await inbox.next(), null);
}

async function bodiesAndHeaders(channel) {
  await channel.assertQueue('node.all', { durable: true });
  const large = Buffer.alloc(5_000_000, 'stafett');
  channel.sendToQueue('node.all', large, PERSISTENT);
  const headers = {
    text: 'å',
    yes: true,
    byte: { '!': 'int8', value: -100 },
    short: { '!': 'int16', value: -30_000 },
    int: { '!': 'int32', value: -2_000_000_000 },
    long: { '!': 'int64', value: 1_000_000_000_000 },
    float: { '!': 'float', value: 1.5 },
    double: { '!': 'double', value: 0.1 },
    decimal: { '!': 'decimal', value: { places: 2, digits: 314 } },
    timestamp: { '!': 'timestamp', value: 1_700_000_000 },
    bytes: Buffer.from([0, 255]),
    nothing: null,
    list: [1, 'two', [3]],
    table: { a: { b: 'c' } },
  };
  const properties = {
    headers,
    contentType: 'text/plain',
    contentEncoding: 'utf-8',
    priority: 3,
    correlationId: 'c',
    replyTo: 'r',
    expiration: '600000',
    messageId: 'm',
    timestamp: 1_700_000_000,
    type: 't',
    userId: 'guest',
    appId: 'a',
  };
  channel.sendToQueue('node.all', Buffer.alloc(0), properties);
  await channel.waitForConfirms();

  const first = await channel.get('node.all', { noAck: true });
  assert.ok(first.content.equals(large));
  const second = await channel.get('node.all', { noAck: true });
  assert.equal(second.content.length, 0);
  const { headers: read, ...rest } = second.properties;
  const value = (field) => (field && field['!'] && !['decimal', 'timestamp'].includes(field['!']) ? field.value : field);
  for (const [name, field] of Object.entries(headers)) {
    assert.deepEqual(read[name], value(field), name);
  }
  for (const name of Object.keys(properties).filter((name) => name !== 'headers')) {
    assert.equal(rest[name], properties[name], name);
  }
  assert.equal(await channel.get('node.all'), false);
}

async function outlivesAKill(connection, channel) {
  await channel.assertQueue('node.kept', { durable: true });
  for (let number = 0; number < 10; number++) {
    channel.sendToQueue('node.kept', Buffer.from(`${number}`), PERSISTENT);
  }
  await channel.waitForConfirms();
  await channel.get('node.kept');
  const ended = new Promise((resolve) => connection.on('close', resolve));
  const killed = new Promise((resolve) => readline.createInterface({ input: process.stdin }).once('line', resolve));
  console.log('kill');
  await Promise.all([ended, killed]);

  const again = await amqp.connect(URL);
  const restored = await again.createChannel();
  assert.equal((await restored.checkQueue('node.kept')).messageCount, 10);
  const inbox = new Inbox();
  await restored.consume('node.kept', (message) => inbox.push(message));
  for (let number = 0; number < 10; number++) {
    const message = await inbox.next();
    assert.equal(message.content.toString(), `${number}`);
    assert.ok(number > 0 || message.fields.redelivered, 'it was handed out before');
    restored.ack(message);
  }
  await restored.checkExchange('node');
  await restored.close();
  await again.close();
}

async function main() {
  const connection = await amqp.connect(URL);
  // The kill is one.
  connection.on('error', () => {});
  const channel = await connection.createConfirmChannel();
  const other = await connection.createChannel();
  channel.on('error', () => {});
  other.on('error', () => {});
  await channel.assertExchange('node', 'direct', { durable: true });
  await channel.assertQueue('node', { durable: true });
  await channel.bindQueue('node', 'node', 'key');
  await confirmsAndReturns(channel);
  await prefetchAndRequeue(other);
  await deadLetters(other);
  await cancelNotification(other, channel);
  await bodiesAndHeaders(channel);
  await outlivesAKill(connection, channel);
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
