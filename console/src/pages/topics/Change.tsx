// Copying a topic's records to another one, and emptying it.
import { useState } from 'react';
import type { Partition, TopicCopied, TopicCopy, Topic, Truncated } from '../../api/types';
import { useOnce } from '../../api/live';
import { Action } from '../../ui/Action';
import { counted, visible } from '../../ui/format';
import { Field } from '../../ui/parts';
import { topicUrl } from './Topics';

export function CopyTopic({ topic }: { topic: Topic }) {
  const [target, setTarget] = useState('');
  const [from, setFrom] = useState('');
  const [until, setUntil] = useState('');
  const json: TopicCopy = { to: target, ...(from ? { from } : {}), ...(until ? { until } : {}) };
  return (
    <Action<TopicCopied>
      label="Copy"
      title={`Copy records of ${visible(topic.name)}`}
      confirm="Copy"
      incomplete={target === ''}
      call={() => ({ method: 'POST', path: topicUrl(topic.name, '/copy', { wait: '0' }), body: { json } })}
      result={({ records, stopped }) => `${counted(records, 'record')} copied to ${visible(target)}.${stopped ? ` Stopped: ${stopped}` : ''}`}
    >
      <p>Keys, headers and timestamps go with them. With as many partitions each record keeps its own, otherwise its key chooses. The records here stay.</p>
      <Field label="To the topic" help="It has to be there">
        <input value={target} onChange={(event) => setTarget(event.target.value)} autoFocus data-focus required spellCheck={false} />
      </Field>
      <div className="form two">
        <Field label="From" help="An offset, -N, or a time">
          <input value={from} onChange={(event) => setFrom(event.target.value)} placeholder="the oldest record" spellCheck={false} />
        </Field>
        <Field label="Until" help="An offset, -N, or a time">
          <input value={until} onChange={(event) => setUntil(event.target.value)} placeholder="the end as it is now" spellCheck={false} />
        </Field>
      </div>
    </Action>
  );
}

/** Truncates all partitions at the ends that were shown. */
export function EmptyTopic({ topic }: { topic: Topic }) {
  const [isOpen, setOpen] = useState(false);
  const ends = useOnce<{ items: Partition[] }>(isOpen ? topicUrl(topic.name, '/partitions', { count: 1000 }) : null).data?.items;
  return (
    <Action<Truncated>
      label="Empty"
      destroys
      disabled={topic.records === 0}
      why={topic.records === 0 ? 'It has no records' : undefined}
      title={`Empty ${visible(topic.name)}`}
      confirm={`Free ${counted(topic.records, 'record')}`}
      typed={topic.records > 1000 ? topic.name : undefined}
      incomplete={ends === undefined}
      onOpen={() => setOpen(true)}
      call={() => ({
        method: 'POST',
        path: topicUrl(topic.name, '/truncate', { if_id: topic.id }),
        body: { json: { before: (ends ?? []).map(({ partition, end }) => ({ partition, offset: end })) } },
      })}
      result={() => 'Emptied up to the ends that were shown; what came since is there.'}
    >
      <p>
        All partitions are truncated at their ends: <b>{counted(topic.records, 'record')}</b> are destroyed, and this cannot be taken back. The topic, its settings and the places of its groups stay. Gentler: a shorter retention.
      </p>
    </Action>
  );
}
