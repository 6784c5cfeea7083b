/**
 * One delivery worked through: handlers called in order, and all they do gathered for one commit.
 *
 * The same code runs against the broker and against the double: a `Source` is a claimed task of either.
 */

import { State } from "./state.js";
import { type Emit, type Key, type Record, type Timer, keyId, Reject, showEmit, showKey } from "./types.js";

export type Results = Emit | Iterable<Emit> | null | undefined | void;
export type RecordHandler<Value, Tables extends { [table: string]: any }> = (
  record: Record<Value>,
  state: State<Tables>,
) => Results | Promise<Results>;
export type TimerHandler<Tables extends { [table: string]: any }> = (
  timer: Timer,
  state: State<Tables>,
) => Results | Promise<Results>;

/** Entries that a task keeps in memory. */
export const CACHED_MAX = 100_000;

/** Timers and records of a task, in this order. */
export interface Delivery {
  topic: string;
  due: Timer[];
  records: Record[];
  next: { [topic: string]: number };
}

/** What an app does, and the rules that matter for its order. */
export interface Handlers {
  record: RecordHandler<any, any>;
  timer: TimerHandler<any> | null;
  tables: readonly string[];
  /** Tables whose entries do not expire. */
  cached: ReadonlySet<string>;
  /** Null if the clock gives the time. */
  graceMs: number | null;
  /** True if the place behind a delivery is stored before it comes. */
  passesFirst: boolean;
  /** True if results may be stored before the commit of their batch. */
  emitsEarly: boolean;
  log: (text: string) => void;
}

/** A commit as it is sent, but for task, epoch and number. */
export interface NewCommit {
  next: { [topic: string]: number };
  put: { [table: string]: [unknown, unknown][] };
  delete: { [table: string]: unknown[] };
  timers: unknown[][];
  emit: { [name: string]: unknown }[];
}

/** A claimed task. */
export interface Source {
  get(table: string, keys: Key[]): Promise<any[]>;
  commit(commit: NewCommit): Promise<void>;
  emit(emit: { [name: string]: unknown }[]): Promise<void>;
  fail(topic: string, offset: number, error: string, retry: boolean): Promise<void>;
  failTimer(timer: Timer, error: string, retry: boolean): Promise<void>;
}

interface Change {
  table: string;
  key: Key;
  value: unknown;
}

interface Setting {
  key: Key;
  name: Key;
  due: number | null;
}

/** Entries by key, of each table. */
export type Cache = Map<string, Map<string, unknown>>;

/** A commit that is being built. */
export class Batch {
  private changed = new Map<string, Change>();
  private timers = new Map<string, Setting>();
  private emitted: Emit[] = [];
  /** No timer of the batch is earlier; one that was cleared may have been. */
  private firstDue = Infinity;
  private undo: (() => void)[] = [];
  /** Refusals of the task that handlers have met. */
  private readonly refusals = new Set<unknown>();

  constructor(
    private readonly source: Source,
    private readonly handlers: Handlers,
    /** Entries that are known already. */
    private readonly cache: Cache = new Map(),
  ) {
    for (const table of handlers.tables) if (!cache.has(table)) cache.set(table, new Map());
  }

  private tableOf(table: string): Map<string, unknown> {
    const known = this.cache.get(table);
    if (!known) throw new TypeError(`the app has no table ${JSON.stringify(table)}`);
    return known;
  }

  /** Reads entries that are not known yet. */
  async load(keys: Iterable<Key>): Promise<void> {
    const wanted = new Map<string, Key>();
    for (const key of keys) wanted.set(keyId(key), key);
    for (const [table, known] of this.cache) {
      const missing = [...wanted].filter(([id]) => !known.has(id));
      if (missing.length === 0) continue;
      const values = await this.asked(this.source.get(table, missing.map(([, key]) => key)));
      missing.forEach(([id], at) => known.set(id, values[at] ?? null));
    }
  }

  value(table: string, key: Key): any {
    const known = this.tableOf(table);
    const change = this.changed.get(`${table}\n${keyId(key)}`);
    const value = change ? change.value : known.get(keyId(key));
    // A handler may change its argument, and fail.
    return value === null || value === undefined ? undefined : structuredClone(value);
  }

  put(table: string, key: Key, value: unknown): void {
    this.tableOf(table);
    set(this.changed, `${table}\n${keyId(key)}`, { table, key, value: structuredClone(value ?? null) }, this.undo);
  }

  setTimer(key: Key, name: Key, due: number | null): void {
    set(this.timers, timerId(key, name), { key, name, due }, this.undo);
    if (due !== null && due < this.firstDue) this.firstDue = due;
  }

  /** Stores a result at once. */
  async emit(emit: Emit): Promise<void> {
    if (!this.handlers.emitsEarly) {
      throw new TypeError("results go with the commit, unless the app has guarantee='at-least-once'");
    }
    await this.asked(this.source.emit([showEmit(emit)]));
  }

  /** Awaits the task for a handler, and notes its refusal. */
  private async asked<Value>(answer: Promise<Value>): Promise<Value> {
    try {
      return await answer;
    } catch (error) {
      this.refusals.add(error);
      throw error;
    }
  }

