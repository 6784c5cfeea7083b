import { useEffect, useState } from 'react';
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
  const [on, setOn] = useParam('on');
  const [by, setBy] = useParam('by');
  const { data, error } = useLive<EventList>(api('events', { count: 500, kind, on }), 2000);
  const shown = data?.items.filter((event) => !by || (event.by ?? '').includes(by));
  return (
    <>
      <Head title="Events" />
      <div className="tools">
        <Typed label="Name of the object" value={on} onChange={setOn} />
        <Typed label="By user" value={by} onChange={setBy} />
        <div className="chips" role="group" aria-label="Kinds">
          {KINDS.map((name) => (
            <button key={name} type="button" className="chip" aria-pressed={kind === name} onClick={() => setKind(kind === name ? undefined : name)}>
              {name}
            </button>
          ))}
        </div>
      </div>
      <Failure error={error} />
      {shown?.length === 0 && <div className="empty">No event of this kind since the start. The last 10,000 are kept, in memory; all are lines of the log.</div>}
      {shown?.map((event) => <EventLine key={event.id} event={event} />)}
    </>
  );
}

/** A text that counts once typing rests. */
function Typed({ label, value, onChange }: { label: string; value: string | undefined; onChange: (value: string | undefined) => void }) {
  const [text, setText] = useState(value ?? '');
  useEffect(() => {
    if (text === (value ?? '')) return undefined;
    const timer = setTimeout(() => onChange(text || undefined), 300);
    return () => clearTimeout(timer);
  }, [text, value, onChange]);
  return <input type="search" data-search value={text} aria-label={label} placeholder={label} spellCheck={false} onChange={(event) => setText(event.target.value)} />;
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
