/** State of a task that is read before the task comes. */

import { CACHED_MAX, type Cache } from "./batch.js";
import { keyId, readKey, readValue } from "./types.js";

/** Asks for entries of a table behind a place, or behind the last page; `null` for the beginning. */
export type Scan = (table: string, after: unknown) => Promise<any>;

export class Ahead {
  readonly entries: Cache = new Map();
  /** How far each table is read. */
  private readonly places = new Map<string, unknown>();

  constructor(tables: Iterable<string>) {
    for (const table of tables) {
      this.entries.set(table, new Map());
      this.places.set(table, null);
    }
  }

  /** Reads all of it, or what has changed since. What does not fit is read when it is asked for. */
  async read(scan: Scan): Promise<void> {
    for (const [table, place] of [...this.places]) {
      const known = this.entries.get(table)!;
      for (let after = place; ; ) {
        const page = await scan(table, after);
        for (const entry of page.entries) known.set(keyId(readKey(entry.key)), readValue(entry));
        for (const key of page.deleted) known.set(keyId(readKey(key)), null);
        if (known.size > CACHED_MAX) {
          for (const one of this.entries.values()) one.clear();
          this.places.clear();
          return;
        }
        after = page.next;
        if (after === null) {
          this.places.set(table, page.place);
          break;
        }
      }
    }
  }
}
