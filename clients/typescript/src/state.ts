/** State of one key, as a handler sees it. */

import type { Batch } from "./batch.js";
import type { Emit, Key } from "./types.js";

/**
 * Entries of one key by table, and its timers. What a handler changes is stored with the commit of its batch.
 *
 * `Tables` names the tables and the types of their entries.
 */
export class State<Tables extends { [table: string]: any } = { [table: string]: any }> {
  constructor(
    private readonly batch: Batch,
    readonly key: Key | null,
  ) {}

  private ownKey(): Key {
    if (this.key === null) throw new TypeError("a record without a key has no state");
    return this.key;
  }

  /** Returns the entry in a table. To change it, set it again. */
  get<Table extends keyof Tables & string>(table: Table): Tables[Table] | undefined;
  get<Table extends keyof Tables & string>(table: Table, otherwise: Tables[Table]): Tables[Table];
  get<Table extends keyof Tables & string>(table: Table, otherwise?: Tables[Table]): Tables[Table] | undefined {
    return this.batch.value(table, this.ownKey()) ?? otherwise;
  }

  set<Table extends keyof Tables & string>(table: Table, value: Tables[Table]): void {
    this.batch.put(table, this.ownKey(), value);
  }

  delete(table: keyof Tables & string): void {
    this.batch.put(table, this.ownKey(), null);
  }

  /** Sets a timer, in ms since 1970. It fires when the time of the task has reached it. */
  setTimer(due: number, name: Key = ""): void {
    this.batch.setTimer(this.ownKey(), name, due);
  }

  clearTimer(name: Key = ""): void {
    this.batch.setTimer(this.ownKey(), name, null);
  }

  /**
   * Stores a result at once, before the commit of its batch, in an app with `guarantee: "at-least-once"`. After a crash
   * it is stored again with the record that it comes from.
   */
  async emit(emit: Emit): Promise<void> {
    await this.batch.emit(emit);
  }

  /** Returns the state of another key, which has to be one of the same task. */
  async of(key: Key): Promise<State<Tables>> {
    await this.batch.load([key]);
    return new State<Tables>(this.batch, key);
  }
}
