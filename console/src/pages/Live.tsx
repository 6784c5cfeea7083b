// Live topics: their clients and subscriptions, and a try-out that publishes and listens over /live.
import { useEffect, useRef, useState } from 'react';
import { api } from '../api/http';
import { useLive } from '../api/live';
import type { LiveClientPage, LiveStatus, LiveTopicPage } from '../api/types';
import { firstLine } from '../ui/Content';
import { Course } from '../ui/Course';
import { count, counted, rate, short, time, visible } from '../ui/format';
import { Commands, Failure, Field, Figures, Head } from '../ui/parts';
import { go, Link, useParam } from '../ui/route';
import { liveClientAt, liveTopicAt } from './LiveClient';
import { contentOf } from './queues/Send';

const KEPT = 500;
const SHOWN = 100;

export function Live() {
  const totals = useLive<LiveStatus>('/v1/live', 3000);
  const topics = useLive<LiveTopicPage>(api('live/topics', { count: SHOWN }), 3000);
  const clients = useLive<LiveClientPage>(api('live/clients', { count: SHOWN }), 3000);
  const data = totals.data;
  const rows = topics.data?.items ?? [];
  return (
    <>
      <Head title="Live topics" />
      <Failure error={totals.error ?? topics.error} />
      {data && (
        <Figures
          of={[
            { name: 'Clients listening', value: count(data.listening), more: `of ${count(data.clients)}` },
            { name: 'Topics', value: count(data.topics) },
            { name: 'Subscriptions', value: count(data.subscriptions) },
            { name: 'Patterns', value: count(data.patterns) },
            { name: 'Published', value: short(data.counters.published), exact: count(data.counters.published), more: 'since the start' },
            { name: 'Delivered', value: short(data.counters.delivered), exact: count(data.counters.delivered), more: 'since the start' },
            { name: 'Dropped', value: short(data.counters.dropped), exact: count(data.counters.dropped), more: 'clients were too slow' },
            { name: 'Duplicates', value: short(data.counters.duplicates), exact: count(data.counters.duplicates), more: 'not delivered again' },
          ]}
        />
      )}
      {data && (
        <Course
          title="Messages per second"
          format={rate}
          stamp={totals.dataUpdatedAt}
          of={[
            { name: 'published', label: 'Published', value: data.counters.published, grows: true },
            { name: 'delivered', label: 'Delivered', value: data.counters.delivered, grows: true },
            { name: 'dropped', label: 'Dropped', value: data.counters.dropped, grows: true },
          ]}
        />
      )}
      <Find />
      <Try />
      <div className="grid">
        <section className="card">
          <header>
            <h2>Topics with subscribers</h2>
          </header>
          {rows.length === 0 ? (
            <p className="quiet">None. A live topic is there as long as it has a subscriber; it needs no making, and keeps nothing.</p>
          ) : (
            <ul className="bars">
              {rows.map(({ name, subscribers }) => (
                <li key={name}>
                  <Link className="name" href={liveTopicAt(name)}>
                    {visible(name)}
                  </Link>
                  <span className="num">{count(subscribers)}</span>
                </li>
              ))}
            </ul>
          )}
          {topics.data?.next && <p className="quiet">The first {count(rows.length)} are shown.</p>}
        </section>
        <section className="card">
          <header>
            <h2>Clients</h2>
          </header>
          {clients.data?.items.length === 0 && <p className="quiet">None.</p>}
          <ul className="bars">
            {clients.data?.items.map((client) => (
              <li key={`${client.number} ${client.client}`}>
                <span>
                  <Link className="name" href={liveClientAt(client)}>
                    {visible(client.client)}
                  </Link>{' '}
                  {client.listening && <span className="quiet small">listening</span>}
                </span>
                <span className="num">{counted(client.subscriptions, 'subscription')}</span>
              </li>
            ))}
          </ul>
          {clients.data?.next && <p className="quiet">The first {count(clients.data.items.length)} are shown.</p>}
        </section>
      </div>
      <section className="card">
        <header>
          <h2>From a program</h2>
        </header>
        <Commands text={`curl -N '${location.origin}/live/events?client_id=me&topic=news'\ncurl ${location.origin}/live/publish -H 'Content-Type: application/json' -d '{"topic": "news", "payload": {"text": "hello"}}'`} />
      </section>
    </>
  );
}

