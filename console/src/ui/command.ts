// A request as a command line of the broker's program, for those that have one.
import type { Call } from './Action';
import { quoted } from './parts';

type Json = Record<string, unknown>;
/** Arguments from the names in the path, the query and the body; undefined if the command cannot do the same. */
type Words = (names: string[], query: URLSearchParams, body: Json) => (string | undefined)[] | undefined;

const option = (name: string, value: unknown): string | undefined => (value == null || value === '' || value === false ? undefined : value === true ? `--${name}` : `--${name} ${quoted(String(value))}`);
const of =
  (command: string): Words =>
  (names, query) => [command, ...names.map(quoted), option('namespace', query.get('namespace'))];

const COMMANDS: [string, RegExp, Words][] = [
  ['POST', /^queues\/([^/]+)\/purge$/, of('queue purge')],
  ['DELETE', /^queues\/([^/]+)$/, of('queue delete')],
  [
    'POST',
    /^queues\/([^/]+)\/move$/,
    ([name = ''], query, { to, count, ids, query: choice }) => {
      const target = to === 'origin' ? '--to-origin' : option('to', (to as Json | undefined)?.queue);
      return target === undefined || ids !== undefined || choice !== undefined ? undefined : ['queue move', quoted(name), target, option('count', count), option('namespace', query.get('namespace'))];
    },
  ],
  [
    'PUT',
    /^queues\/([^/]+)$/,
    ([name = ''], query, body) => {
      const dead = body.dead_letter as { exchange?: string; routing_key?: string } | undefined;
      return [
        'queue create',
        quoted(name),
        option('priorities', body.priority_max),
        option('durability', body.durability),
        option('ttl', body.ttl_ms === undefined ? undefined : `${String(body.ttl_ms)}ms`),
        option('expires', body.expires_ms === undefined ? undefined : `${String(body.expires_ms)}ms`),
        option('length', body.length_max),
        option('bytes', body.bytes_max),
        option('overflow', body.overflow),
        option('delivery-limit', body.delivery_limit),
        option('retain', body.retain),
        option('single-active-consumer', body.single_active_consumer),
        option('over', (body.over as Json | undefined)?.topic),
        body.durable === false ? '--transient' : undefined,
        dead && (dead.exchange ? option('dead-letter-exchange', dead.exchange) : option('dead-letter-to', dead.routing_key)),
        option('namespace', query.get('namespace')),
      ];
    },
  ],
  ['DELETE', /^exchanges\/([^/]+)$/, of('exchange delete')],
  ['DELETE', /^bindings\/([^/]+)$/, of('binding delete')],
  ['PUT', /^clients\/([^/]+)$/, of('client register')],
  ['DELETE', /^clients\/([^/]+)$/, of('client delete')],
  ['DELETE', /^connections\/([^/]+)$/, of('connection close')],
  ['DELETE', /^consumers\/([^/]+)$/, of('consumer cancel')],
  ['PUT', /^namespaces\/([^/]+)$/, of('namespace create')],
  ['DELETE', /^namespaces\/([^/]+)$/, of('namespace delete')],
  ['DELETE', /^topics\/([^/]+)$/, of('topic delete')],
  ['DELETE', /^groups\/([^/]+)$/, of('group delete')],
  ['DELETE', /^policies\/([^/]+)$/, of('policy delete')],
  ['DELETE', /^users\/([^/]+)$/, of('user delete')],
  ['DELETE', /^tokens\/([^/]+)$/, of('token revoke')],
  ['DELETE', /^sinks\/([^/]+)$/, of('sink delete')],
  ['DELETE', /^apps\/([^/]+)$/, of('app delete')],
  ['POST', /^(?:apps|sinks)\/([^/]+)\/accept-gap$/, of('app accept-gap')],
  ['POST', /^node\/reload$/, of('node reload')],
  ['POST', /^journal\/scrub$/, of('journal scrub')],
  ['POST', /^journal\/backups$/, (_names, _query, { target }) => ['journal backup', quoted(String(target ?? ''))]],
  ['POST', /^cluster\/move$/, (_names, _query, { to, cell }) => ['cluster move', to == null ? undefined : String(to), option('cell', cell)]],
  [
    'POST',
    /^groups\/([^/]+)\/reset$/,
    ([name = ''], _query, { to, by, topic, dry_run: dry }) => ['group reset', quoted(name), option('topic', topic), option('to', to), option('by', by), option('dry-run', dry)],
  ],
];

const decoded = (part: string): string => {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
};

export function commandOf({ method, path, body }: Call): string | undefined {
  const url = new URL(path, location.origin);
  const below = url.pathname.replace(/^\/v1\//, '');
  for (const [verb, pattern, words] of COMMANDS) {
    const found = verb === method ? pattern.exec(below) : null;
    if (!found) continue;
    const line = words(found.slice(1).map(decoded), url.searchParams, (body?.json ?? {}) as Json);
    if (!line) return undefined;
    // The command is that of the thing in the path.
    const text = line.filter((word) => word !== undefined).join(' ');
    const http = location.host === '127.0.0.1:7070' || text.startsWith('topic') || text.startsWith('group') ? '' : ` --http ${quoted(location.protocol === 'https:' ? location.origin : location.host)}`;
    return `stafett ${below.startsWith('sinks/') ? text.replace(/^app /, 'sink ') : text}${http}`;
  }
  return undefined;
}
