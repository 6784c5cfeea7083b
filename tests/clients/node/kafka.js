// KafkaJS: everyday use.
//
// Usage: kafka.js HOST:PORT.
'use strict';

const assert = require('node:assert/strict');
const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require('kafkajs');

const PARTITIONS = 4;
// Guard against a hanging test; no step here needs to be quick.
const LIMIT_MS = 60_000;
const START_MS = 1_700_000_000_000;

const kafka = new Kafka({ clientId: 'day', brokers: [process.argv[2]], logLevel: logLevel.NOTHING, retry: { retries: 3 } });

/** Resolves once `condition` holds; it is looked at after each `changed`. */
class Watched {
  #waiting = [];

  changed() {
    this.#waiting = this.#waiting.filter(({ condition, resolve }) => !condition() || resolve());
  }

  until(condition, what) {
    if (condition()) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const limit = setTimeout(() => reject(new Error(`it never came true: ${what}`)), LIMIT_MS);
      this.#waiting.push({ condition, resolve: () => (clearTimeout(limit), resolve()) });
    });
  }
}

/** A consumer with what it is assigned and what it has read. */
class Member extends Watched {
  assigned = [];
  read = [];

  static async join(groupId, topic, settings = {}) {
    const member = new Member();
    const consumer = kafka.consumer({ groupId, heartbeatInterval: 200, sessionTimeout: 30_000, maxWaitTimeInMs: 200, ...settings });
    member.consumer = consumer;
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      member.assigned = payload.memberAssignment[topic] ?? [];
      member.changed();
    });
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    await consumer.run({
      eachMessage: async ({ partition, message }) => {
        member.read.push({ partition, ...message });
        member.changed();
      },
    });
    return member;
  }

  has(count) {
    return this.until(() => this.assigned.length === count, `${count} partitions assigned`);
  }

  hasRead(count) {
    return this.until(() => this.read.length >= count, `${count} records read`);
  }
}

/** Runs with a client that is connected, and disconnects it. */
async function using(client, work) {
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.disconnect();
  }
}

async function administration(admin) {
  const topic = 'kafkajs.admin';
  const created = { topic, numPartitions: 2, configEntries: [{ name: 'retention.ms', value: '70000' }] };
  assert.equal(await admin.createTopics({ topics: [created] }), true);
  assert.equal(await admin.createTopics({ topics: [created] }), false, 'it is there');
  assert.ok((await admin.listTopics()).includes(topic));

  await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] });
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
  assert.deepEqual(
    topics[0].partitions.map(({ partitionId, leader }) => [partitionId, leader]).sort(),
    [[0, 1], [1, 1], [2, 1]],
  );

  const resource = { type: ConfigResourceTypes.TOPIC, name: topic };
  await admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: 'max.message.bytes', value: '5000' }] }] });
  const { resources } = await admin.describeConfigs({ resources: [resource] });
  const config = Object.fromEntries(resources[0].configEntries.map((entry) => [entry.configName, entry.configValue]));
  // AlterConfigs replaces all settings: those that it does not name return to their defaults.
  assert.equal(config['max.message.bytes'], '5000');
  assert.equal(config['retention.ms'], '604800000');
  await assert.rejects(
    admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: 'soon' }] }] }),
    { type: 'INVALID_CONFIG' },
  );

  assert.deepEqual((await admin.describeCluster()).brokers.map(({ nodeId }) => nodeId), [1]);
  await admin.deleteTopics({ topics: [topic] });
  assert.ok(!(await admin.listTopics()).includes(topic));
}

/** KafkaJS brings gzip; others are packages. */
async function records(admin) {
  const topic = 'kafkajs.records';
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }] });
  const batch = (first) =>
    Array.from({ length: 100 }, (_, number) => ({
      partition: 0,
      key: number % 5 === 0 ? null : `key ${number % 7}`,
      value: number % 11 === 0 ? null : `${first + number} `.repeat(number),
      timestamp: `${START_MS + first + number}`,
      headers: { number: `${number}`, several: ['one', 'two'] },
    }));
  const sent = [...batch(0), ...batch(100)];
  await using(kafka.producer({ idempotent: true }), async (producer) => {
    await producer.send({ topic, messages: sent.slice(0, 100) });
    await producer.send({ topic, messages: sent.slice(100), compression: CompressionTypes.GZIP });
  });

  const member = await Member.join('kafkajs.records', topic);
  await member.hasRead(sent.length);
  await member.consumer.disconnect();
  member.read.forEach((message, number) => {
    const expected = sent[number];
    assert.equal(message.offset, `${number}`);
    assert.equal(message.key?.toString() ?? null, expected.key);
    assert.equal(message.value?.toString() ?? null, expected.value);
    assert.equal(message.timestamp, expected.timestamp);
    assert.equal(message.headers.number.toString(), expected.headers.number);
    assert.deepEqual(message.headers.several.map(String), ['one', 'two']);
  });

  const [{ low, high }] = await admin.fetchTopicOffsets(topic);
  assert.deepEqual([low, high], ['0', '200']);
  const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(topic, START_MS + 42);
  assert.equal(offset, '42');
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '50' }] });
  assert.equal((await admin.fetchTopicOffsets(topic))[0].low, '50');
}