/** To a topic, or a client, by its exact name. */
function Find() {
  const [text, setText] = useState('');
  return (
    <form
      className="tools"
      onSubmit={(event) => {
        event.preventDefault();
        if (text !== '') go(liveTopicAt(text));
      }}
    >
      <input type="search" data-search value={text} onChange={(event) => setText(event.target.value)} aria-label="Name of a topic or a client" placeholder="Name of a topic or a client" spellCheck={false} />
      <button type="submit">Show the topic</button>
      <button type="button" disabled={text === ''} onClick={() => go(liveClientAt({ client: text, number: false }))}>
        Show the client
      </button>
    </form>
  );
}

interface Line {
  id: number;
  at: string;
  kind: string;
  text: string;
}

function Try() {
  const [topic = 'news', setTopic] = useParam('topic');
  const [payload, setPayload] = useState('{"text": "hello"}');
  const [isPattern, setPattern] = useState(false);
  const [lines, setLines] = useState<Line[]>([]);
  const [subscribed, setSubscribed] = useState<string[]>([]);
  const socket = useRef<WebSocket>(undefined);
  const client = useRef(`console-${crypto.getRandomValues(new Uint32Array(1))[0]}`);
  const last = useRef(0);
  const add = (kind: string, text: string) => {
    last.current += 1;
    const line = { id: last.current, at: new Date().toISOString(), kind, text };
    setLines((before) => [line, ...before].slice(0, KEPT));
  };
  useEffect(() => () => socket.current?.close(), []);
  const send = (command: object) => {
    const text = JSON.stringify({ client_id: client.current, ...command });
    const open = socket.current;
    if (open && open.readyState <= WebSocket.OPEN) {
      if (open.readyState === WebSocket.OPEN) open.send(text);
      else open.addEventListener('open', () => open.send(text));
      return;
    }
    const made = new WebSocket(`${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}/live`, 'stafett.live.json');
    socket.current = made;
    made.onopen = () => {
      made.send(JSON.stringify({ client_id: client.current, command: 'listen' }));
      made.send(text);
    };
    made.onclose = () => {
      setSubscribed([]);
      add('ended', 'The connection ended; its subscriptions stay until they are forgotten.');
    };
    made.onmessage = (event) => {
      const message = JSON.parse(String(event.data)) as { key?: string; broadcast?: unknown; error?: string; info?: string; notice?: string; receivers?: number };
      if (message.key !== undefined) add(message.key, firstLine({ value: message.broadcast }));
      else if (message.error) add('refused', message.info ?? message.error);
      else if (message.notice) add('notice', message.notice);
      else if (message.receivers !== undefined) add('published', `${count(message.receivers)} received it`);
    };
  };
  return (
    <section className="card" aria-label="Try live topics">
      <header>
        <h2>Try it</h2>
        <span className="quiet small">This page is the client {client.current}.</span>
      </header>
      <div className="form two">
        <Field label={isPattern ? 'Pattern' : 'Topic'}>
          <input value={topic} onChange={(event) => setTopic(event.target.value)} spellCheck={false} />
        </Field>
        <Field label="Payload">
          <input value={payload} onChange={(event) => setPayload(event.target.value)} spellCheck={false} className="mono" />
        </Field>
        <div className="row wide">
          <button
            type="button"
            className="main"
            onClick={() => {
              send({ command: 'subscribe', [isPattern ? 'pattern' : 'topic']: topic });
              setSubscribed((before) => [...new Set([...before, topic])]);
            }}
          >
            Subscribe
          </button>
          <button type="button" disabled={isPattern} onClick={() => send({ command: 'publish', topic, payload: contentOf(payload), ack: true })}>
            Publish
          </button>
          {subscribed.length > 0 && (
            <button
              type="button"
              onClick={() => {
                send({ command: 'unsubscribe', all: true });
                setSubscribed([]);
              }}
            >
              Forget all
            </button>
          )}
          <label className="check">
            <input type="checkbox" checked={isPattern} onChange={(event) => setPattern(event.target.checked)} /> A pattern with * and ?
          </label>
        </div>
      </div>
      <p className="quiet small">{subscribed.length > 0 && `Subscribed to ${subscribed.map(visible).join(', ')}.`}</p>
      {lines.length > 0 && (
        <div className="log short" role="log" aria-label="What came" tabIndex={0}>
          {lines.map((line) => (
            <p key={line.id}>
              <span className="quiet">{time(line.at)}</span> <b>{visible(line.kind)}</b> {line.text}
            </p>
          ))}
        </div>
      )}
    </section>
  );
}
