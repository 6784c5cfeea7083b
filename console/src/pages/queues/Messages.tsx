// Messages of a queue, looked at without any effect.
import { useRef, useState } from 'react';
import { useOnce } from '../../api/live';
import { seg } from '../../api/http';
import type { Message, Messages as Found, MessageCount, Moved, Queue, QueueDetails } from '../../api/types';
import { Action, curl } from '../../ui/Action';
import { CompareTwo, type Side } from '../../ui/CompareTwo';
import { firstLine } from '../../ui/Content';
import { Export } from '../../ui/Export';
import { bytes, count, counted, short, time, visible } from '../../ui/format';
import { Badge, Copy, Failure, save, Time } from '../../ui/parts';
import { setParams, useRoute } from '../../ui/route';
import { Scroll, Table, type Column } from '../../ui/Table';
import { Filters } from './Filters';
import { OneMessage } from './OneMessage';
import { queueUrl } from './Queues';

const KEYS = ['state', 'priority', 'sender', 'context', 'died_in', 'died_of', 'order'];

export function Messages({ queue }: { queue: QueueDetails }) {
  const { query } = useRoute();
  const chosen: Record<string, string | undefined> = Object.fromEntries(KEYS.map((key) => [key, query.get(key) ?? undefined]));
  const [header, value] = (query.get('header') ?? '').split('=', 2);
  if (header && value !== undefined) chosen[`header.${header}`] = value;
  const isInFlight = chosen.state === 'in_flight';
  const page = (after: string | null | undefined, of: number) => queueUrl(queue, '/messages', { count: of, ...chosen, after });
  const url = page(query.get('after'), 50);
  const found = useOnce<Found>(url);
  const opened = query.get('message') ?? undefined;
  const setOpened = (message: string | undefined) => setParams({ message });
  const [isCompared, setCompared] = useState(false);
  const [ticked, setTicked] = useState<Set<string>>(new Set());
  const messages = found.data?.messages ?? [];
  const origins = useOrigins(messages);
  const both = messages.filter(({ id }) => ticked.has(id));
  const waiting = both.filter(({ state }) => state === 'ready').map(({ id }) => id);
  const isChosen = [...KEYS.filter((key) => key !== 'order'), 'header'].some((key) => query.get(key));
  const tick = (id: string) => {
    const next = new Set(ticked);
    if (!next.delete(id)) next.add(id);
    setTicked(next);
  };
  const lines = () => messages.map((message) => `${JSON.stringify(message)}\n`).join('');
  return (
    <section aria-label="Messages that wait">
      <div className="chips above-list" role="group" aria-label="Which messages">
        {[undefined, 'in_flight'].map((state) => (
          <button
            key={state ?? 'ready'}
            type="button"
            className="chip"
            aria-pressed={(query.get('state') ?? undefined) === state}
            onClick={() => setParams({ state, after: undefined })}
          >
            {state ? `In flight (${short(queue.in_flight)})` : `Waiting (${short(queue.ready)})`}
          </button>
        ))}
      </div>
      <p className="quiet small lead">Looking has no effect: messages stay where they are, and their order and delivery counts do not change.</p>
      <Filters />
      <div className="tools">
        <button type="button" onClick={() => void found.refetch()}>
          Look again
        </button>
        {origins.length > 0 && <Back queue={queue} origins={origins} />}
        {waiting.length > 0 && <Discard key="discard" queue={queue} ids={waiting} after={() => setTicked(new Set())} />}
        {both.length === 2 && (
          <button type="button" onClick={() => setCompared(true)}>
            Compare
          </button>
        )}
        {both.length === 1 && <span className="quiet small">Tick another one to compare them.</span>}
        <Export
          label="Export"
          title={`Export messages of ${visible(queue.name)}`}
          file={`${queue.name.replace(/[^\w.-]+/g, '-')}.ndjson`}
          about={`All ${isInFlight ? `${counted(queue.in_flight, 'message')} in flight` : `${counted(queue.ready, 'message')} that wait`}${isChosen ? ', as far as they are chosen' : ''}.`}
          page={(after) => page(after, 1000)}
          items={({ messages: some }: Found) => some}
          disabled={messages.length === 0}
        />
        <button type="button" className="plain small" disabled={messages.length === 0} onClick={() => save('messages.ndjson', lines())}>
          Save these as NDJSON
        </button>
        <Copy label="As curl" text={curl({ method: 'GET', path: url })} />
      </div>
      <Failure error={found.error} />
      {found.data && messages.length === 0 && (
        <div className="empty">
          {isInFlight ? (
            <p>
              <strong>Nothing is in flight.</strong> A message is in flight from its hand-out until its consumer or lease settles it.
            </p>
          ) : queue.ready === 0 ? (
            <p>
              <strong>No message waits.</strong> Send one with the button above, or see the consumers: what is in flight is with them.
            </p>
          ) : (
            <p>Nothing matches among {counted(found.data.looked_at, 'message')} looked at.</p>
          )}
        </div>
      )}
      {messages.length > 0 && (
        <Scroll>
          <Table
            caption="Messages that wait"
            columns={columns(setOpened)}
            rows={messages}
            keyOf={({ id }) => id}
            ticks={{
              of: ({ id }) => <input type="checkbox" aria-label={`Choose message ${id}`} checked={ticked.has(id)} onChange={() => tick(id)} />,
            }}
          />
        </Scroll>
      )}
      {found.data && (
        <div className="foot">
          <span>
            {count(messages.length)} shown, {count(found.data.looked_at)} looked at, {count(queue.ready)} wait
          </span>
          <span className="row">
            {query.get('after') && (
              <button type="button" onClick={() => setParams({ after: undefined })}>
                From the front
              </button>
            )}
            {found.data.next && (
              <button type="button" onClick={() => setParams({ after: found.data?.next ?? undefined }, false)}>
                Go on
              </button>
            )}
          </span>
        </div>
      )}
      {isCompared && both[0] && both[1] && <CompareTwo one={side(both[0])} other={side(both[1])} onClose={() => setCompared(false)} />}
      {opened && <OneMessage queue={queue} id={opened} known={messages.find(({ id }) => id === opened)} onClose={() => setOpened(undefined)} />}
    </section>
  );
}

