/**
 * Apps on Stafett: jobs that read stored topics, keep state by key, and pass results on.
 *
 * An `App` has handlers, plain functions of a record and the state of its key. `App.run` is a worker of it;
 * `MemoryApp` runs it in a test, without a broker.
 */

export { App, type AppSettings, type TableSettings, type WorkerOptions } from "./app.js";
export type { RecordHandler, Results, TimerHandler } from "./batch.js";
export { Client } from "./http.js";
export { MemoryApp, type Fed } from "./memory.js";
export { State } from "./state.js";
export { type Emit, type Json, type Key, type Record, Refused, Reject, type Timer } from "./types.js";
