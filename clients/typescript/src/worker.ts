/**
 * A worker: joins, is given tasks, and does each in a loop of its own.
 *
 * Whatever breaks - connections, the broker, a claim - what was not committed never happened: the worker forgets
 * what it knows of a task, and begins again at the last commit.
 */

import { Ahead, type Scan } from "./ahead.js";
import type { App, WorkerOptions } from "./app.js";
import { Batch, type Delivery, type Handlers, type NewCommit, type Source } from "./batch.js";
import { Client } from "./http.js";
import { type Key, readKey, readRecord, readValue, Refused, showKey, type Timer } from "./types.js";

const CLAIM_OVER = new Set(["lost_claim", "no_such_task", "out_of_order"]);
const SESSION_OVER = new Set(["no_such_worker"]);
const RECORDS_MAX = 1000;
/** Records by which a delivery grows again after a commit that was too large. */
const RECORDS_MORE = 10;
/** Parts of a definition without which a worker cannot work; operators may change the others. */
const FIXED = ["topics", "guarantee", "tables"];
const KEYS_MAX = 1000;
const SCAN_COUNT = 10_000;
const WAIT_MS = 5000;
const PAUSE_MAX_MS = 2000;
/** Time for the last commits of a worker that is to stop. */
const END_MS = 10_000;

/** The worker has to join again. */
class SessionOver extends Error {}

/** The task is no longer the worker's, or has to be begun again. */
class ClaimOver extends Error {}

/** One join, and the requests of it. */
class Session {
  readonly waitMs: number;
  private readonly path: string;

  constructor(
    private readonly client: Client,
    private readonly log: (text: string) => void,
    app: string,
    worker: string,
    private readonly token: string,
    timeoutMs: number,
    readonly over: AbortSignal,
  ) {
    this.path = `/v1/apps/${encodeURIComponent(app)}/workers/${encodeURIComponent(worker)}/`;
    this.waitMs = Math.min(WAIT_MS, Math.floor(timeoutMs / 3));
  }

  /** Sends a command until it is answered: all of them may be repeated. */
  async ask(command: string, body: object, signal?: AbortSignal): Promise<any> {
    const headers = { "Stafett-Worker": this.token };
    for (let pause = 50; ; pause = Math.min(pause * 2, PAUSE_MAX_MS)) {
      try {
        return await this.client.ask("POST", this.path + command, body, { headers, signal });
      } catch (error) {
        if (signal?.aborted) throw error;
        if (error instanceof Refused) {
          if (SESSION_OVER.has(error.code)) throw new SessionOver(error.message);
          if (CLAIM_OVER.has(error.code)) throw new ClaimOver(error.message);
          if (error.status < 500 && error.code !== "paused") throw error;
        }
        this.log(`${command}: ${error instanceof Error ? error.message : error}`);
      }
      // No caller waits for the answer any more.
      if (this.over.aborted) throw new SessionOver("the session has ended");
      await sleep(pause, signal);
    }
  }

  /** Scans tables of a task that is claimed, or about to be. */
  scanOf(of: object): Scan {
    return (table, after) => this.ask("scan", { ...of, table, after, count: SCAN_COUNT });
  }
}

/** A claimed task: a source of deliveries. */
class Claim implements Source {
  readonly task: string;
  readonly epoch: number;
  readonly done: Promise<void>;
  isDone = false;
  error: unknown = null;
  private seq: number;
  private records = RECORDS_MAX;
  private readonly partition: number;
  private readonly revoking = new AbortController();

  constructor(
    private readonly session: Session,
    private readonly handlers: Handlers,
    event: any,
    private readonly ahead: Ahead | undefined,
    onEnd: () => void,
  ) {
    this.task = event.task;
    this.epoch = event.epoch;
    this.seq = event.seq;
    this.partition = Number(this.task.split(".")[0]);
    this.done = this.run()
      .catch((error) => {
        this.error = error;
      })
      .finally(() => {
        this.isDone = true;
        onEnd();
      });
  }

  private of(more: object): object {
    return { task: this.task, epoch: this.epoch, ...more };
  }

  async get(table: string, keys: Key[]): Promise<any[]> {
    if (keys.length <= KEYS_MAX) {
      try {
        const answer = await this.session.ask("get", this.of({ table, keys: keys.map(showKey) }));
        return answer.values.map((value: any) => (value === null ? null : readValue(value)));
      } catch (error) {
        if (!(error instanceof Refused && error.code === "too_large") || keys.length < 2) throw error;
      }
    }
    const half = keys.length >> 1;
    return [...(await this.get(table, keys.slice(0, half))), ...(await this.get(table, keys.slice(half)))];
  }

  async commit(commit: NewCommit): Promise<void> {
    await this.session.ask("commit", this.of({ seq: this.seq + 1, ...commit }));
    this.seq += 1;
  }

