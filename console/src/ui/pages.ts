// The pages, their addresses and their keys.
import { to } from './route';

export interface PageEntry {
  name: string;
  path: string;
  /** Behind `g`. */
  key: string;
  /** Name of a total in the overview. */
  total?: 'topics' | 'groups' | 'queues' | 'connections' | 'live_topics' | 'consumers';
  gap?: boolean;
}

export const PAGES: PageEntry[] = [
  { name: 'Overview', path: '', key: 'o' },
  { name: 'Topics', path: 'topics', key: 't', total: 'topics', gap: true },
  { name: 'Groups', path: 'groups', key: 'g', total: 'groups' },
  { name: 'Queues', path: 'queues', key: 'q', total: 'queues', gap: true },
  { name: 'Exchanges', path: 'exchanges', key: 'x' },
  { name: 'Clients', path: 'clients', key: 'i' },
  { name: 'Apps', path: 'apps', key: 'a', gap: true },
  { name: 'Sinks', path: 'sinks', key: 'w' },
  { name: 'Live topics', path: 'live', key: 'l', total: 'live_topics' },
  { name: 'Connections', path: 'connections', key: 'c', total: 'connections', gap: true },
  { name: 'Consumers', path: 'consumers', key: 'u', total: 'consumers' },
  { name: 'Node', path: 'node', key: 'n', gap: true },
  { name: 'Journal', path: 'journal', key: 'j' },
  { name: 'Events', path: 'events', key: 'e' },
  { name: 'Log', path: 'log', key: 'd' },
  { name: 'Users and rules', path: 'users', key: 'r', gap: true },
  { name: 'Quotas and limits', path: 'quotas', key: 'k' },
  { name: 'Policies', path: 'policies', key: 'y' },
  { name: 'Audit', path: 'audit', key: 's' },
  { name: 'Namespaces', path: 'namespaces', key: 'm' },
  { name: 'Definitions', path: 'definitions', key: 'f' },
  { name: 'API', path: 'api', key: 'h' },
];

export const address = (page: PageEntry): string => to(page.path ? [page.path] : []);
export const queueAt = (namespace: string, name: string, query?: Record<string, string | undefined>): string =>
  to(['queues', namespace, name], query);
export const exchangeAt = (namespace: string, name: string): string => to(['exchanges', namespace, name === '' ? '(default)' : name]);

/** Page of a thing; undefined if its kind has none. */
export function pageOf(kind: string | null | undefined, name: string, namespace?: string | null): string | undefined {
  if (kind === 'queue') return queueAt(namespace ?? '/', name);
  if (kind === 'exchange') return exchangeAt(namespace ?? '/', name);
  if (kind === 'namespace') return to(['queues'], { namespace: name });
  return ['topic', 'group', 'app', 'sink', 'user'].includes(kind ?? '') ? to([`${kind}s`, name]) : undefined;
}
