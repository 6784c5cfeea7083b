// The expectations that all libraries share, on the double: conformance.mjs LIBRARY EXAMPLES EXPECTATIONS.
// LIBRARY and EXAMPLES are folders of built modules.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [, , library, examples, expectations] = process.argv;
const load = (folder, name) => import(pathToFileURL(`${folder}/${name}.js`).href);
const { App, MemoryApp, Reject } = await load(library, "index");

const own = {
  picky(settings, calls) {
    const app = new App("picky", { topics: ["in"], tables: ["seen"], ...settings });
    app.log = () => {};
    return app.onRecord((record, state) => {
      calls.push(record.value);
      const seen = state.get("seen", []);
      seen.push(record.value);
      state.set("seen", seen);
      state.setTimer(5);
      if (record.value === "odd") throw new Error("odd");
      if (record.value === "never") throw new Reject("never");
      return [{ topic: "out", value: record.value }];
    });
  },
  alerts(settings) {
    const app = new App("alerts", { topics: ["in"], ...settings });
    return app.onRecord(({ key, value }) => (value > 100 ? { queue: "alarms", key, value: { value } } : null));
  },
  early(settings) {
    const app = new App("early", { topics: ["in"], ...settings });
    app.log = () => {};
    return app.onRecord(async ({ value }, state) => {
      await state.emit({ topic: "out", value });
      return { topic: "whole", value };
    });
  },
  alarm(settings, calls) {
    const app = new App("alarm", { topics: ["in"], tables: ["seen"], time: { grace_ms: 0 }, ...settings });
    app.log = () => {};
    app.onTimer(({ name }, state) => {
      calls.push(name);
      state.set("seen", [...state.get("seen", []), name]);
      if (name === "odd") throw new Error("odd");
      return { topic: "due", value: name };
    });
    return app.onRecord(({ value, timestamp }, state) => {
      state.setTimer(timestamp + 100, value);
      return { topic: "out", value };
    });
  },
  mover(settings, calls) {
    const app = new App("mover", { topics: ["in"], time: { grace_ms: 0 }, ...settings });
    app.log = () => {};
    app.onTimer(({ name, due }, state) => {
      calls.push(name);
      if (name === "odd") throw new Error("odd");
      if (name === "first") {
        state.setTimer(due + 5000, "moved");
        state.clearTimer("cleared");
      }
      return { topic: "due", value: name };
    });
    return app.onRecord(({ value, timestamp }, state) => state.setTimer(timestamp + 100, value));
  },
};

for (const script of JSON.parse(readFileSync(expectations, "utf8"))) {
  const calls = [];
  const build = own[script.app];
  const app = build ? build(script.settings, calls) : (await load(examples, script.app)).app;
  const memory = new MemoryApp(app, script.partitions ?? 1);
  for (const step of script.steps) {
    if (step.feed) await memory.feed(step.feed, step.records);
    if (step.advance) await memory.advance(step.advance);
    if (step.lose) memory.loseNextCommit();
    if (step.refuse) memory.refuseNextEmit();
    if (step.prepare) await memory.prepareMove();
    if (step.move) await memory.move();
  }
  for (const [target, expected] of Object.entries(script.emitted)) {
    const order = (list) => [...list].sort((one, other) => (String(one[0]) < String(other[0]) ? -1 : 1));
    const found = memory.emitted(target);
    assert.deepEqual(script.partitions ? order(found) : found, script.partitions ? order(expected) : expected, script.does);
  }
  for (const [table, key, value] of script.state ?? []) {
    assert.deepEqual(memory.state(table, key) ?? null, value, script.does);
  }
  if (script.calls) assert.deepEqual(calls, script.calls, script.does);
  const dead = memory.deadLetters.map(([it, error]) => [it.value ?? it.name, error.split(": ")[1]]);
  if (script.dead) assert.deepEqual(dead, script.dead, script.does);
  console.log(`ok: ${script.does}`);
}
