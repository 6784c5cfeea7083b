/**
 * An app in a test: topics, state, timers and commits in memory, no broker.
 *
 * Handlers run through the same code as in a worker. What is stored is what was committed: `loseNextCommit` is a
 * worker that dies before its commit, and another that begins at the commit before.
 */

import { Ahead } from "./ahead.js";
import type { App } from "./app.js";
import { Batch, type Cache, type Delivery, type Handlers, type NewCommit, type Source, timerId } from "./batch.js";
import { type Key, type Record, type Timer, keyId, readKey, readValue, Refused, showKey } from "./types.js";

/** A record to feed: key, value, timestamp in ms, and headers. */
export type Fed = [key: Key, value: unknown, timestamp: number, headers?: { [name: string]: string }];

class WorkerDied extends Error {}

/** Runs an app over partitions in memory. A key is always in one partition, though not in that of the broker. */
export class MemoryApp {
  private readonly tasks: MemoryTask[];
  private readonly shared: Shared;

  constructor(
    private readonly app: App<any, any>,
    partitions = 1,
  ) {
    const { topics } = app.definition;
    this.shared = {
      handlers: app.handlers(),
      attemptsMax: app.definition["attempts_max"] ?? 5,
      emitted: [],
      dead: [],
      loses: false,
      refuses: false,
    };
    this.tasks = Array.from({ length: partitions }, (_, partition) => new MemoryTask(this.shared, topics, partition));
  }

  /** Stores records, and has them worked through. */
  async feed(topic: string, records: Fed[]): Promise<void> {
    if (!this.app.definition.topics.includes(topic)) throw new TypeError(`the app does not read ${topic}`);
    for (const [key, value, timestamp, headers = {}] of records) {
      const task = this.tasks[hash(keyId(key)) % this.tasks.length]!;
      const kept = task.records.get(topic)!;
      kept.push({
        topic,
        partition: task.partition,
        offset: kept.length,
        key,
        // As the broker keeps it.
        value: value instanceof Uint8Array ? value : JSON.parse(JSON.stringify(value ?? null)),
        timestamp,
        headers: new Map(Object.entries(headers)),
        late: false,
      });
    }
    await this.run();
  }

  /** Lets time go on without records, to ms since 1970: timers fire. */
  async advance(to: number): Promise<void> {
    for (const task of this.tasks) task.time = Math.max(task.time, to);
    await this.run();
  }

  /** The worker dies before its next commit; another goes on from the commit before. */
  loseNextCommit(): void {
    this.shared.loses = true;
  }

  /**
   * The broker refuses the next `state.emit`, as for a queue that is full; the worker begins again from the commit
   * before.
   */
  refuseNextEmit(): void {
    this.shared.refuses = true;
  }

  /** Another worker reads the state of all tasks ahead of a move. */
  async prepareMove(): Promise<void> {
    for (const task of this.tasks) await task.prepare();
  }

  /** That worker takes the tasks over: it reads what has changed since, and goes on. */
  async move(): Promise<void> {
    for (const task of this.tasks) await task.move();
  }

  /** Returns keys and values of all results for a topic, or for a queue. */
  emitted(target: string): [Key | null, any][] {
    const found = this.shared.emitted.filter((emit) => (emit.topic ?? emit.queue) === target);
    return found.map((emit) => [emit.key === undefined ? null : readKey(emit.key), readValue(emit)]);
  }

  /** Returns an entry, or undefined. */
  state(table: string, key: Key): any {
    for (const { entries } of this.tasks) {
      const found = entries.get(`${table}\n${keyId(key)}`);
      if (found !== undefined) return JSON.parse(found);
    }
    return undefined;
  }

  /** Records and timers that failed as often as they may, with the error. */
  get deadLetters(): [Record | Timer, string][] {
    return [...this.shared.dead];
  }

  private async run(): Promise<void> {
    for (const task of this.tasks) await task.run();
  }
}

interface Shared {
  handlers: Handlers;
  attemptsMax: number;
  emitted: any[];
  dead: [Record | Timer, string][];
  loses: boolean;
  refuses: boolean;
}

/** A task: a source of deliveries. */
class MemoryTask implements Source {
  readonly records = new Map<string, Record[]>();
  readonly entries = new Map<string, string>();
  time = -Infinity;
  private readonly timers = new Map<string, { key: Key; name: Key; due: number }>();
  private readonly next = new Map<string, number>();
  private readonly high = new Map<string, number>();
  private attempts = 0;
  private readonly timerAttempts = new Map<string, number>();
  private readonly changes: { table: string; key: Key }[] = [];
  private ahead: Ahead | null = null;
  private cache: Cache = new Map();

  constructor(
    private readonly shared: Shared,
    topics: string[],
    readonly partition: number,
  ) {
    for (const topic of topics) {
      this.records.set(topic, []);
      this.next.set(topic, 0);
    }
  }

  async prepare(): Promise<void> {
    this.ahead = new Ahead(this.shared.handlers.cached);
    await this.ahead.read((table, after) => this.scan(table, after));
  }

  async move(): Promise<void> {
    if (!this.ahead) return;
    await this.ahead.read((table, after) => this.scan(table, after));
    this.cache = this.ahead.entries;
    this.ahead = null;
  }

