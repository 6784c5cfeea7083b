// Definitions as RabbitMQ exports them, read as those of this broker.
import type { AccessRule } from '../../api/types';
import { rulesOf } from '../access/rule';
import type { Fields, Item } from './document';

export interface Read {
  items: Item[];
  /** Entries and arguments that have no meaning here. */
  left: string[];
}

export const isRabbit = (file: Fields): boolean => 'rabbit_version' in file || 'rabbitmq_version' in file;

const ARGUMENTS: Record<string, string> = {
  'x-message-ttl': 'ttl_ms',
  'x-expires': 'expires_ms',
  'x-max-length': 'length_max',
  'x-max-length-bytes': 'bytes_max',
  'x-max-priority': 'priority_max',
  'x-delivery-limit': 'delivery_limit',
  'x-single-active-consumer': 'single_active_consumer',
};
const OVERFLOW: Record<string, string> = { 'drop-head': 'drop-head', 'reject-publish': 'reject', 'reject-publish-dlx': 'reject-dead-letter' };
const EXCHANGES: Record<string, string> = { direct: 'direct', fanout: 'fan-out', topic: 'topic', headers: 'headers', 'x-consistent-hash': 'hash' };
/** Arguments of which the meaning is that of every queue here. */
const NO_MATTER = ['x-queue-mode', 'x-queue-version', 'x-queue-master-locator'];
const LEFT = ['policies', 'operator_policies', 'parameters', 'topic_permissions', 'vhost_limits'];

type Entry = Fields & { name?: string; vhost?: string; arguments?: Fields };

export function readRabbit(file: Fields): Read {
  const left: string[] = [];
  const entries = (kind: string) => (Array.isArray(file[kind]) ? (file[kind] as Entry[]) : []);
  const items: Item[] = [
    ...entries('vhosts').map(({ name }): Item => ({ kind: 'namespaces', fields: { name: String(name) } })),
    ...entries('exchanges').flatMap((entry) => exchange(entry, left)),
    ...entries('queues').flatMap((entry) => queue(entry, left)),
    ...entries('bindings').map(binding),
    ...entries('users').flatMap(user),
    ...entries('permissions').flatMap(permission),
  ];
  for (const kind of LEFT) if (entries(kind).length > 0) left.push(`${entries(kind).length} of ${kind.replaceAll('_', ' ')}`);
  return { items, left };
}

const placeOf = ({ vhost, name }: Entry) => ({ namespace: vhost ?? '/', name: String(name) });

function queue(entry: Entry, left: string[]): Item[] {
  const settings: Fields = { durable: entry.durable ?? true, auto_delete: entry.auto_delete ?? false };
  const type = entry.arguments?.['x-queue-type'] ?? entry.type;
  if (type === 'stream') {
    left.push(`stream ${entry.name}: make a topic for it`);
    return [];
  }
  const letter: Fields = {};
  for (const [name, value] of Object.entries(entry.arguments ?? {})) {
    const known = ARGUMENTS[name];
    if (known) settings[known] = value;
    else if (name === 'x-overflow' && OVERFLOW[String(value)]) settings.overflow = OVERFLOW[String(value)];
    else if (name === 'x-dead-letter-exchange') letter.exchange = value;
    else if (name === 'x-dead-letter-routing-key') letter.routing_key = value;
    else if (name !== 'x-queue-type' && !NO_MATTER.includes(name)) left.push(`${name} of queue ${entry.name}`);
  }
  if ('exchange' in letter) settings.dead_letter = letter;
  return [{ kind: 'queues', fields: { ...placeOf(entry), ...settings } }];
}

function exchange(entry: Entry, left: string[]): Item[] {
  const { type, arguments: given = {} } = entry;
  const delays = type === 'x-delayed-message';
  const kind = EXCHANGES[String(delays ? given['x-delayed-type'] : type)];
  if (kind === undefined) {
    left.push(`exchange ${entry.name} of the kind ${String(type)}`);
    return [];
  }
  const settings: Fields = { kind, durable: entry.durable ?? true, auto_delete: entry.auto_delete ?? false, internal: entry.internal ?? false };
  if (delays) settings.delays = true;
  for (const [name, value] of Object.entries(given)) {
    if (name === 'alternate-exchange') settings.alternate = value;
    else if (name === 'hash-header') settings.hash_on = value;
    else if (name !== 'x-delayed-type') left.push(`${name} of exchange ${entry.name}`);
  }
  return [{ kind: 'exchanges', fields: { ...placeOf(entry), ...settings } }];
}

function binding(entry: Entry): Item {
  const to = entry.destination_type === 'exchange' ? { exchange: entry.destination } : { queue: entry.destination };
  const settings: Fields = { source: entry.source, to };
  if (entry.routing_key) settings.key = entry.routing_key;
  const { 'x-match': match, ...headers } = entry.arguments ?? {};
  if (Object.keys(headers).length > 0) Object.assign(settings, { headers, match: match === 'any' ? 'any' : 'all' });
  return { kind: 'bindings', fields: { namespace: entry.vhost ?? '/', ...settings } };
}

function user(entry: Entry): Item[] {
  if (entry.name === 'guest') return [];
  const tags = Array.isArray(entry.tags) ? entry.tags : String(entry.tags ?? '').split(',').filter(Boolean);
  const hash = String(entry.hashing_algorithm ?? '').endsWith('sha512') ? 'sha512' : 'sha256';
  const verifiers = entry.password_hash ? { salted_hash: { hash, bytes: entry.password_hash } } : undefined;
  return [{ kind: 'users', fields: { name: String(entry.name), tags, verifiers } }];
}

function permission(entry: Entry): Item[] {
  const name = String(entry.user);
  if (name === 'guest') return [];
  const text = (value: unknown) => String(value ?? '');
  const rules: AccessRule[] = rulesOf(`user:${name}`, entry.vhost ?? '/', { configure: text(entry.configure), write: text(entry.write), read: text(entry.read) });
  return rules.map((rule) => ({ kind: 'rules', fields: { ...rule } }));
}
