/**
 * Assembles sessions out of fragments: one ends by a fragment of type END, or after half an hour of silence.
 *
 *     node sessions.js [SERVER [WORKER]]
 */

import { App } from "stafett";

export const SILENCE_MS = 30 * 60_000;

type Part = unknown;

export const app = new App<Part, { open: Part[] }>("sessions", {
  topics: ["fragments"],
  tables: ["open"],
  worker_timeout_ms: 2000,
});

app.onRecord((record, state) => {
  const parts = [...state.get("open", []), record.value];
  if (record.headers.get("type") !== "END") {
    state.set("open", parts);
    state.setTimer(record.timestamp + SILENCE_MS);
    return;
  }
  state.delete("open");
  state.clearTimer();
  return { topic: "sessions", key: record.key, value: { parts, timed_out: false } };
});

app.onTimer((timer, state) => {
  const parts = state.get("open");
  state.delete("open");
  return { topic: "sessions", key: timer.key, value: { parts, timed_out: true } };
});

if (import.meta.url.endsWith(process.argv[1] ?? " ")) {
  const [, , server, worker] = process.argv;
  app.server = server ?? app.server;
  await app.run(worker ? { worker } : {});
}