  async fail(topic: string, offset: number, error: string, retry: boolean): Promise<void> {
    const failure = this.of({ seq: this.seq + 1, topic, offset, error, retry });
    const answer = await this.session.ask("fail", failure);
    this.seq += 1;
    if (answer.dead_letter !== null) this.handlers.log(`record ${topic}@${offset} went to ${answer.dead_letter}`);
  }

  async emit(emit: { [name: string]: unknown }[]): Promise<void> {
    await this.session.ask("emit", this.of({ emit }));
  }

  async failTimer({ key, name }: Timer, error: string, retry: boolean): Promise<void> {
    const named = { timer: showKey(key), timer_name: showKey(name) };
    const answer = await this.session.ask("fail", this.of({ seq: this.seq + 1, error, retry, ...named }));
    this.seq += 1;
    if (answer.dead_letter !== null) this.handlers.log(`timer ${name} of ${key} went to ${answer.dead_letter}`);
  }

  private async fetch(): Promise<Delivery> {
    const wanted = this.of({ records_max: this.records, wait_ms: this.session.waitMs });
    const answer = await this.session.ask("fetch", wanted, this.revoking.signal);
    return {
      topic: answer.topic,
      due: answer.due.map(([key, due, name]: any[]) => ({ key: readKey(key), due, name: readKey(name) })),
      records: answer.records.map((shown: any) => readRecord(answer.topic, this.partition, shown)),
      next: answer.next,
    };
  }

  /** Does the task until it is revoked. */
  private async run(): Promise<void> {
    await this.ahead?.read(this.session.scanOf(this.of({})));
    let batch = new Batch(this, this.handlers, this.ahead?.entries);
    let pause = 100;
    while (!this.revoking.signal.aborted) {
      try {
        const delivery = await this.fetch();
        if (delivery.due.length > 0 || delivery.records.length > 0) {
          await batch.work(delivery);
          this.records = Math.min(RECORDS_MAX, this.records + RECORDS_MORE);
        }
        pause = 100;
      } catch (error) {
        if (error instanceof ClaimOver || error instanceof SessionOver) throw error;
        if (this.revoking.signal.aborted) return;
        if (error instanceof Refused && error.code === "too_large") this.records = Math.max(1, this.records >> 1);
        // Again from the last commit on.
        this.handlers.log(`task ${this.task}: ${error instanceof Error ? (error.stack ?? error) : error}`);
        batch = new Batch(this, this.handlers);
        await sleep(pause, this.revoking.signal);
        pause = Math.min(pause * 2, PAUSE_MAX_MS);
      }
    }
  }

  /** Ends after the batch in hand. */
  async finish(): Promise<void> {
    this.revoking.abort();
    await Promise.race([this.done, sleep(END_MS)]);
  }
}

/** Awaits the end of a batch, and gives signs of life meanwhile: nothing else does. */
async function alive<Value>(session: Session, work: Promise<Value>): Promise<Value> {
  const over = new AbortController();
  const beat = async () => {
    while (!over.signal.aborted) {
      await sleep(session.waitMs, over.signal);
      if (!over.signal.aborted) await session.ask("beat", {}, over.signal);
    }
  };
  // The next poll says so.
  beat().catch(() => {});
  try {
    return await work;
  } finally {
    over.abort();
  }
}

/** A worker of an app. */
export class Worker {
  private readonly client: Client;
  private readonly name: string;
  private readonly handlers: Handlers;
  private readonly stop: AbortSignal;
  private readonly claims = new Map<string, Claim>();
  /** State that was read ahead, by task. */
  private readonly ahead = new Map<string, Ahead>();
  private after = 0;
  /** Ends the poll under way. */
  private wake = new AbortController();

  constructor(
    private readonly app: App<any, any>,
    private readonly options: WorkerOptions,
  ) {
    this.client = new Client(app.server, app.token);
    this.name = options.worker ?? `worker-${crypto.randomUUID()}`;
    this.handlers = app.handlers();
    this.stop = options.signal ?? new AbortController().signal;
    this.stop.addEventListener("abort", () => this.wake.abort());
  }

  /** Declares the app, and works until the signal. */
  async run(): Promise<void> {
    await this.persist(() => this.declare());
    while (!this.stop.aborted) {
      const over = new AbortController();
      const session = await this.persist(() => this.join(over.signal));
      if (!session) return;
      try {
        await this.serve(session);
        await alive(session, this.endClaims());
        await session.ask("leave", {});
        return;
      } catch (error) {
        if (!(error instanceof SessionOver)) throw error;
        this.app.log(`worker ${this.name}: ${error.message}`);
      } finally {
        over.abort();
        await this.endClaims();
        this.ahead.clear();
      }
    }
  }

