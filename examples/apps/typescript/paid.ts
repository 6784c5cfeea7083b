/**
 * Joins two topics: an order and its payment, in whichever order they come.
 *
 * Both topics have equally many partitions, so what has the same key is in the same task.
 *
 *     node paid.js [SERVER [WORKER]]
 */

import { App } from "stafett";

type Waiting = { orders?: unknown; payments?: unknown };

export const app = new App<unknown, { waiting: Waiting }>("paid", {
  topics: ["orders", "payments"],
  tables: ["waiting"],
});

app.onRecord((record, state) => {
  const waiting = { ...state.get("waiting", {}), [record.topic]: record.value };
  if (Object.keys(waiting).length < 2) {
    state.set("waiting", waiting);
    return;
  }
  state.delete("waiting");
  return { topic: "paid", key: record.key, value: waiting };
});

if (import.meta.url.endsWith(process.argv[1] ?? " ")) {
  const [, , server, worker] = process.argv;
  app.server = server ?? app.server;
  await app.run(worker ? { worker } : {});
}
