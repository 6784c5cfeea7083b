// A worker against answers that a broker gives, without a broker: worker.mjs LIBRARY, a folder of built modules.

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const load = (name) => import(pathToFileURL(`${process.argv[2]}/${name}.js`).href);
const { App, Refused } = await load("index");
const { Worker } = await load("worker");

/** A wait that only the signal ends. */
function never(signal) {
  return new Promise((_, reject) => {
    const end = () => reject(new Error("aborted"));
    if (signal?.aborted) end();
    else signal?.addEventListener("abort", end);
  });
}

/** A broker with one task and some records, which answers by hand. */
class Broker {
  asked = [];
  events = [{ number: 1, event: "claimed", task: "0", epoch: 1, seq: 0 }];
  place = 0;

  constructor(count, answers = {}) {
    this.count = count;
    this.answers = answers;
  }

  tell(event) {
    this.events.push(event);
    this.wake?.();
  }

  async ask(method, path, body, { signal } = {}) {
    const command = method === "PUT" ? "declare" : path.split("/").at(-1);
    if (command === "poll") {
      while (true) {
        const events = this.events.filter((event) => event.number > body.after);
        if (events.length > 0) return { events };
        await Promise.race([new Promise((resolve) => (this.wake = resolve)), never(signal)]);
      }
    }
    if (command === "fetch" && this.place === this.count) return never(signal);
    this.asked.push(command);
    if (this.answers[command]) await this.answers[command](body);
    if (command === "join") return { token: "1", worker_timeout_ms: 30, resumed: [] };
    if (command === "commit") this.place = body.next.in;
    if (command !== "fetch") return { dead_letter: null };
    const records = [];
    for (let offset = this.place; offset < this.count; offset += 1) {
      records.push({ offset, key: "a", value: offset, timestamp: 0, headers: {}, late: false });
    }
    return { topic: "in", due: [], records, next: { in: this.count } };
  }
}

/** Runs a worker until the broker says that it may stop. */
async function run(app, broker) {
  const ending = new AbortController();
  broker.stop = () => ending.abort();
  app.log = () => {};
  const worker = new Worker(app, { worker: "w", signal: ending.signal });
  worker.client = broker;
  await worker.run();
  return broker.asked.filter((command) => command !== "beat");
}

{
  const app = new App("app", { topics: ["in"], guarantee: "at-least-once" });
  app.onRecord(async ({ value }, state) => {
    try {
      await state.emit({ topic: "out", value });
    } catch (cause) {
      throw new Error("a handler says it in its own words", { cause });
    }
  });
  let refusals = 1;
  const broker = new Broker(2, {
    emit({ emit: [{ value }] }) {
      if (value === 1 && refusals-- > 0) throw new Refused(409, { code: "queue_full" });
    },
    commit: () => broker.stop(),
  });
  const begun = ["fetch", "emit", "emit"];
  assert.deepEqual(await run(app, broker), ["declare", "join", ...begun, ...begun, "commit", "leave"]);
  console.log("ok: a refused result is no failure of the record");
}

{
  const app = new App("app", { topics: ["in"], guarantee: "at-least-once" });
  app.onRecord(({ value }, state) => state.emit({ topic: "out", value }));
  const broker = new Broker(2, {
    emit({ emit: [{ value }] }) {
      if (value === 1) throw new Refused(409, { code: "lost_claim" });
    },
    release: () => broker.stop(),
  });
  assert.deepEqual(await run(app, broker), ["declare", "join", "fetch", "emit", "emit", "release", "leave"]);
  console.log("ok: a result under a claim that is over ends it");
}

{
  const app = new App("app", { topics: ["in"] });
  let beaten;
  const beats = new Promise((resolve) => (beaten = resolve));
  app.onRecord(async () => {
    broker.tell({ number: 2, event: "revoke", task: "0", epoch: 1 });
    await beats;
  });
  const broker = new Broker(1, { beat: beaten, release: () => broker.stop() });
  assert.deepEqual(await run(app, broker), ["declare", "join", "fetch", "commit", "release", "leave"]);
  console.log("ok: a worker gives signs of life while a revoked task ends");
}