  /** Asks until it is answered, or the worker is to stop. */
  private async persist<Value>(ask: () => Promise<Value>): Promise<Value | undefined> {
    for (let pause = 50; !this.stop.aborted; pause = Math.min(pause * 2, PAUSE_MAX_MS)) {
      try {
        return await ask();
      } catch (error) {
        if (error instanceof Refused && error.status < 500) throw error;
        this.app.log(`${this.app.server}: ${error instanceof Error ? error.message : error}`);
        await sleep(pause, this.stop);
      }
    }
    return undefined;
  }

  private async declare(): Promise<void> {
    const path = `/v1/apps/${encodeURIComponent(this.app.name)}`;
    try {
      await this.client.ask("PUT", path, this.app.definition);
    } catch (error) {
      // A worker may work without the right to declare, and with settings that an operator has changed.
      if (!(error instanceof Refused)) throw error;
      const differs = error.code === "exists_differently" && !FIXED.includes(error.details["field"]);
      if (!differs && error.code !== "forbidden") throw error;
      if (differs) this.app.log(`the app stays as it is: ${error.message}`);
    }
  }

  private async join(over: AbortSignal): Promise<Session> {
    const { name } = this.app;
    const path = `/v1/apps/${encodeURIComponent(name)}/workers/${encodeURIComponent(this.name)}/join`;
    const joined = await this.client.ask("POST", path, {
      weight: this.options.weight ?? 1,
      state: this.app.eager ? "eager" : "lazy",
    });
    this.after = 0;
    const log = (text: string) => this.app.log(text);
    const session = new Session(this.client, log, name, this.name, joined.token, joined.worker_timeout_ms, over);
    // What an earlier session held is begun anew.
    for (const { task, epoch } of joined.resumed) await this.release(session, { task, epoch });
    return session;
  }

  private async serve(session: Session): Promise<void> {
    while (!this.stop.aborted) {
      this.wake = new AbortController();
      const { signal } = this.wake;
      try {
        const wanted = { after: this.after, wait_ms: session.waitMs };
        const { events } = await session.ask("poll", wanted, signal);
        for (const event of events) {
          this.after = event.number;
          await this.take(session, event);
        }
      } catch (error) {
        if (!signal.aborted || error instanceof SessionOver) throw error;
      }
      await this.dropEnded(session);
    }
  }

  /** Forgets claims that have ended by themselves. */
  private async dropEnded(session: Session): Promise<void> {
    for (const [task, claim] of [...this.claims]) {
      if (!claim.isDone) continue;
      this.claims.delete(task);
      if (claim.error instanceof ClaimOver) {
        this.app.log(`task ${task}: ${claim.error.message}`);
        await this.release(session, claim);
      } else if (claim.error !== null) throw claim.error;
    }
  }

  private async take(session: Session, event: any): Promise<void> {
    const claim = this.claims.get(event.task);
    const isKnown = claim?.epoch === event.epoch;
    if (event.event === "claimed" && !isKnown && event.seq !== undefined) {
      await claim?.finish();
      const ahead = this.ahead.get(event.task);
      this.ahead.delete(event.task);
      this.claims.set(event.task, new Claim(session, this.handlers, event, ahead, () => this.wake.abort()));
    } else if (event.event === "prepare") {
      // The holder goes on meanwhile.
      void this.prepare(session, event);
    } else if (event.event === "lost" && claim && isKnown) {
      this.claims.delete(event.task);
      await claim.finish();
    } else if (event.event === "revoke" && claim && isKnown) {
      this.claims.delete(event.task);
      await alive(session, claim.finish());
      await this.release(session, event);
    }
  }

  /** Reads the state of a task that is about to come. */
  private async prepare(session: Session, { task, epoch }: { task: string; epoch: number }): Promise<void> {
    const ahead = new Ahead(this.handlers.cached);
    try {
      await ahead.read(session.scanOf({ task, epoch }));
      if (session.over.aborted) return;
      this.ahead.set(task, ahead);
      await session.ask("prepared", { task, epoch });
    } catch (error) {
      this.ahead.delete(task);
      this.app.log(`task ${task} does not come: ${error instanceof Error ? error.message : error}`);
    }
  }

  private async release(session: Session, { task, epoch }: { task: string; epoch: number }): Promise<void> {
    try {
      await session.ask("release", { task, epoch });
    } catch (error) {
      if (!(error instanceof ClaimOver)) throw error;
    }
  }

  private async endClaims(): Promise<void> {
    const claims = [...this.claims.values()];
    this.claims.clear();
    await Promise.all(claims.map((claim) => claim.finish()));
  }
}

/** Waits, unless the signal comes first. */
function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    if (signal?.aborted) end();
    else signal?.addEventListener("abort", end);
  });
}
