import { useState } from 'react';
import { api, seg } from '../../api/http';
import { useOnce } from '../../api/live';
import type { Cluster, Node, Topic, TopicChange, TopicEntry, TopicSettingsChange } from '../../api/types';
import { Action } from '../../ui/Action';
import { byteRate, bytes, count, duration, rate, short, visible } from '../../ui/format';
import { List, type Column } from '../../ui/List';
import { Badge, Commands, Durability, Field, Head } from '../../ui/parts';
import { go, Link, to } from '../../ui/route';
import type { Hours } from '../../ui/Spark';

export const topicUrl = (name: string, more = '', query = {}): string => api(`topics/${seg(name)}${more}`, query);

export const limit = (value: unknown, format: (value: number) => string): string => (typeof value === 'number' ? format(value) : 'unlimited');

const COLUMNS: Column<TopicEntry>[] = [
  {
    head: 'Name',
    sort: 'name',
    cell: (topic) => (
      <>
        <Link className="name" href={to(['topics', topic.name])}>
          {visible(topic.name)}
        </Link>{' '}
        {topic.kind !== 'stored' && <Badge title="This topic shows what a queue has">{topic.kind === 'queue' ? 'of a queue' : topic.kind}</Badge>}
        {topic.internal && <Badge>internal</Badge>}
        {topic.settings?.cleanup.includes('compact') && <Badge>compacted</Badge>}
        {topic.settings?.spread && <Badge title="Its partitions lie in all cells of the cluster">spread</Badge>}
      </>
    ),
    text: ({ name }) => name,
  },
  { head: 'Partitions', sort: 'partitions', num: true, cell: ({ partitions }) => count(partitions), text: ({ partitions }) => partitions },
  { head: 'Records', sort: 'records', num: true, cell: ({ records }) => <span title={count(records)}>{short(records)}</span>, text: ({ records }) => records },
  { head: 'Bytes', sort: 'bytes', num: true, cell: ({ bytes: n }) => bytes(n), text: ({ bytes: n }) => n },
  { head: 'In', num: true, cell: ({ rates }) => <span title={byteRate(rates.bytes_in)}>{rate(rates.records_in)}</span>, text: ({ rates }) => rates.records_in },
  { head: 'Out', num: true, cell: ({ rates }) => <span title={byteRate(rates.bytes_out)}>{rate(rates.records_out)}</span>, text: ({ rates }) => rates.records_out },
  { head: 'Kept for', phone: 'less', num: true, cell: ({ retention_ms: ms }) => limit(ms, duration), text: ({ retention_ms: ms }) => ms },
  { head: 'Durability', phone: 'less', cell: ({ durability }) => <Durability level={durability} />, text: ({ durability }) => durability },
];

const HOURS: Hours<TopicEntry> = {
  of: ({ name }) => `topic:${name}`,
  names: ['records_in_rate', 'records_out_rate'],
  format: rate,
  href: ({ name }) => to(['topics', name], { range: '60' }),
};

export const Topics = () => (
  <>
    <Head title="Topics">
      <CreateTopic />
    </Head>
    <List<TopicEntry>
      path="topics"
      columns={COLUMNS}
      keyOf={({ name }) => name}
      noun="topics"
      openAt={(name) => to(['topics', name])}
      hours={HOURS}
      filters={[
        { name: 'kind', label: 'Stored', value: 'stored' },
        { name: 'kind', label: 'Of queues', value: 'queue' },
        { name: 'internal', label: 'With internal ones', value: 'true' },
      ]}
      empty={
        <>
          <p>
            <strong>There is no topic yet.</strong> A topic is a log in partitions: records stay for their time, and any number of groups read them, each at its own place. Make one above, or by a program:
          </p>
          <Commands text={`curl -X PUT ${location.origin}/v1/topics/clicks -d '{"partitions": 6}'\ncurl '${location.origin}/v1/topics/clicks/records?key=42' -H 'Content-Type: application/json' -d '{"page": "/"}'`} />
        </>
      }
    />
  </>
);

/** Where the partitions lie, in a cluster of several cells. */
function Spread({ value, set }: { value: string; set: (value: string) => void }) {
  const node = useOnce<Node>('/v1/node').data;
  const cluster = useOnce<Cluster>(node?.settings_changed.includes('cluster.database') ? '/v1/cluster' : null).data;
  if ((cluster?.cells ?? []).length < 2) return null;
  return (
    <Field label="Cells" help="Decided for ever">
      <select value={value} onChange={(event) => set(event.target.value)}>
        <option value="">the first: for queues over topics, too</option>
        <option value="all">all: nodes share the work</option>
      </select>
    </Field>
  );
}

function CreateTopic() {
  const [name, setName] = useState('');
  const [partitions, setPartitions] = useState('1');
  const [durability, setDurability] = useState('');
  const [hours, setHours] = useState('');
  const [cleanup, setCleanup] = useState('');
  const [spread, setSpread] = useState('');
  const call = () => {
    const settings: TopicSettingsChange = {};
    if (durability) settings.durability = durability;
    if (hours) settings.retention_ms = Number(hours) * 3_600_000;
    if (cleanup) settings.cleanup = cleanup;
    if (spread) settings.spread = true;
    const json: TopicChange = { partitions: Number(partitions), settings };
    return { method: 'PUT', path: topicUrl(name), body: { json } };
  };
  return (
    <Action<Topic> label="Create a topic" className="main" title="Create a topic" confirm="Create" incomplete={name === ''} call={call} after={() => go(to(['topics', name]))}>
      <div className="form two">
        <Field label="Name" wide>
          <input value={name} onChange={(event) => setName(event.target.value)} required maxLength={249} autoFocus data-focus spellCheck={false} />
        </Field>
        <Field label="Partitions" help="Can grow, not shrink">
          <input type="number" min="1" value={partitions} onChange={(event) => setPartitions(event.target.value)} required />
        </Field>
        <Field label="Kept for hours">
          <input type="number" min="1" placeholder="the default" value={hours} onChange={(event) => setHours(event.target.value)} />
        </Field>
        <Field label="Durability" help="What an acknowledged record survives">
          <select value={durability} onChange={(event) => setDurability(event.target.value)}>
            <option value="">the default</option>
            <option value="sync">sync: a power loss</option>
            <option value="os">os: a killed process</option>
            <option value="memory">memory: nothing</option>
          </select>
        </Field>
        <Field label="Clean-up">
          <select value={cleanup} onChange={(event) => setCleanup(event.target.value)}>
            <option value="">the default: by time and size</option>
            <option value="compact">compact: the last of each key</option>
          </select>
        </Field>
        <Spread value={spread} set={setSpread} />
      </div>
    </Action>
  );
}
