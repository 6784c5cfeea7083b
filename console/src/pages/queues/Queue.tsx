import { useState } from 'react';
import { useLive, useRefresh } from '../../api/live';
import { request } from '../../api/http';
import type { MessageCount, Moved, QueueDetails as State } from '../../api/types';
import { Action } from '../../ui/Action';
import { Charts, Ranges, type Drawn, type Series } from '../../ui/Chart';
import { bytes, count, counted, duration, rate, short, visible } from '../../ui/format';
import { Badge, Durability, Facts, Failure, Field, Figures, Head, Meter, Tabs, useTab } from '../../ui/parts';
import { go, Link, to } from '../../ui/route';
import { Consumers } from '../Consumers';
import { Bindings } from '../exchanges/Bindings';
import { Lanes } from './Lanes';
import { Messages } from './Messages';
import { conditions, Marks, queueUrl } from './Queues';
import { Send } from './Send';
import { Settings } from './Settings';
import { Take } from './Take';

const WAITING: Series[] = [
  { name: 'ready', label: 'Ready' },
  { name: 'in_flight', label: 'In flight' },
];
const RATES: Series[] = [
  { name: 'published_rate', label: 'Published' },
  { name: 'delivered_rate', label: 'Delivered' },
  { name: 'completed_rate', label: 'Completed' },
];

const CHARTS: Drawn[] = [
  { title: 'Waiting', series: WAITING, format: short },
  { title: 'Messages per second', series: RATES, format: rate },
];

export function Queue({ namespace, name }: { namespace: string; name: string }) {
  const { data: queue, error } = useLive<State>(queueUrl({ namespace, name }));
  const tab = useTab('overview');
  if (!queue || error) {
    return (
      <>
        <Head title={visible(name)} trail={['Queues', to(['queues'])]} />
        <Failure error={error} />
      </>
    );
  }
  return (
    <>
      <Head
        title={visible(name)}
        trail={[namespace === '/' ? 'Queues' : `Queues in ${namespace}`, to(['queues'], { namespace: namespace === '/' ? undefined : namespace })]}
        badges={
          <>
            <Durability level={queue.durability} />
            {queue.over !== null && <Badge>over the topic {visible(queue.over)}</Badge>}
            <Marks queue={queue} long />
          </>
        }
      >
        <Actions queue={queue} />
      </Head>
      <Tabs
        of={[
          ['overview', 'Overview'],
          ['messages', `Messages (${short(queue.ready)})`],
          ['consumers', `Consumers (${short(queue.consumers)})`],
          ['bindings', 'Bindings'],
          ['settings', 'Settings'],
        ]}
      />
      {tab === 'messages' && <Messages queue={queue} />}
      {tab === 'consumers' && <Consumers path={`queues/${encodeURIComponent(name)}/consumers`} query={{ namespace }} of={visible(name)} />}
      {tab === 'bindings' && <Bindings namespace={namespace} queue={name} />}
      {tab === 'settings' && <Settings key={queue.id} queue={queue} />}
      {tab === 'overview' && <Inside queue={queue} />}
    </>
  );
}

function Inside({ queue }: { queue: State }) {
  const { counters } = queue;
  const of = `queue:${queue.name}`;
  return (
    <>
      <Figures
        of={[
          { name: 'Ready', value: short(queue.ready), exact: count(queue.ready), more: bytes(queue.bytes_ready) },
          { name: 'In flight', value: short(queue.in_flight), exact: count(queue.in_flight), more: 'unacknowledged' },
          { name: 'Consumers', value: count(queue.consumers) },
          { name: 'Published', value: rate(queue.rates.published), more: `${short(counters.published)} since the start` },
          { name: 'Delivered', value: rate(queue.rates.delivered), more: `${short(counters.delivered)} since the start` },
          { name: 'Completed', value: rate(queue.rates.completed), more: `${short(counters.completed)} since the start` },
        ]}
      />
      <div className="row between">
        <h2>History</h2>
        <Ranges />
      </div>
      <Charts of={of} namespace={queue.namespace} charts={CHARTS} />
      <div className="grid">
        {queue.priority_max > 0 && queue.ready > 0 && <Lanes queue={queue} />}
        <section className="card">
          <header>
            <h2>Where messages went, since the start of the broker</h2>
          </header>
          <Facts
            rows={[
              ['Published', `${count(counters.published)} (${bytes(counters.published_bytes)})`],
              ['Delivered to consumers', count(counters.delivered)],
              ['Given to requests', count(counters.got)],
              ['Given out once more', count(counters.redelivered)],
              ['Completed (acknowledged)', count(counters.completed)],
              ['Returned by consumers', count(counters.requeued)],
              ['Discarded (rejected)', count(counters.discarded)],
              ['Expired', count(counters.expired)],
              ['Dropped: the queue was full', count(counters.overflowed)],
              ['Refused: the queue was full', count(counters.refused)],
              ['Went on as dead letters', count(counters.dead_lettered)],
              ['Moved to other queues', count(counters.moved)],
            ]}
          />
        </section>
        <section className="card">
          <header>
            <h2>Rules</h2>
          </header>
          <Facts
            rows={[
              ['Time to live', queue.ttl_ms === null ? 'unlimited' : duration(queue.ttl_ms)],
              ['Messages at most', queue.length_max === null ? 'unlimited' : <Limit used={queue.ready} max={queue.length_max} text={count(queue.length_max)} />],
              ['Bytes at most', queue.bytes_max === null ? 'unlimited' : <Limit used={queue.bytes_ready} max={queue.bytes_max} text={bytes(queue.bytes_max)} />],
              ['When it is full', queue.overflow],
              ['Deliveries at most', queue.delivery_limit === null ? 'unlimited' : count(queue.delivery_limit)],
              ['Dead letters', queue.dead_letter === null ? 'are dropped' : `to ${queue.dead_letter.exchange || 'the queue'} ${queue.dead_letter.routing_key ?? ''}`],
              ['Priorities', queue.priority_max === 0 ? 'none' : `0 to ${queue.priority_max}`],
              ['As records', queue.topic === null ? 'not shown' : <Link key="t" href={to(['topics', queue.topic], { tab: 'records' })}>{visible(queue.topic)}</Link>],
              ['Deleted without use after', queue.expires_ms === null ? 'never' : duration(queue.expires_ms)],
            ]}
          />
        </section>
      </div>
    </>
  );
}