async function limits(admin) {
  const topic = 'kafkajs.limits';
  await using(kafka.producer({ retry: { retries: 0 } }), async (producer) => {
    // The topic was not created.
    await producer.send({ topic, messages: [{ value: Buffer.alloc(1_000_000, 'x') }] });
    await assert.rejects(producer.send({ topic, messages: [{ value: Buffer.alloc(1_100_000, 'x') }] }), {
      type: 'MESSAGE_TOO_LARGE',
    });
    await assert.rejects(
      producer.send({ topic: 'not a name', messages: [{ value: 'x' }] }),
      ({ cause }) => cause.type === 'INVALID_TOPIC_EXCEPTION',
    );
    await producer.send({ topic, acks: 0, messages: [{ value: 'no answer' }] });
  });
  assert.equal((await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length, 1);
}

async function groups(admin) {
  const topic = 'kafkajs.groups';
  const groupId = 'kafkajs.group';
  await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS }] });
  const produce = (first, count) =>
    using(kafka.producer(), (producer) =>
      producer.send({
        topic,
        messages: Array.from({ length: count }, (_, number) => ({ partition: number % PARTITIONS, value: `${first + number}` })),
      }),
    );

  const first = await Member.join(groupId, topic);
  await first.has(PARTITIONS);
  const second = await Member.join(groupId, topic);
  await Promise.all([first.has(2), second.has(2)]);
  await produce(0, 400);
  await Promise.all([first.hasRead(200), second.hasRead(200)]);
  const described = (await admin.describeGroups([groupId])).groups[0];
  assert.deepEqual([described.state, described.protocol, described.members.length], ['Stable', 'RoundRobinAssigner', 2]);

  // It commits, and leaves.
  await second.consumer.disconnect();
  await first.has(PARTITIONS);
  await produce(400, 40);
  await first.hasRead(240);
  await first.consumer.disconnect();
  const values = [...first.read, ...second.read].map(({ value }) => Number(value));
  assert.deepEqual(values.sort((a, b) => a - b), Array.from({ length: 440 }, (_, number) => number));

  const committed = async () =>
    (await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions
      .sort((a, b) => a.partition - b.partition)
      .map(({ offset }) => offset);
  assert.deepEqual(await committed(), ['110', '110', '110', '110']);
  await produce(440, 4);
  const third = await Member.join(groupId, topic);
  await third.hasRead(4);
  await third.consumer.disconnect();
  assert.deepEqual(third.read.map(({ value }) => Number(value)).sort(), [440, 441, 442, 443]);
  assert.deepEqual(await committed(), ['111', '111', '111', '111']);
  assert.ok((await admin.listGroups()).groups.some((group) => group.groupId === groupId));
  await admin.deleteGroups([groupId]);
  assert.ok(!(await admin.listGroups()).groups.some((group) => group.groupId === groupId));
}

async function transactions() {
  const topic = 'kafkajs.transactions';
  const settings = { idempotent: true, transactionalId: 'kafkajs', maxInFlightRequests: 1 };
  await using(kafka.producer(settings), async (producer) => {
    for (let number = 0; number < 6; number += 1) {
      const transaction = await producer.transaction();
      await transaction.send({ topic, messages: [{ value: `${number}` }] });
      await (number % 2 === 0 ? transaction.commit() : transaction.abort());
    }
  });
  const reader = kafka.consumer({ groupId: topic, readUncommitted: false });
  await using(reader, async () => {
    await reader.subscribe({ topic, fromBeginning: true });
    const read = [];
    await new Promise((resolve) => {
      const eachMessage = async ({ message }) => read.push(`${message.value}`) === 3 && resolve();
      reader.run({ eachMessage });
    });
    assert.deepEqual(read.sort(), ['0', '2', '4']);
  });
}

using(kafka.admin(), async (admin) => {
  await Promise.all([administration(admin), records(admin), limits(admin), groups(admin), transactions()]);
}).catch((error) => {
  console.error(error);
  process.exit(1);
});
