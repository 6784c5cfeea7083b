// amqplib over TLS: a message goes through a queue.
//
// Usage: tls.js HOST:PORT FOLDER. FOLDER has ca.pem, and the certificate and key of the client.
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const amqp = require('amqplib');

async function main() {
  const [address, folder] = process.argv.slice(2);
  const file = (name) => fs.readFileSync(path.join(folder, name));
  const options = { ca: [file('ca.pem')], cert: file('client.pem'), key: file('client.key') };
  const connection = await amqp.connect(`amqps://guest:guest@${address}`, options);
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue('node-tls');
  const body = Buffer.alloc(1 << 20, 'node');
  channel.sendToQueue('node-tls', body);
  await channel.waitForConfirms();
  const message = await channel.get('node-tls', { noAck: true });
  assert.deepEqual(message.content, body);
  await connection.close();
  console.log('done');
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
