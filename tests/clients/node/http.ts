// A client made of the API's document (openapi-typescript, openapi-fetch): queues, messages, topics, refusals.
//
// Usage: http.js HOST:PORT. `api.d.ts` beside it is made of the broker's own document.
import createClient from "openapi-fetch";
import { deepStrictEqual as equal } from "node:assert";
import type { paths } from "./api.js";

const api = createClient<paths>({ baseUrl: `http://${process.argv[2]}` });

function good<T>(answer: { data?: T; error?: unknown }): T {
  if (answer.data === undefined) throw new Error(JSON.stringify(answer.error));
  return answer.data;
}

const path = { queue: "a/b c" };
const queue = good(await api.PUT("/v1/queues/{queue}", { params: { path }, body: { priority_max: 10 } }));
equal([queue.name, queue.priority_max, queue.ready], ["a/b c", 10, 0]);

const sent = good(
  await api.POST("/v1/messages", {
    body: { to: { queues: ["a/b c"] }, content: { amount: 12 }, priority: 7, headers: { source: "shop" } },
  }),
);
const stored = Array.isArray(sent) ? sent[0] : sent;
equal(stored && "queues" in stored ? stored.queues : stored, ["a/b c"]);

const received = good(
  await api.POST("/v1/queues/{queue}/receive", { params: { path, query: { settled: "stored", as: "json" } } }),
);
equal(
  received.messages.map(({ content, priority, headers }) => [content, priority, headers["source"]]),
  [[{ amount: 12 }, 7, "shop"]],
);

const listed = good(await api.GET("/v1/queues", { params: { query: { sort: "-ready", count: 10 } } }));
equal([listed.total, listed.items.map(({ name }) => name)], [1, ["a/b c"]]);

good(await api.PUT("/v1/topics/{topic}", { params: { path: { topic: "events" } }, body: { partitions: 2 } }));
const topics = good(await api.GET("/v1/topics"));
equal(topics.items.map(({ name, partitions }) => [name, partitions]), [["events", 2]]);

const missing = await api.GET("/v1/queues/{queue}", { params: { path: { queue: "missing" } } });
equal([missing.response.status, missing.error?.code], [404, "no_such_queue"]);
