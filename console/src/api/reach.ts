// Whether the broker answers, and the difference between its clock and the browser's.
import { useSyncExternalStore } from 'react';

export interface Reach {
  /** Undefined until the first answer. */
  online?: boolean;
  /** Start of the loss, by the browser's clock. */
  since: number;
}

let reach: Reach = { since: 0 };
let skewMs = 0;
const listeners = new Set<() => void>();

export function setOnline(online: boolean): void {
  if (online === reach.online) return;
  reach = { online, since: Date.now() };
  for (const listener of listeners) listener();
}

export function onReach(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const reachNow = (): Reach => reach;
export const useReach = (): Reach => useSyncExternalStore(onReach, reachNow);

/** Takes the time of an answer; its header has whole seconds. */
export function takeClock(date: string | null): void {
  const at = date === null ? NaN : Date.parse(date);
  if (!Number.isNaN(at)) skewMs = Math.abs(at - Date.now()) < 1500 ? 0 : at - Date.now();
}

/** The time by the broker's clock. */
export const brokerNow = (): number => Date.now() + skewMs;
