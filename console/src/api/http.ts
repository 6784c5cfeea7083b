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
    /** The action that no rule permits, and the thing, as `kind:name`. */
    readonly needs?: string,
    readonly on?: string,
  ) {
    super(detail);
  }
}

let unauthenticated = (): void => undefined;

/** Sets the reaction when a request is refused for want of a login. */
export function onUnauthenticated(then: () => void): void {
  unauthenticated = then;
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
  const text = await requestText(method, path, body, signal);
  return (text === '' ? undefined : JSON.parse(text)) as T;
}

/** Returns the text of an answer, whose numbers are as the broker wrote them. */
export async function requestText(method: string, path: string, body?: Body, signal?: AbortSignal): Promise<string> {
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
  if (response.ok) return text;
  const refused = refusalOf(text === '' ? undefined : text, response.status, response.headers.get('stafett-request-id'));
  if (refused.code === 'unauthenticated' && path !== '/v1/login') unauthenticated();
  throw refused;
}

type Described = Partial<Problem> & { needs?: string; on?: string };

function refusalOf(text: string | undefined, status: number, requestId: string | null): Refusal {
  try {
    return problemOf(JSON.parse(text ?? '') as Described, status, requestId);
  } catch {
    return new Refusal(status, 'unknown', `The broker answered with ${status}.`, requestId);
  }
}

const problemOf = ({ code, detail, needs, on }: Described, status: number, requestId: string | null): Refusal =>
  new Refusal(status, code ?? 'unknown', detail ?? '', requestId, needs, on);

export const get = <T>(path: string, signal?: AbortSignal): Promise<T> => request<T>('GET', path, undefined, signal);

/** Returns a pushed state as its route answered it; throws a refusal. */
export function stateOf<T>(state: unknown): T {
  const problem = state as Described | null;
  if (problem && typeof problem.type === 'string' && problem.type.startsWith('/v1/problems/')) {
    throw problemOf(problem, problem.status ?? 500, null);
  }
  return state as T;
}
