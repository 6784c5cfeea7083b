/** Values that handlers take and return, and their form in JSON. */

/** A key: a text, or bytes where it is not UTF-8. */
export type Key = string | Uint8Array;

/** A value of JSON. */
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** A record of an input topic. */
export interface Record<Value = any> {
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  readonly key: Key | null;
  readonly value: Value;
  /** Milliseconds since 1970. */
  readonly timestamp: number;
  readonly headers: ReadonlyMap<string, Key | null>;
  /** True behind the end of its key, or before task time. */
  readonly late: boolean;
}

/** A timer that is due. */
export interface Timer {
  readonly key: Key;
  readonly due: number;
  readonly name: Key;
}

/** A result: a record for a topic, or a message for a queue. `value` is JSON, or bytes as they are. */
export interface Emit {
  topic?: string;
  queue?: string;
  value: unknown;
  key?: Key | null;
  headers?: { [name: string]: string };
  /** Priority in a queue. */
  priority?: number;
}

/** Thrown by a handler: another attempt at the record is of no use. */
export class Reject extends Error {
  override name = "Reject";
}

/** A refusal of the broker. `code` is stable, `details` has the other fields. */
export class Refused extends Error {
  override name = "Refused";
  readonly code: string;

  constructor(
    readonly status: number,
    readonly details: { [name: string]: any },
  ) {
    super(`${details["code"] ?? ""}: ${details["detail"] ?? status}`);
    this.code = details["code"] ?? "";
  }
}

/** Returns a text that is the same for the same key only. */
export function keyId(key: Key): string {
  return typeof key === "string" ? `t${key}` : `b${toBase64(key)}`;
}

export function showKey(key: Key): unknown {
  return typeof key === "string" ? key : { base64: toBase64(key) };
}

export function readKey(shown: any): Key {
  return typeof shown === "string" ? shown : fromBase64(shown.base64);
}

/** Reads a value that stands as `value` or `value_base64`. */
export function readValue(shown: any): any {
  return shown.value_base64 === undefined ? (shown.value ?? null) : fromBase64(shown.value_base64);
}

export function showEmit(emit: Emit): { [name: string]: unknown } {
  const { topic, queue, value, key, headers, priority } = emit;
  if ((topic === undefined) === (queue === undefined)) throw new TypeError("a result names a topic or a queue");
  const shown: { [name: string]: unknown } = topic === undefined ? { queue } : { topic };
  if (key !== undefined && key !== null) shown["key"] = showKey(key);
  if (headers && Object.keys(headers).length > 0) shown["headers"] = headers;
  if (priority !== undefined) shown["priority"] = priority;
  if (value instanceof Uint8Array) shown["value_base64"] = toBase64(value);
  else shown["value"] = value ?? null;
  return shown;
}

export function readRecord(topic: string, partition: number, shown: any): Record {
  const headers = new Map<string, Key | null>();
  for (const [name, value] of Object.entries(shown.headers)) headers.set(name, value === null ? null : readKey(value));
  return {
    topic,
    partition,
    offset: shown.offset,
    key: shown.key === null ? null : readKey(shown.key),
    value: readValue(shown),
    timestamp: shown.timestamp,
    headers,
    late: shown.late,
  };
}

function toBase64(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}

function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
}