const side = (message: Message): Side => ({
  title: message.id,
  raw: { value: message.content, base64: message.content_base64 },
  fields: [
    ['State', message.state],
    ['Sent', message.sent_at ?? '–'],
    ['Priority', String(message.priority)],
    ['Sender', message.sender ?? '–'],
    ['Context', String(message.context ?? '–')],
    ['Exchange', message.exchange],
    ['Routing key', message.routing_key],
    ['Deliveries', String(message.delivery_count)],
    ['Died', message.deaths.map(({ queue, reason }) => `${reason} in ${queue}`).join('; ') || '–'],
    ...Object.entries(message.headers).map(([name, value]): [string, string] => [name, typeof value === 'string' ? value : JSON.stringify(value)]),
  ],
});

/** The consumer or lease that has a message in flight. */
function Holder({ of: { holder } }: { of: Message }) {
  if (!holder) return null;
  const text = 'consumer' in holder ? `with consumer ${holder.consumer}` : 'lease_until' in holder ? `leased until ${time(holder.lease_until)}` : `with a ${holder.by}`;
  return <Badge>{text}</Badge>;
}

/** Queues in which messages died; those that were seen stay, so that a dialog outlives its messages. */
function useOrigins(messages: Message[]): string[] {
  const seen = useRef(new Set<string>());
  for (const { deaths } of messages) if (deaths[0]?.queue) seen.current.add(deaths[0].queue);
  return [...seen.current];
}

const columns = (onOpen: (id: string) => void): Column<Message>[] => [
  {
    head: 'Content',
    cell: (message) => (
      <>
        <button type="button" className="link line mono" onClick={() => onOpen(message.id)}>
          {firstLine({ value: message.content, base64: message.content_base64 })}
        </button>
        <Holder of={message} /> {message.redelivered && <Badge>delivered {counted(message.delivery_count, 'time')}</Badge>} <Death of={message} />
      </>
    ),
  },
  { head: 'Sent', cell: ({ sent_at: at }) => <Time at={at} /> },
  { head: 'Priority', cell: ({ priority }) => count(priority) },
  { head: 'From', cell: ({ sender, exchange, routing_key: key }) => visible(sender ?? (exchange ? `${exchange} ${key}` : '–')) },
  { head: 'Bytes', num: true, phone: 'less', cell: ({ bytes: n }) => bytes(n) },
];

const Death = ({ of: { deaths } }: { of: Message }) => (deaths[0] ? <Badge kind="note">{`${deaths[0].reason} in ${visible(deaths[0].queue)}`}</Badge> : null);

const ORIGIN = '';

/** Dead letters go back: each to its exchange with its routing key, or all to one queue. */
function Back({ queue, origins }: { queue: Queue; origins: string[] }) {
  const [target, setTarget] = useState(ORIGIN);
  const toText = target === ORIGIN ? 'where they came from' : visible(target);
  return (
    <Action<Moved>
      disabled={queue.ready === 0}
      label="Send dead letters back"
      title="Send dead letters back"
      confirm="Send back"
      call={() => ({ method: 'POST', path: queueUrl(queue, '/move', { wait: '0' }), body: { json: { to: target === ORIGIN ? 'origin' : { queue: target } } } })}
      result={({ messages, stopped }) => `${counted(messages, 'message')} went back to ${toText}.${stopped ? ` Stopped: ${stopped}` : ''}`}
    >
      <p>
        {target === ORIGIN ? 'Each dead letter that waits here goes to the exchange and with the routing key of its first death. ' : `All messages of this queue (${count(queue.ready)}) move to ${visible(target)}. `}
        The reason of their death may still be there: look at a message for it.
      </p>
      <label className="field">
        <span>Back to</span>
        <select value={target} onChange={(event) => setTarget(event.target.value)} autoFocus data-focus>
          <option value={ORIGIN}>where each was published to</option>
          {origins.map((origin) => (
            <option key={origin} value={origin}>{`the queue ${visible(origin)}`}</option>
          ))}
        </select>
      </label>
    </Action>
  );
}

export function Discard({ queue, ids, after }: { queue: Queue; ids: string[]; after?: () => void }) {
  const [isLetter, setLetter] = useState(queue.dead_letter !== null);
  const n = counted(ids.length, 'message');
  return (
    <Action<MessageCount>
      label={`Discard ${n}`}
      destroys
      title={`Discard ${n}`}
      confirm={`Discard ${n}`}
      call={() => ({ method: 'POST', path: queueUrl(queue, '/discard'), body: { json: { ids, dead_letter: isLetter } } })}
      result={({ messages }) => `${count(messages)} discarded.`}
      after={after}
    >
      <p>{n} of this queue go. This cannot be taken back.</p>
      {queue.dead_letter !== null && (
        <label className="check">
          <input type="checkbox" checked={isLetter} onChange={(event) => setLetter(event.target.checked)} /> As dead letters, not dropped
        </label>
      )}
    </Action>
  );
}

export const messageUrl = (queue: Queue, id: string): string => queueUrl(queue, `/messages/${seg(id)}`);
