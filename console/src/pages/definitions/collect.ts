// All that is defined on the broker, in one form for export and comparison. Contents, positions and secrets are no part.
import { api, get, type Query } from '../../api/http';
import type { AccessRule, Binding, Client, Exchange, Namespace, Queue, TopicEntry, User } from '../../api/types';

export type Fields = Record<string, unknown>;

/** A thing that is defined: its place, and its settings by the names of the API. */
export interface Item {
  kind: Kind;
  namespace?: string;
  name: string;
  settings: Fields;
}

export const KINDS = ['namespaces', 'topics', 'exchanges', 'queues', 'bindings', 'clients', 'rules', 'users'] as const;
export type Kind = (typeof KINDS)[number];

const PAGE = 1000;

const QUEUE = ['auto_delete', 'bytes_max', 'dead_letter', 'delivery_limit', 'durability', 'durable', 'expires_ms', 'length_max', 'overflow', 'priority_max', 'retain', 'single_active_consumer', 'ttl_ms'];
const EXCHANGE = ['alternate', 'auto_delete', 'delays', 'durable', 'hash_on', 'internal', 'kind'];

/** Some fields of an object, without those that are null. */
const pick = (of: object, names: string[]): Fields => Object.fromEntries(names.flatMap((name) => ((of as Fields)[name] == null ? [] : [[name, (of as Fields)[name]]])));

async function each<T>(path: string, query: Query, take: (row: T) => void): Promise<void> {
  let after: string | null = null;
  do {
    const page: { items: T[]; next: string | null } = await get(api(path, { ...query, count: PAGE, after }));
    page.items.forEach(take);
    after = page.next;
  } while (after !== null);
}

const LISTS: Record<Kind, (add: (item: Omit<Item, 'kind'>) => void) => Promise<void>> = {
  namespaces: (add) => each<Namespace>('namespaces', {}, ({ name }) => add({ name, settings: {} })),
  topics: (add) =>
    each<TopicEntry>('topics', { kind: 'stored' }, (topic) => {
      const settings: Fields = { partitions: topic.partitions };
      if (topic.set.length > 0) settings.settings = pick(topic.settings ?? {}, topic.set);
      add({ name: topic.name, settings });
    }),
  exchanges: (add) =>
    each<Exchange>('exchanges', {}, (exchange) => {
      if (exchange.name !== '' && !exchange.name.startsWith('amq.')) add({ namespace: exchange.namespace, name: exchange.name, settings: pick(exchange, EXCHANGE) });
    }),
  queues: (add) =>
    each<Queue>('queues', {}, (queue) => {
      if (!queue.exclusive && !queue.personal) add({ namespace: queue.namespace, name: queue.name, settings: pick(queue, QUEUE) });
    }),
  bindings: (add) =>
    each<Binding>('bindings', {}, ({ namespace, source, to, key, key_base64: bytes, headers, match }) => {
      // A key that is no text cannot stand in a file of JSON.
      if (source === '' || bytes !== null) return;
      const settings: Fields = { source, to };
      if (key) settings.key = key;
      if (Object.keys(headers).length > 0) Object.assign(settings, { headers, match });
      add({ namespace, name: bindingName(settings), settings });
    }),
  clients: (add) => each<Client>('clients', {}, ({ name }) => add({ name, settings: {} })),
  users: (add) => each<User>('users', {}, ({ name, tags }) => add({ name, settings: { tags } })),
  rules: (add) => each<AccessRule>('rules', {}, (rule) => add({ name: rule.who, settings: { ...rule } })),
};

/** Bindings have no names: theirs is made of all that tells them apart. */
export const bindingName = ({ source, to, key, headers }: Fields): string =>
  `${String(source)} → ${Object.values(to as object).join('')}${key ? ` by ${String(key)}` : ''}${headers ? ` ${canonical(headers)}` : ''}`;

/** JSON with its fields in order. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (value === null || typeof value !== 'object') return JSON.stringify(value ?? null);
  const fields = Object.entries(value).filter(([, inner]) => inner != null);
  return `{${fields.sort(([one], [other]) => (one < other ? -1 : 1)).map(([name, inner]) => `${JSON.stringify(name)}:${canonical(inner)}`).join()}}`;
}

export interface Collected {
  items: Item[];
  /** Kinds that the caller may not list. */
  refused: { kind: Kind; why: string }[];
}

export async function collect(kinds: readonly Kind[], onCount: (count: number) => void): Promise<Collected> {
  const items: Item[] = [];
  const refused: Collected['refused'] = [];
  for (const kind of kinds) {
    const add = (item: Omit<Item, 'kind'>) => {
      items.push({ kind, ...item });
      if (items.length % PAGE === 0) onCount(items.length);
    };
    try {
      await LISTS[kind](add);
    } catch (error) {
      refused.push({ kind, why: error instanceof Error ? error.message : String(error) });
    }
    onCount(items.length);
  }
  return { items, refused };
}

export const FORM = 'stafett definitions 1';

/** The file of an export: lists by kind, in the order in which they are made. */
export function fileOf(items: Item[]): string {
  const lists = KINDS.map((kind) => [kind, items.filter((item) => item.kind === kind).map(({ namespace, name, settings }) => shown(kind, namespace, name, settings))]);
  return `${JSON.stringify({ form: FORM, ...Object.fromEntries(lists) }, null, 1)}\n`;
}

function shown(kind: Kind, namespace: string | undefined, name: string, settings: Fields): Fields {
  if (kind === 'rules') return settings;
  const place: Fields = namespace === undefined ? {} : { namespace };
  return kind === 'bindings' ? { ...place, ...settings } : { ...place, name, ...settings };
}

/** The items of a file of this form. */
export function itemsOf(file: Fields): Item[] {
  return KINDS.flatMap((kind) =>
    ((file[kind] ?? []) as Fields[]).map((entry): Item => {
      const { namespace, name, ...settings } = entry;
      if (kind === 'rules') return { kind, name: String(entry.who), settings: entry };
      const place = kind === 'queues' || kind === 'exchanges' || kind === 'bindings' ? { namespace: String(namespace ?? '/') } : {};
      return { kind, ...place, name: kind === 'bindings' ? bindingName(settings) : String(name), settings };
    }),
  );
}
