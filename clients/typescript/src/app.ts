/** An app: its definition and its handlers. */

import type { Handlers, RecordHandler, TimerHandler } from "./batch.js";
import { Worker } from "./worker.js";

/** Settings of a table. */
export interface TableSettings {
  ttl_ms?: number | null;
  /** False for entries that belong to the task as a whole. */
  keyed?: boolean;
}

/** Settings of an app: those of `PUT /v1/apps/APP`, and where the broker is. */
export interface AppSettings {
  topics: string[];
  tables?: string[] | { [table: string]: TableSettings };
  /** `http://127.0.0.1:7070` by default. */
  server?: string;
  /** Token of a user. */
  token?: string;
  guarantee?: "exactly-once" | "at-least-once" | "at-most-once";
  /** Condition on records, such as `value.total > 100`; others are passed over. */
  filter?: string;
  dead_letter?: string;
  attempts_max?: number;
  worker_timeout_ms?: number;
  /** True for workers that read the state of a task before a planned move brings it. */
  eager?: boolean;
  time?: { clock?: "record" | "wall"; grace_ms?: number; idle_ms?: number };
  [setting: string]: unknown;
}

/** Options of a worker. */
export interface WorkerOptions {
  /** Name of the worker; one is made if it is absent. */
  worker?: string;
  weight?: number;
  /** Ends the worker: what is in hand is committed then. */
  signal?: AbortSignal;
}

/**
 * A job over stored topics. Declare it once, give it handlers, and run any number of workers.
 *
 * `Value` is the type of the records' values, `Tables` has the tables with the types of their entries.
 */
export class App<Value = any, Tables extends { [table: string]: any } = { [table: string]: any }> {
  server: string;
  readonly token: string | undefined;
  readonly eager: boolean;
  /** Body of `PUT /v1/apps/APP`. */
  readonly definition: { topics: string[]; tables: { [table: string]: TableSettings }; [setting: string]: any };
  /** Takes lines of the log. */
  log: (text: string) => void = (text) => console.error(text);
  private record: RecordHandler<Value, Tables> | null = null;
  private timer: TimerHandler<Tables> | null = null;

  constructor(
    readonly name: string,
    { topics, tables = {}, server = "http://127.0.0.1:7070", token, eager = false, ...settings }: AppSettings,
  ) {
    this.server = server;
    this.token = token;
    this.eager = eager;
    const described = Array.isArray(tables) ? Object.fromEntries(tables.map((table) => [table, {}])) : tables;
    for (const table of Object.values(described)) {
      if (((table as any).format ?? "json") !== "json") throw new TypeError("values of tables are JSON here");
    }
    this.definition = { topics, tables: described, ...settings };
  }

  /** Sets the handler of records. */
  onRecord(handler: RecordHandler<Value, Tables>): this {
    this.record = handler;
    return this;
  }

  /** Sets the handler of timers that are due. */
  onTimer(handler: TimerHandler<Tables>): this {
    this.timer = handler;
    return this;
  }

  handlers(): Handlers {
    if (!this.record) throw new TypeError(`app ${this.name} has no handler: give it one with onRecord`);
    const { tables, time = {} } = this.definition;
    return {
      record: this.record,
      timer: this.timer,
      tables: Object.keys(tables),
      cached: new Set(Object.keys(tables).filter((name) => (tables[name]?.ttl_ms ?? null) === null)),
      graceMs: time.clock === "wall" ? null : (time.grace_ms ?? 5000),
      passesFirst: this.definition["guarantee"] === "at-most-once",
      emitsEarly: this.definition["guarantee"] === "at-least-once",
      log: (text) => this.log(text),
    };
  }

  /** Declares the app, and does tasks until the signal. What is in hand is committed then. */
  async work(options: WorkerOptions = {}): Promise<void> {
    await new Worker(this, options).run();
  }

  /** Does tasks of the app until SIGINT or SIGTERM. */
  async run(options: WorkerOptions = {}): Promise<void> {
    const ending = new AbortController();
    options.signal?.addEventListener("abort", () => ending.abort());
    const { process } = globalThis as any;
    for (const name of ["SIGINT", "SIGTERM"]) process?.once(name, () => ending.abort());
    await this.work({ ...options, signal: ending.signal });
  }
}
