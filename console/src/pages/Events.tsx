import { useLive } from '../api/live';
import { api } from '../api/http';
import type { EventList, EventShown } from '../api/types';
import { age, time, visible } from '../ui/format';
import { pageOf } from '../ui/pages';
import { Badge, Failure, Head } from '../ui/parts';
import { Link, useParam } from '../ui/route';

const KINDS = ['queue', 'topic', 'exchange', 'binding', 'group', 'client', 'namespace', 'app', 'user', 'rule', 'token', 'connection', 'node', 'alarm', 'backup', 'scrub'];

export function Events() {
  const [kind, setKind] = useParam('kind');
  const { data, error } = useLive<EventList>(api('events', { count: 200, kind }), 2000);
  return (
    <>
      <Head title="Events" />
      <div className="tools">
        <div className="chips" role="group" aria-label="Kinds">
          {KINDS.map((name) => (
            <button key={name} type="button" className="chip" aria-pressed={kind === name} onClick={() => setKind(kind === name ? undefined : name)}>
              {name}
            </button>
          ))}
        </div>
      </div>
      <Failure error={error} />
      {data?.items.length === 0 && <div className="empty">No event of this kind since the start. The last 10,000 are kept, in memory; all are lines of the log.</div>}
      {data?.items.map((event) => <EventLine key={event.id} event={event} />)}
    </>
  );
}

export function EventLine({ event }: { event: EventShown }) {
  return (
    <p className="event">
      <time dateTime={event.at} title={`${event.at}, ${age(event.at)}`} className="quiet small">
        {time(event.at)}
      </time>
      <Badge kind={event.kind.startsWith('alarm') ? 'bad' : /deleted|purged|reset|truncated/.test(event.kind) ? 'note' : ''}>{event.kind}</Badge>
      <span>
        <On event={event} /> {visible(event.text)}{' '}
        {event.by && (
          <span className="quiet small">
            by {visible(event.by)}
            {event.from && ` from ${event.from}`}
          </span>
        )}
      </span>
    </p>
  );
}

const THINGS = ['queue', 'topic', 'group', 'exchange', 'client', 'app', 'user', 'setting', 'namespace'] as const;

function On({ event: { on, kind } }: { event: EventShown }) {
  const thing = THINGS.find((word) => on[word] != null && (word !== 'namespace' || kind.startsWith(word)));
  const name = (thing && on[thing]) ?? '';
  const address = kind.endsWith('deleted') ? undefined : pageOf(thing, name, on.namespace);
  return address ? <Link href={address}>{visible(name)}</Link> : <b>{visible(name)}</b>;
}
