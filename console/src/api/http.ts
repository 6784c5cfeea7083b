// Requests of the API: paths, bodies, refusals.
import { setOnline, takeClock } from './reach';
import type { Problem } from './types';

/** A refusal of the broker. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly requestId: string | null,
  ) {
    super(detail);
  }
}

/** The broker did not answer. */
export class Unreachable extends Error {
  constructor() {
    super('The broker does not answer.');
  }
}

export type Query = Record<string, string | number | boolean | undefined | null>;

/** Path of a name, or of several. */
export const seg = (...names: (string | number)[]): string => names.map((name) => encodeURIComponent(name)).join('/');

/** Path below `/v1` with its query; absent and empty values are left out. */
export function api(path: string, query: Query = {}): string {
  const parts = Object.entries(query)
    .filter(([, value]) => value !== undefined && value !== null && value !== '')
    .map(([key, value]) => `${encodeURIComponent(key)}=${encodeURIComponent(String(value))}`);
  return `/v1/${path}${parts.length ? `?${parts.join('&')}` : ''}`;
}

export interface Body {
  json?: unknown;
  text?: string;
  type?: string;
}

export async function request<T>(method: string, path: string, body?: Body, signal?: AbortSignal): Promise<T> {
  const headers: Record<string, string> = { accept: 'application/json' };
  let content: string | undefined;
  if (body?.json !== undefined) {
    content = JSON.stringify(body.json);
    headers['content-type'] = 'application/json';
  } else if (body?.text !== undefined) {
    content = body.text;
    if (body.type) headers['content-type'] = body.type;
  }
  let response: Response;
  let text: string;
  try {
    response = await fetch(path, { method, headers, body: content, signal, cache: 'no-store' });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    setOnline(false);
    throw new Unreachable();
  }
  setOnline(true);
  takeClock(response.headers.get('date'));
  if (response.ok) return (text === '' ? undefined : JSON.parse(text)) as T;
  throw refusal(response.status, text, response.headers.get('stafett-request-id'));
}

function refusal(status: number, text: string, requestId: string | null): Refusal {
  try {
    const problem = JSON.parse(text) as Problem;
    return new Refusal(status, problem.code, problem.detail, requestId);
  } catch {
    return new Refusal(status, 'unknown', `The broker answered with ${status}.`, requestId);
  }
}

export const get = <T>(path: string, signal?: AbortSignal): Promise<T> => request<T>('GET', path, undefined, signal);

/** Returns a pushed state as its route answered it; throws a refusal. */
export function stateOf<T>(state: unknown): T {
  const problem = state as Partial<Problem> | null;
  if (problem && typeof problem.type === 'string' && problem.type.startsWith('/v1/problems/')) {
    throw new Refusal(problem.status ?? 500, problem.code ?? 'unknown', problem.detail ?? '', null);
  }
  return state as T;
}
