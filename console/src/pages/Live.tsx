// Live topics: their clients and subscriptions, and a try-out that publishes and listens over /live.
import { useQuery } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import { get } from '../api/http';
import { usePaused } from '../api/watch';
import { firstLine } from '../ui/Content';
import { count, time, visible } from '../ui/format';
import { Commands, Failure, Field, Figures, Head } from '../ui/parts';
import { useParam } from '../ui/route';
import { contentOf } from './queues/Send';

interface Presence {
  listening: number;
  topics: number | { topic: string; subscribers: number }[];
  subscriptions: number;
  patterns: number;
  clients: { client_id: string | number; listening: boolean; subscriptions: number }[];
  next: unknown;
}

const KEPT = 500;

export function Live() {
  const refetchInterval = usePaused() ? false : 3000;
  const totals = useQuery({ queryKey: ['live'], queryFn: ({ signal }) => get<Presence>('/live/presence?count=200', signal), refetchInterval });
  const topics = useQuery({ queryKey: ['live topics'], queryFn: ({ signal }) => get<Presence>('/live/presence?of=topics&count=200', signal), refetchInterval });
  const data = totals.data;
  const rows = Array.isArray(topics.data?.topics) ? topics.data.topics : [];
  return (
    <>
      <Head title="Live topics" />
      <Failure error={totals.error ?? topics.error} />
      {data && (
        <Figures
          of={[
            { name: 'Clients listening', value: count(data.listening) },
            { name: 'Topics', value: count(data.topics as number) },
            { name: 'Subscriptions', value: count(data.subscriptions) },
            { name: 'Patterns', value: count(data.patterns) },
          ]}
        />
      )}
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
              {rows.map(({ topic, subscribers }) => (
                <li key={topic}>
                  <span className="name">{visible(topic)}</span>
                  <span className="num">{count(subscribers)}</span>
                </li>
              ))}
            </ul>
          )}
          {Boolean(topics.data?.next) && <p className="quiet">The first {count(rows.length)} are shown.</p>}
        </section>
        <section className="card">
          <header>
            <h2>Clients</h2>
          </header>
          {data?.clients.length === 0 && <p className="quiet">None.</p>}
          <ul className="bars">
            {data?.clients.map((client) => (
              <li key={String(client.client_id)}>
                <span className="name">
                  {visible(String(client.client_id))} {client.listening && <span className="quiet small">listening</span>}
                </span>
                <span className="num">{count(client.subscriptions)}</span>
              </li>
            ))}
          </ul>
          {Boolean(data?.next) && <p className="quiet">The first {count(data?.clients.length)} are shown.</p>}
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
