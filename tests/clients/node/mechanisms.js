// KafkaJS and amqplib over TLS with each mechanism; a wrong password is refused.
//
// Usage: mechanisms.js KAFKA AMQP FOLDER USER PASSWORD. FOLDER has ca.pem, the certificate and key of the client, which is
// USER's, and a token of the authorization server.
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const amqp = require('amqplib');
const { Kafka, logLevel } = require('kafkajs');

const [kafka, queues, folder, user, right] = process.argv.slice(2);
const file = (name) => fs.readFileSync(path.join(folder, name));
const token = file('token').toString();
const tls = { ca: [file('ca.pem')], cert: file('client.pem'), key: file('client.key') };

// Without a mechanism, the certificate is the login.
async function topics(mechanism, password) {
  const bearer = { mechanism, oauthBearerProvider: async () => ({ value: password }) };
  const named = mechanism && { mechanism, username: user, password };
  const sasl = mechanism === 'oauthbearer' ? bearer : named;
  const client = new Kafka({ clientId: 'tls', brokers: [kafka], ssl: tls, sasl, logLevel: logLevel.NOTHING, retry: { retries: 0 } });
  const admin = client.admin();
  await admin.connect();
  const { brokers } = await admin.describeCluster();
  await admin.disconnect();
  return brokers.length;
}

async function connects(credentials, address = `amqps://${queues}`) {
  const connection = await amqp.connect(address, { ...tls, credentials });
  const channel = await connection.createChannel();
  await channel.assertQueue('node-mechanisms');
  await connection.close();
}

async function main() {
  for (const mechanism of ['plain', 'scram-sha-256', 'scram-sha-512']) {
    assert.equal(await topics(mechanism, right), 1);
    await assert.rejects(topics(mechanism, 'wrong'), { name: 'KafkaJSSASLAuthenticationError' });
  }
  assert.equal(await topics('oauthbearer', token), 1);
  // It takes no notice of the refusal, and its next request ends the connection.
  await assert.rejects(topics('oauthbearer', `${token}A`));
  assert.equal(await topics(undefined), 1);
  const { plain, amqplain, external } = amqp.credentials;
  for (const credentials of [plain(user, right), amqplain(user, right), external(), plain(user, token)]) await connects(credentials);
  for (const credentials of [plain(user, 'wrong'), amqplain(user, 'wrong'), plain(user, `${token}A`)]) await assert.rejects(connects(credentials), /ACCESS_REFUSED|403|Handshake terminated/);
  console.log('done');
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
