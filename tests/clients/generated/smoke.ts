// A day with openapi-fetch and the types that openapi-typescript makes of docs/openapi.json: `smoke HTTP_ADDRESS`.
// It is compiled before it runs, so each body and each field is what the document says.

import createClient from "openapi-fetch";
import type { paths } from "./stafett.js";

declare const process: { argv: string[] };

const client = createClient<paths>({ baseUrl: `http://${process.argv[2]}` });

function check(holds: boolean, found: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(found));
}

const queue = { path: { queue: "orders" } };
const made = await client.PUT("/v1/queues/{queue}", { params: queue, body: { priority_max: 9 } });
check(made.response.status === 201 && made.data?.priority_max === 9, made);
const differs = await client.PUT("/v1/queues/{queue}", { params: queue, body: { priority_max: 3 } });
check(differs.response.status === 409 && differs.error?.code === "exists_differently", differs);

for (const priority of [1, 7]) {
  const body = { to: { queues: ["orders"] }, content: { amount: 12 }, priority };
  const sent = await client.POST("/v1/messages", { body });
  check(sent.response.status === 201, sent);
}
const shown = await client.GET("/v1/queues/{queue}", { params: queue });
check(shown.data?.ready === 2 && shown.data.state === "running", shown);
const page = await client.GET("/v1/queues", { params: { query: { count: 1, sort: "-ready" } } });
check(page.data?.items[0]?.name === "orders" && page.data.next === null, page);

const received = await client.POST("/v1/queues/{queue}/receive", { params: { ...queue, query: { ack: "lease:30s" } } });
const message = received.data?.messages[0];
check(message?.priority === 7 && message.lease !== null, received);
const settled = await client.POST("/v1/queues/{queue}/settle", { params: queue, body: { complete: [message.lease] } });
check(settled.data?.settled === 1 && settled.data.unknown.length === 0, settled);

const absent = await client.GET("/v1/queues/{queue}", { params: { path: { queue: "absent" } } });
check(absent.error?.code === "no_such_queue", absent);

const topic = { path: { topic: "sales" } };
const topicMade = await client.PUT("/v1/topics/{topic}", { params: topic, body: { partitions: 2 } });
check(topicMade.response.status === 201, topicMade);
const produced = await client.POST("/v1/topics/{topic}/records", {
  params: { ...topic, query: { as: "record", partition: 1 } },
  body: { key: "a", value: { amount: 3 } },
});
check(produced.data?.stored === 1 && produced.data.keyed === 1, produced);
const read = await client.GET("/v1/topics/{topic}/partitions/{partition}/records", {
  params: { path: { topic: "sales", partition: "1" }, query: { from: "earliest" } },
});
check(read.data?.records.length === 1 && read.data.next === 1, read);

const deleted = await client.DELETE("/v1/queues/{queue}", { params: queue });
check(deleted.data?.messages === 1, deleted);
console.log("ok");