  /** Returns all entries, or those that have changed behind a place. */
  private async scan(table: string, after: unknown): Promise<any> {
    const page: any = { entries: [], deleted: [], next: null, place: this.changes.length };
    const changed = new Map<string, Key>();
    for (const change of this.changes.slice(Number(after ?? 0))) {
      if (change.table === table) changed.set(keyId(change.key), change.key);
    }
    for (const [id, key] of changed) {
      const found = this.entries.get(`${table}\n${id}`);
      if (found === undefined) page.deleted.push(showKey(key));
      else page.entries.push({ key: showKey(key), value: JSON.parse(found) });
    }
    return page;
  }

  async run(): Promise<void> {
    let batch = new Batch(this, this.shared.handlers, this.cache);
    this.cache = new Map();
    for (let delivery = this.delivery(); delivery; delivery = this.delivery()) {
      if (this.shared.handlers.passesFirst) {
        // The place is stored, and timers are cleared, before the handlers run.
        this.pass(delivery.next);
        for (const { key, name } of delivery.due) this.timers.delete(timerId(key, name));
      }
      try {
        await batch.work(delivery);
      } catch (error) {
        if (!(error instanceof WorkerDied || error instanceof Refused)) throw error;
        batch = new Batch(this, this.shared.handlers);
      }
    }
  }

  /** Timers that are due, then records of one topic up to the one at which a stored timer falls due. */
  private delivery(): Delivery | null {
    const due = [...this.timers.values()].filter((timer) => timer.due <= this.time).sort((a, b) => a.due - b.due);
    const waiting = [...this.records].filter(([topic, records]) => this.next.get(topic)! < records.length);
    if (due.length === 0 && waiting.length === 0) return null;
    const [first] = this.records.keys();
    if (due.length > 0) return { topic: first!, due, records: [], next: {} };
    // The oldest record first, so that topics go on together.
    const oldest = ([topic, records]: [string, Record[]]) => records[this.next.get(topic)!]!.timestamp;
    const [topic, records] = waiting.reduce((one, other) => (oldest(other) < oldest(one) ? other : one));
    const grace = this.shared.handlers.graceMs;
    const timer = Math.min(...[...this.timers.values()].map((it) => it.due));
    const taken: Record[] = [];
    for (const record of records.slice(this.next.get(topic)!)) {
      taken.push(record);
      if (grace !== null && record.timestamp - grace >= timer) break;
    }
    return { topic, due: [], records: taken, next: { [topic]: taken.at(-1)!.offset + 1 } };
  }

  async get(table: string, keys: Key[]): Promise<any[]> {
    return keys.map((key) => {
      const found = this.entries.get(`${table}\n${keyId(key)}`);
      return found === undefined ? null : JSON.parse(found);
    });
  }

  async commit(commit: NewCommit): Promise<void> {
    if (this.shared.loses) {
      this.shared.loses = false;
      throw new WorkerDied("the worker died before its commit");
    }
    // As the broker reads it.
    const read: any = JSON.parse(JSON.stringify(commit));
    for (const [table, entries] of Object.entries<any>(read.put)) {
      for (const [key, value] of entries) {
        this.entries.set(`${table}\n${keyId(readKey(key))}`, JSON.stringify(value));
        this.changes.push({ table, key: readKey(key) });
      }
    }
    for (const [table, keys] of Object.entries<any>(read.delete)) {
      for (const key of keys) {
        this.entries.delete(`${table}\n${keyId(readKey(key))}`);
        this.changes.push({ table, key: readKey(key) });
      }
    }
    for (const [shown, due, named] of read.timers) {
      const [key, name] = [readKey(shown), named === undefined ? "" : readKey(named)];
      const id = timerId(key, name);
      this.timerAttempts.delete(id);
      if (due === null) this.timers.delete(id);
      else this.timers.set(id, { key, name, due });
    }
    this.shared.emitted.push(...read.emit);
    this.pass(read.next);
  }

  private pass(places: { [topic: string]: number }): void {
    for (const [topic, place] of Object.entries(places)) {
      for (const record of this.records.get(topic)!.slice(this.next.get(topic)!, place)) {
        this.attempts = 0;
        this.high.set(topic, Math.max(this.high.get(topic) ?? record.timestamp, record.timestamp));
      }
      this.next.set(topic, place);
    }
    const grace = this.shared.handlers.graceMs;
    if (grace !== null && this.high.size === this.records.size) {
      this.time = Math.max(this.time, Math.min(...this.high.values()) - grace);
    }
  }

  async emit(emit: { [name: string]: unknown }[]): Promise<void> {
    if (this.shared.refuses) {
      this.shared.refuses = false;
      throw new Refused(409, { code: "queue_full" });
    }
    this.shared.emitted.push(...JSON.parse(JSON.stringify(emit)));
  }

  async failTimer(timer: Timer, error: string, retry: boolean): Promise<void> {
    const id = timerId(timer.key, timer.name);
    const attempts = (this.timerAttempts.get(id) ?? 0) + 1;
    this.timerAttempts.set(id, attempts);
    if (retry && attempts < this.shared.attemptsMax) return;
    this.shared.dead.push([timer, error]);
    this.timers.delete(id);
    this.timerAttempts.delete(id);
  }

  async fail(topic: string, offset: number, error: string, retry: boolean): Promise<void> {
    this.attempts += 1;
    if (retry && this.attempts < this.shared.attemptsMax) return;
    this.shared.dead.push([this.records.get(topic)![offset]!, error]);
    this.pass({ [topic]: offset + 1 });
  }
}

/** FNV-1a. */
function hash(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return hash >>> 0;
}
