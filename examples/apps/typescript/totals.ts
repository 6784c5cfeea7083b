/**
 * Running totals: the sum of all amounts by customer.
 *
 *     node totals.js [SERVER [WORKER]]
 */

import { App } from "stafett";

export const app = new App<number, { sums: number }>("totals", { topics: ["orders"], tables: ["sums"] });

app.onRecord((record, state) => {
  const total = state.get("sums", 0) + record.value;
  state.set("sums", total);
  return { topic: "totals", key: record.key, value: total };
});

if (import.meta.url.endsWith(process.argv[1] ?? " ")) {
  const [, , server, worker] = process.argv;
  app.server = server ?? app.server;
  await app.run(worker ? { worker } : {});
}
