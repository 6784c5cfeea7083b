// One WebSocket per tab, on which the broker pushes the states that the page shows.
//
// A state is the answer of its route, so it goes into the cache under the path by which it would be fetched. Where the
// socket is not open, queries poll instead. A hidden tab and a paused page watch nothing.
import { useSyncExternalStore } from 'react';
import { setOnline } from './reach';

type OnState = (state: unknown) => void;

interface Watch {
  path: string;
  everyMs: number;
  onState: OnState;
  /** Number that the broker gave. */
  number?: number;
}

const RETRY_MS = [500, 1000, 2000, 4000, 8000, 15000];

let socket: WebSocket | undefined;
let retries = 0;
let retryTimer: ReturnType<typeof setTimeout> | undefined;
let paused = false;
let lastId = 0;
const watches = new Set<Watch>();
const asked = new Map<number, Watch>();
const listeners = new Set<() => void>();

const isOpen = (): boolean => socket?.readyState === WebSocket.OPEN;
const isWanted = (): boolean => watches.size > 0 && !paused && !document.hidden;
const tell = (): void => listeners.forEach((listener) => listener());

function open(): void {
  if (socket || !isWanted()) return;
  clearTimeout(retryTimer);
  const scheme = location.protocol === 'https:' ? 'wss' : 'ws';
  let didOpen = false;
  const opened = new WebSocket(`${scheme}://${location.host}/v1/ws`, 'stafett.v1.json');
  socket = opened;
  opened.onopen = () => {
    retries = 0;
    didOpen = true;
    setOnline(true);
    for (const watch of watches) begin(watch);
    tell();
  };
  opened.onmessage = (event) => take(JSON.parse(String(event.data)));
  opened.onclose = () => {
    if (socket !== opened) return;
    socket = undefined;
    asked.clear();
    for (const watch of watches) watch.number = undefined;
    tell();
    if (!isWanted()) return;
    // Whether the broker is gone, or only its socket.
    if (didOpen) void fetch('/health', { cache: 'no-store' }).then(() => setOnline(true), () => setOnline(false));
    const wait = RETRY_MS[Math.min(retries, RETRY_MS.length - 1)] ?? 15000;
    retries += 1;
    retryTimer = setTimeout(open, wait * (0.75 + Math.random() / 2));
  };
}

function begin(watch: Watch): void {
  if (!isOpen()) return;
  const [path = '', query = ''] = watch.path.replace(/^\/v1\//, '').split('?');
  lastId += 1;
  asked.set(lastId, watch);
  socket?.send(
    JSON.stringify({ id: lastId, op: 'watch', what: [{ list: path, query }], every_ms: watch.everyMs }),
  );
}

interface Pushed {
  id?: number;
  ok?: { watch?: number };
  watch?: number;
  items?: unknown[];
}

function take(message: Pushed): void {
  if (message.items) {
    for (const watch of watches) if (watch.number === message.watch) watch.onState(message.items[0]);
    return;
  }
  if (message.id === undefined) return;
  const watch = asked.get(message.id);
  asked.delete(message.id);
  if (message.ok?.watch === undefined) return;
  if (watch && watches.has(watch)) watch.number = message.ok.watch;
  else end(message.ok.watch);
}

const end = (number: number): void => {
  if (isOpen()) socket?.send(JSON.stringify({ op: 'unwatch', watch: number }));
};

/** Watches a path below `/v1`; returns the end of the watch. */
export function watch(path: string, everyMs: number, onState: OnState): () => void {
  const begun: Watch = { path, everyMs, onState };
  watches.add(begun);
  if (isOpen()) begin(begun);
  else if (!retryTimer || retries === 0) open();
  return () => {
    watches.delete(begun);
    if (begun.number !== undefined) end(begun.number);
  };
}

/** Begins all watches anew: states that are on their way may be older than a change whose answer is there. */
export function renew(): void {
  asked.clear();
  for (const each of watches) {
    if (each.number !== undefined) end(each.number);
    each.number = undefined;
    begin(each);
  }
}

function settle(): void {
  if (isWanted()) {
    retries = 0;
    open();
  } else if (socket && watches.size > 0) {
    const closing = socket;
    socket = undefined;
    for (const each of watches) each.number = undefined;
    closing.close();
    tell();
  }
}

document.addEventListener('visibilitychange', settle);

/** Opens the socket anew, for another caller. */
export function reconnect(): void {
  const closing = socket;
  socket = undefined;
  asked.clear();
  for (const each of watches) each.number = undefined;
  closing?.close();
  retries = 0;
  clearTimeout(retryTimer);
  open();
  tell();
}

export function setPaused(value: boolean): void {
  paused = value;
  settle();
  tell();
}

const subscribe = (listener: () => void): (() => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export const usePaused = (): boolean => useSyncExternalStore(subscribe, () => paused);
export const useSocketOpen = (): boolean => useSyncExternalStore(subscribe, isOpen);
