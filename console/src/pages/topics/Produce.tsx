import { useState } from 'react';
import type { NewRecord, Produced, Record as Entry, Topic } from '../../api/types';
import { Action } from '../../ui/Action';
import { count, visible } from '../../ui/format';
import { Field } from '../../ui/parts';
import { contentOf, headersOf } from '../queues/Send';
import { topicUrl } from './Topics';

export function Produce({ topic, like, label = 'Publish' }: { topic: Topic; like?: Entry; label?: string }) {
  const [value, setValue] = useState('');
  const [key, setKey] = useState('');
  const [headers, setHeaders] = useState('');
  const [partition, setPartition] = useState('');
  const fill = () => {
    if (!like) return;
    setValue(typeof like.value === 'string' ? like.value : JSON.stringify(like.value, null, 2));
    setKey(like.key ?? '');
    setHeaders(Object.entries(like.headers).flatMap(([name, text]) => (typeof text === 'string' ? [`${name}: ${text}`] : [])).join('\n'));
  };
  const call = () => {
    const json: NewRecord = { value: contentOf(value) };
    if (key !== '') json.key = key;
    if (partition !== '') json.partition = Number(partition);
    const given = headersOf(headers);
    if (given) json.headers = given;
    return { method: 'POST', path: topicUrl(topic.name, '/records', { as: 'record' }), body: { json } };
  };
  return (
    <Action<Produced>
      label={label}
      title={`Publish to ${visible(topic.name)}`}
      confirm="Publish"
      onOpen={fill}
      call={call}
      result={({ places, durability }) => `Stored at ${places.map((place) => `offset ${count(place.base)} of partition ${place.partition}`).join(', ')}; it survives as ${durability} does.`}
    >
      <Field label="Value" help="JSON is stored as JSON, anything else as text">
        <textarea value={value} onChange={(event) => setValue(event.target.value)} autoFocus data-focus spellCheck={false} />
      </Field>
      <div className="form two">
        <Field label="Key" help="Decides the partition">
          <input value={key} onChange={(event) => setKey(event.target.value)} spellCheck={false} placeholder="none" />
        </Field>
        <Field label="Partition">
          <input type="number" min="0" max={topic.partitions - 1} value={partition} onChange={(event) => setPartition(event.target.value)} placeholder="by key" />
        </Field>
      </div>
      <Field label="Headers" help="One a line, as name: value">
        <textarea className="low" value={headers} onChange={(event) => setHeaders(event.target.value)} spellCheck={false} />
      </Field>
    </Action>
  );
}
