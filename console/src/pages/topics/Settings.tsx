import { useState } from 'react';
import type { MadeOrChanges, Topic, TopicChange } from '../../api/types';
import { Action } from '../../ui/Action';
import { Badge, Facts, Field } from '../../ui/parts';
import { topicUrl } from './Topics';

const WORDS: Record<string, string> = {
  durability: 'What an acknowledged record survives',
  retention_ms: 'Older records go',
  retention_bytes: 'Of a partition; the oldest go',
  cleanup: 'delete, compact, or both',
  message_bytes_max: 'Of a batch',
  timestamps: 'Of the producer, or of the append',
  codec: 'Compression',
  spread: 'Partitions in all cells; decided for ever',
};

type Value = string | number;
const text = (value: unknown): string => String(value ?? '');

export function Settings({ topic }: { topic: Topic }) {
  const now = topic.settings as unknown as Record<string, Value> | null;
  const [texts, setTexts] = useState<Record<string, string>>(() => Object.fromEntries(Object.entries(now ?? {}).map(([key, value]) => [key, text(value)])));
  const [partitions, setPartitions] = useState(String(topic.partitions));
  if (!now) return <div className="empty">This topic has no settings of its own: it shows what a queue has.</div>;
  const changed = Object.entries(texts).filter(([key, value]) => value !== text(now[key]));
  const body = (): TopicChange => {
    const json: { settings?: Record<string, Value>; partitions?: number } = {};
    if (changed.length > 0) json.settings = Object.fromEntries(changed.map(([key, value]) => [key, value !== '' && !Number.isNaN(Number(value)) ? Number(value) : value]));
    if (Number(partitions) !== topic.partitions) json.partitions = Number(partitions);
    return json as TopicChange;
  };
  const grows = Number(partitions) !== topic.partitions;
  return (
    <section className="card">
      <div className="form two">
        {Object.keys(now).map((key) => (
          <Field key={key} label={key} help={WORDS[key]}>
            <input value={texts[key] ?? ''} onChange={(event) => setTexts({ ...texts, [key]: event.target.value })} spellCheck={false} readOnly={key === 'spread'} />
            <span>{topic.set.includes(key) ? <Badge>set here</Badge> : <Badge title="Follows the broker's default">default</Badge>}</span>
          </Field>
        ))}
        <Field label="partitions" help="Can grow, not shrink">
          <input type="number" min={topic.partitions} value={partitions} onChange={(event) => setPartitions(event.target.value)} />
        </Field>
        <div className="row wide">
          <Action<MadeOrChanges>
            label="Change"
            className="main"
            title={`Change ${topic.name}`}
            confirm="Change"
            destroys={grows}
            disabled={changed.length === 0 && !grows}
            call={() => ({ method: 'PATCH', path: topicUrl(topic.name), body: { json: body() } })}
            result={() => 'Changed.'}
          >
            <Facts rows={[...changed.map(([key, value]): [string, string] => [key, `${text(now[key])} → ${value}`]), ...(grows ? [['partitions', `${topic.partitions} → ${partitions}`] as [string, string]] : [])]} />
            {grows && <p className="hint">Keys move: new records of a key may go to another partition than its old ones, and the number cannot shrink again.</p>}
            {changed.some(([key]) => key.startsWith('retention')) && <p className="hint">Records beyond the new bounds go soon, and do not come back.</p>}
          </Action>
        </div>
      </div>
    </section>
  );
}
