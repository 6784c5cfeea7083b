import { useState } from 'react';
import { useLive } from '../../api/live';
import type { Freed, GroupEntry, Partition, Producer, Topic as State, Truncated } from '../../api/types';
import { Action } from '../../ui/Action';
import { Charts, Ranges, type Drawn, type Series } from '../../ui/Chart';
import { byteRate, bytes, count, counted, duration, rate, short, visible } from '../../ui/format';
import { List, type Column } from '../../ui/List';
import { queueAt } from '../../ui/pages';
import { Badge, Durability, Failure, Figures, Head, Tabs, Time, useTab } from '../../ui/parts';
import { go, Link, to } from '../../ui/route';
import { CopyTopic, EmptyTopic } from './Change';
import { Produce } from './Produce';
import { Records } from './Records';
import { Settings } from './Settings';
import { limit, topicUrl } from './Topics';

const RECORDS: Series[] = [
  { name: 'records_in_rate', label: 'In' },
  { name: 'records_out_rate', label: 'Out' },
];
const BYTES: Series[] = [
  { name: 'bytes_in_rate', label: 'In' },
  { name: 'bytes_out_rate', label: 'Out' },
];

const CHARTS: Drawn[] = [
  { title: 'Records per second', series: RECORDS, format: rate },
  { title: 'Bytes per second', series: BYTES, format: byteRate },
];

export function Topic({ name }: { name: string }) {
  const { data: topic, error } = useLive<State>(topicUrl(name));
  const tab = useTab('overview');
  if (!topic || error) {
    return (
      <>
        <Head title={visible(name)} trail={['Topics', to(['topics'])]} />
        <Failure error={error} />
      </>
    );
  }
  return (
    <>
      <Head
        title={visible(name)}
        trail={['Topics', to(['topics'])]}
        badges={
          <>
            <Durability level={topic.durability} />
            {topic.kind !== 'stored' && <Badge>{topic.kind}</Badge>}
            {topic.internal && <Badge>internal</Badge>}
            {topic.shows && (
              <Badge>
                shows the queue <Link href={queueAt(topic.shows.namespace, topic.shows.name)}>{visible(topic.shows.name)}</Link>
              </Badge>
            )}
          </>
        }
      >
        <Produce topic={topic} />
        <CopyTopic topic={topic} />
        {topic.kind === 'stored' && topic.partitions <= 1000 && <EmptyTopic topic={topic} />}
        <Action<Freed>
          label="Delete"
          destroys
          title={`Delete ${visible(name)}`}
          confirm={`Delete ${counted(topic.records, 'record')}`}
          typed={topic.records > 1000 ? name : undefined}
          call={() => ({ method: 'DELETE', path: topicUrl(name, '', { if_id: topic.id }) })}
          after={() => go(to(['topics']))}
        >
          <p>
            The topic goes with <b>{counted(topic.records, 'record')} ({bytes(topic.bytes)})</b> in {counted(topic.partitions, 'partition')}, and the commits of groups in it. This cannot be taken back.
          </p>
          {topic.queues_over.length > 0 && <p className="hint">Queues show this topic: {topic.queues_over.map((queue) => queue.name).join(', ')}</p>}
        </Action>
      </Head>
      <Tabs
        of={[
          ['overview', 'Overview'],
          ['records', 'Records'],
          ['partitions', `Partitions (${count(topic.partitions)})`],
          ['groups', 'Groups'],
          ['producers', 'Producers'],
          ['settings', 'Settings'],
        ]}
      />
      {tab === 'overview' && <Inside topic={topic} />}
      {tab === 'records' && <Records topic={topic} />}
      {tab === 'partitions' && <Partitions topic={topic} />}
      {tab === 'groups' && <List<GroupEntry> path={`topics/${encodeURIComponent(name)}/groups`} columns={GROUPS} keyOf={(group) => group.name} noun="groups" search={false} empty={<p><strong>No group has read this topic.</strong> A group appears when a consumer of it commits an offset.</p>} />}
      {tab === 'producers' && <List<Producer> path={`topics/${encodeURIComponent(name)}/producers`} columns={PRODUCERS} keyOf={(producer) => `${producer.producer} ${producer.partition}`} noun="producers" search={false} empty={<p><strong>No idempotent producer is known.</strong> Partitions remember producers that number their batches, so that none is stored twice.</p>} />}
      {tab === 'settings' && <Settings key={topic.id} topic={topic} />}
    </>
  );
}

const Inside = ({ topic }: { topic: State }) => (
  <>
    <Figures
      of={[
        { name: 'Records', value: short(topic.records), exact: count(topic.records), href: to(['topics', topic.name], { tab: 'records' }) },
        { name: 'Bytes', value: bytes(topic.bytes), exact: count(topic.bytes) },
        { name: 'In', value: rate(topic.rates.records_in), more: byteRate(topic.rates.bytes_in) },
        { name: 'Out', value: rate(topic.rates.records_out), more: byteRate(topic.rates.bytes_out) },
        { name: 'Partitions', value: count(topic.partitions) },
        { name: 'Kept for', value: limit(topic.retention_ms, duration), more: `at most ${limit(topic.retention_bytes, bytes)}` },
      ]}
    />
    {(topic.queues_over.length > 0 || topic.live_prefixes.length > 0) && (
      <section className="card">
        {topic.queues_over.length > 0 && (
          <p>
            Queues over this topic:{' '}
            {topic.queues_over.map((queue) => (
              <Link key={queue.namespace + queue.name} href={queueAt(queue.namespace, queue.name)}>
                {visible(queue.name)}{' '}
              </Link>
            ))}
          </p>
        )}
        {topic.live_prefixes.length > 0 && <p>Live topics that are stored here begin with: {topic.live_prefixes.map(visible).join(', ')}</p>}
      </section>
    )}
    <div className="row between">
      <h2>History</h2>
      <Ranges />
    </div>
    <Charts of={`topic:${topic.name}`} charts={CHARTS} />
  </>
);