export const Limit = ({ used, max, text }: { used: number; max: number; text: string }) => (
  <>
    {text}
    <Meter share={used / max} kind={used / max > 0.9 ? 1 : 0} label={`${Math.round((used / max) * 100)} % used`} />
  </>
);

function Actions({ queue }: { queue: State }) {
  const refresh = useRefresh();
  const [target, setTarget] = useState('');
  const [many, setMany] = useState('');
  const [error, setError] = useState<unknown>();
  const isPaused = queue.state === 'paused';
  const [seen, setSeen] = useState(queue);
  const flip = () => {
    setError(undefined);
    request('POST', queueUrl(queue, isPaused ? '/resume' : '/pause')).then(refresh, setError);
  };
  const messages = (n: number) => counted(n, 'message');
  return (
    <>
      <Send queue={queue} />
      <Take queue={queue} />
      <button type="button" onClick={flip} title={isPaused ? 'Hand messages out again' : 'Take messages, and hand none out'}>
        {isPaused ? 'Resume' : 'Pause'}
      </button>
      <Action<Moved>
        label="Move"
        title={`Move messages of ${visible(queue.name)}`}
        confirm="Move"
        incomplete={target === ''}
        disabled={queue.ready === 0}
        why={queue.ready === 0 ? 'No message waits' : undefined}
        call={() => ({
          method: 'POST',
          path: queueUrl(queue, '/move', { wait: '0' }),
          body: { json: { to: { queue: target }, ...(many ? { count: Number(many) } : {}) } },
        })}
        result={({ messages: moved, stopped }) => `${messages(moved)} moved to ${target}.${stopped ? ` Stopped: ${stopped}` : ''}`}
      >
        <p>Moves from the front. Each message is stored there and settled here by one write; none is lost and none is doubled.</p>
        <Field label="To the queue">
          <input value={target} onChange={(event) => setTarget(event.target.value)} autoFocus data-focus required spellCheck={false} />
        </Field>
        <Field label="Messages at most" help={`${messages(queue.ready)} wait`}>
          <input type="number" min="1" placeholder="all that wait" value={many} onChange={(event) => setMany(event.target.value)} />
        </Field>
      </Action>
      <Action<MessageCount>
        label="Purge"
        destroys
        title={`Purge ${visible(queue.name)}`}
        confirm={`Purge ${messages(seen.ready)}`}
        typed={seen.ready > 1000 ? queue.name : undefined}
        disabled={queue.ready === 0}
        why={queue.ready === 0 ? 'No message waits' : undefined}
        onOpen={() => setSeen(queue)}
        call={() => ({ method: 'POST', path: queueUrl(queue, '/purge', conditions(seen)) })}
        result={({ messages: purged }) => `${messages(purged)} purged.`}
      >
        <p>
          <b>
            {messages(seen.ready)} ({bytes(seen.bytes_ready)})
          </b>{' '}
          that wait are destroyed. They are not dead-lettered, and this cannot be taken back. {messages(seen.in_flight)} in flight stay with their consumers.
        </p>
        <p className="quiet">Gentler: pause the queue, or move its messages to another one. It is refused if the queue was made anew meanwhile, or has grown beyond twice of this.</p>
      </Action>
      <Action<MessageCount>
        label="Delete"
        destroys
        title={`Delete ${visible(queue.name)}`}
        confirm="Delete the queue"
        typed={seen.ready > 1000 ? queue.name : undefined}
        onOpen={() => setSeen(queue)}
        call={() => ({ method: 'DELETE', path: queueUrl(queue, '', conditions(seen)) })}
        after={() => go(to(['queues']))}
      >
        <p>
          The queue goes with <b>{messages(seen.ready)}</b> waiting, {messages(seen.in_flight)} in flight, and its bindings. Consumers that are cancelled: {count(seen.consumers)}. This cannot be taken back.
        </p>
      </Action>
      <Failure error={error} />
    </>
  );
}
