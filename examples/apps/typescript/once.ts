/**
 * Passes on the first record of each key within an hour, and no other.
 *
 *     node once.js [SERVER [WORKER]]
 */

import { App } from "stafett";

export const app = new App<unknown, { seen: true }>("once", {
  topics: ["raw"],
  tables: { seen: { ttl_ms: 3_600_000 } },
});

app.onRecord((record, state) => {
  if (state.get("seen")) return;
  state.set("seen", true);
  return { topic: "clean", key: record.key, value: record.value };
});

if (import.meta.url.endsWith(process.argv[1] ?? " ")) {
  const [, , server, worker] = process.argv;
  app.server = server ?? app.server;
  await app.run(worker ? { worker } : {});
}