  /** Throws the refusal of the task with which a handler ended: the handler did not fail by itself. */
  private throwRefusal(error: unknown): void {
    for (let cause = error; cause !== undefined; cause = cause instanceof Error ? cause.cause : undefined) {
      if (this.refusals.has(cause)) throw cause;
    }
  }

  /** Handles a delivery, and commits it: all of it, or up to a record or timer that failed, or to a timer that fell due. */
  async work(delivery: Delivery): Promise<void> {
    const keys = delivery.due.map((timer) => timer.key);
    for (const record of delivery.records) if (record.key !== null) keys.push(record.key);
    await this.load(keys);
    for (const [at, timer] of delivery.due.entries()) {
      const setting = this.timers.get(timerId(timer.key, timer.name));
      // The handler of an earlier one has moved or cleared it.
      if (setting && setting.due !== timer.due) continue;
      this.undo.length = 0;
      const emitted = this.emitted.length;
      // One that is not set again has fired.
      this.setTimer(timer.key, timer.name, null);
      try {
        if (this.handlers.timer) this.take(await this.handlers.timer(timer, new State(this, timer.key)));
      } catch (error) {
        this.takeBack(emitted);
        this.throwRefusal(error);
        this.handlers.log(`timer ${timer.name} of ${timer.key} failed: ${words(error, true)}`);
        if (this.handlers.passesFirst) {
          this.setTimer(timer.key, timer.name, null);
          continue;
        }
        if (at > 0) await this.commit({});
        await this.source.failTimer(timer, words(error), !(error instanceof Reject));
        return;
      }
    }
    for (const [at, record] of delivery.records.entries()) {
      this.undo.length = 0;
      const emitted = this.emitted.length;
      try {
        this.take(await this.handlers.record(record, new State(this, record.key)));
      } catch (error) {
        this.takeBack(emitted);
        this.throwRefusal(error);
        const place = `${record.topic}/${record.partition}@${record.offset}`;
        this.handlers.log(`record ${place} failed: ${words(error, true)}`);
        // Its place is stored: it does not come again.
        if (this.handlers.passesFirst) continue;
        await this.fail(record, error, at > 0 || delivery.due.length > 0);
        return;
      }
      const isLast = at + 1 === delivery.records.length;
      if (!isLast && !this.handlers.passesFirst && this.fallsDue(record.timestamp)) {
        // The broker delivers it before the records that follow.
        await this.commit({ [record.topic]: record.offset + 1 });
        return;
      }
    }
    await this.commit(this.handlers.passesFirst ? {} : delivery.next);
  }

  private take(results: Results): void {
    if (results === null || results === undefined) return;
    if (Symbol.iterator in Object(results)) this.emitted.push(...(results as Iterable<Emit>));
    else this.emitted.push(results as Emit);
  }

  /** Takes back what the handler did since it was called. */
  private takeBack(emitted: number): void {
    for (const back of this.undo.reverse()) back();
    this.emitted.length = emitted;
  }

  private fallsDue(timestamp: number): boolean {
    const grace = this.handlers.graceMs;
    if (grace === null || this.firstDue > timestamp - grace) return false;
    this.firstDue = Infinity;
    for (const { due } of this.timers.values()) if (due !== null && due < this.firstDue) this.firstDue = due;
    return this.firstDue <= timestamp - grace;
  }

  private async fail(record: Record, error: unknown, hasWork: boolean): Promise<void> {
    if (hasWork) await this.commit({ [record.topic]: record.offset });
    await this.source.fail(record.topic, record.offset, words(error), !(error instanceof Reject));
  }

  private async commit(next: { [topic: string]: number }): Promise<void> {
    const commit: NewCommit = { next, put: {}, delete: {}, timers: [], emit: this.emitted.map(showEmit) };
    for (const { table, key, value } of this.changed.values()) {
      if (value === null) (commit.delete[table] ??= []).push(showKey(key));
      else (commit.put[table] ??= []).push([showKey(key), value]);
    }
    for (const { key, name, due } of this.timers.values()) {
      commit.timers.push(name === "" ? [showKey(key), due] : [showKey(key), due, showKey(name)]);
    }
    await this.source.commit(commit);
    for (const { table, key, value } of this.changed.values()) this.cache.get(table)?.set(keyId(key), value);
    for (const [table, known] of this.cache) {
      if (known.size > CACHED_MAX || !this.handlers.cached.has(table)) known.clear();
    }
    this.changed = new Map();
    this.timers = new Map();
    this.firstDue = Infinity;
    this.emitted = [];
    this.undo = [];
  }
}

/** Id of a timer among those of a task. */
export function timerId(key: Key, name: Key): string {
  return `${keyId(key)}\n${keyId(name)}`;
}

function words(error: unknown, withStack = false): string {
  if (!(error instanceof Error)) return String(error);
  return (withStack && error.stack) || `${error.name}: ${error.message}`;
}

function set<Value>(where: Map<string, Value>, id: string, value: Value, undo: (() => void)[]): void {
  const before = where.get(id);
  undo.push(() => (before === undefined ? where.delete(id) : where.set(id, before)));
  where.set(id, value);
}