const GROUPS: Column<GroupEntry>[] = [
  { head: 'Name', sort: 'name', cell: ({ name }) => <Link className="name" href={to(['groups', name])}>{visible(name)}</Link>, text: ({ name }) => name },
  { head: 'Kind', cell: ({ kind }) => kind, text: ({ kind }) => kind },
  { head: 'State', cell: ({ state }) => state, text: ({ state }) => state },
  { head: 'Members', num: true, cell: ({ members }) => count(members), text: ({ members }) => members },
  { head: 'Lag here', sort: 'lag', num: true, cell: ({ lag }) => count(lag), text: ({ lag }) => lag },
];

const PRODUCERS: Column<Producer>[] = [
  { head: 'Producer', cell: ({ producer, epoch }) => `${producer}, epoch ${epoch}`, text: ({ producer }) => producer },
  { head: 'Partition', num: true, cell: ({ partition }) => partition, text: ({ partition }) => partition },
  { head: 'Sequence', num: true, cell: ({ sequence }) => count(sequence), text: ({ sequence }) => sequence },
  { head: 'Last', cell: ({ last_at: at }) => <Time at={at} />, text: ({ last_at: at }) => at },
  { head: 'Transaction from', num: true, cell: ({ open_from: from }) => count(from), text: ({ open_from: from }) => from },
];

function Partitions({ topic }: { topic: State }) {
  const columns: Column<Partition>[] = [
    { head: 'Partition', cell: ({ partition }) => <Link href={to(['topics', topic.name], { tab: 'records', partition: String(partition) })}>{partition}</Link>, text: ({ partition }) => partition },
    { head: 'Start', num: true, cell: ({ start }) => count(start), text: ({ start }) => start },
    { head: 'End', num: true, cell: ({ end }) => count(end), text: ({ end }) => end },
    { head: 'Records', sort: 'records', num: true, cell: ({ records }) => count(records), text: ({ records }) => records },
    { head: 'Bytes', sort: 'bytes', num: true, cell: ({ bytes: n }) => bytes(n), text: ({ bytes: n }) => n },
    { head: 'Committed to', phone: 'less', num: true, cell: ({ stable, end }) => (stable === end ? count(stable) : <Badge kind="note">{count(stable)}: a transaction is open</Badge>), text: ({ stable }) => stable },
    {
      head: 'State',
      cell: ({ state, lost }) =>
        state === 'ok' ? 'ok' : <Badge kind="bad" title={lost.map(({ from, to: end }) => `lost: ${from} to ${end}`).join('; ')}>{`▲ ${state}`}</Badge>,
      text: ({ state }) => state,
    },
    { head: 'Does', phone: 'full', cell: (partition) => <Truncate topic={topic} partition={partition} /> },
  ];
  return (
    <>
      {topic.kind === 'stored' && <p className="quiet small lead">A single record cannot be deleted from a log. Truncating frees the records before an offset.</p>}
      <List<Partition> path={`topics/${encodeURIComponent(topic.name)}/partitions`} columns={columns} keyOf={({ partition }) => String(partition)} noun="partitions" search={false} empty={<p>There is no partition.</p>} />
    </>
  );
}

function Truncate({ topic, partition }: { topic: State; partition: Partition }) {
  const [text, setText] = useState('');
  const before = text === '' ? partition.end : Number(text);
  const gone = Math.max(0, Math.min(before, partition.end) - partition.start);
  if (topic.kind !== 'stored') return null;
  return (
    <Action<Truncated>
      label="Truncate"
      destroys
      disabled={partition.start === partition.end}
      title={`Truncate partition ${partition.partition} of ${visible(topic.name)}`}
      confirm={`Free up to ${counted(gone, 'record')}`}
      typed={gone > 1000 ? topic.name : undefined}
      call={() => ({
        method: 'POST',
        path: topicUrl(topic.name, '/truncate', { if_id: topic.id }),
        body: { json: { before: [{ partition: partition.partition, ...(text === '' ? {} : { offset: Number(text) }) }] } },
      })}
      result={({ partitions }) => `It begins at ${partitions.map(({ start }) => count(start)).join(', ')} now.`}
    >
      <p>
        Records before this offset are destroyed; readers that are behind it go on from there. The partition has {count(partition.start)} to {count(partition.end)}. This cannot be taken back.
      </p>
      <label className="field">
        <span>Before the offset</span>
        <input type="number" min={partition.start} max={partition.end} placeholder={`${partition.end}: all`} value={text} onChange={(event) => setText(event.target.value)} />
      </label>
    </Action>
  );
}
