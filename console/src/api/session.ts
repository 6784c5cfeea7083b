// The caller of the page's requests and its rights, and whether the broker wants a login first.
import { useQuery } from '@tanstack/react-query';
import { useSyncExternalStore } from 'react';
import { get, onUnauthenticated, request } from './http';
import type { Whoami } from './types';
import { isLab } from '../ui/route';
import { reconnect } from './watch';

export type Right = 'view' | 'operate' | 'administer';

let isWanted = false;
const listeners = new Set<() => void>();

function want(value: boolean): void {
  if (value === isWanted) return;
  isWanted = value;
  for (const listener of listeners) listener();
}

onUnauthenticated(() => want(true));

const subscribe = (listener: () => void): (() => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

/** True after a request was refused for want of a login. */
export const useLoginWanted = (): boolean => useSyncExternalStore(subscribe, () => isWanted);

/** Begins a session: the broker sets a cookie, which scripts cannot read. */
export async function logIn(user: string, password: string): Promise<void> {
  await request('POST', '/v1/login', { json: { user, password } });
  want(false);
  reconnect();
}

/** Ends the session, and with it the watches of this tab. */
export async function logOut(): Promise<void> {
  await request('POST', '/v1/logout');
  reconnect();
}

export const WHOAMI = '/v1/whoami';

/** The caller; undefined until it is known, and on the page of the lab, which has no users. */
export const useCaller = (): Whoami | undefined =>
  useQuery<Whoami>({ queryKey: [WHOAMI], queryFn: ({ signal }) => get<Whoami>(WHOAMI, signal), staleTime: 30_000, enabled: !isLab }).data;

/** Settings of the broker for its pages. */
export interface PageSettings {
  /** Actions are refused, whatever the rights are. */
  shows_only: boolean;
  prometheus_url: string | null;
  lab_url: string | null;
}

export const usePageSettings = (): PageSettings | undefined =>
  useQuery<PageSettings>({ queryKey: ['settings'], queryFn: ({ signal }) => get<PageSettings>('/console/settings.json', signal), staleTime: 60_000, enabled: !isLab }).data;

const WORDS: Record<Right, string> = {
  view: 'see everything (describe on the cluster)',
  operate: 'operate the node (operate on the cluster)',
  administer: 'administer users and rules (alter on the cluster)',
};

/** Why an action is not possible for this caller; undefined if it is, as far as is known. The broker has the last word. */
export function useMissing(right: Right | undefined): string | undefined {
  const caller = useCaller();
  if (usePageSettings()?.shows_only) return 'Pages of this broker only show (console.actions)';
  return right && caller && !caller.can.includes(right) ? `${caller.name} lacks the right to ${WORDS[right]}` : undefined;
}
