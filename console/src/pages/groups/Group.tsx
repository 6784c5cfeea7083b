import { useState } from 'react';
import { useLive } from '../../api/live';
import { api, request, seg } from '../../api/http';
import type { Commit, CommitCount, CommitMove, CommitMoves, DeletedGroup, Group as State, Member, Reset } from '../../api/types';
import { Action } from '../../ui/Action';
import { Charts, Ranges, type Drawn, type Series } from '../../ui/Chart';
import { DryRun, useDryRun } from '../../ui/DryRun';
import { change, count, counted, rate, short, visible } from '../../ui/format';
import { Badge, Failure, Field, Figures, Head, Meter, Time } from '../../ui/parts';
import { go, Link, to } from '../../ui/route';
import { Scroll, Table, type Column } from '../../ui/Table';

const LAG: Series[] = [{ name: 'lag', label: 'Lag' }];
const COMMITS: Series[] = [{ name: 'commits_rate', label: 'Commits' }];
const SHOWN = 500;

const CHARTS: Drawn[] = [
  { title: 'Lag', series: LAG, format: short },
  { title: 'Commits per second', series: COMMITS, format: rate },
];

export function Group({ name }: { name: string }) {
  const { data: group, error } = useLive<State>(api(`groups/${seg(name)}`));
  if (!group || error) {
    return (
      <>
        <Head title={visible(name)} trail={['Groups', to(['groups'])]} />
        <Failure error={error} />
      </>
    );
  }
  const topics = [...new Set(group.commits.map(({ topic }) => topic))];
  const isUsed = group.members_total > 0;
  const why = isUsed ? `It has ${counted(group.members_total, 'member')}. A member goes on from where it is: stop all first` : undefined;
  return (
    <>
      <Head
        title={visible(name)}
        trail={['Groups', to(['groups'])]}
        badges={
          <>
            <Badge kind={group.state === 'stable' ? 'good' : ''}>{group.state}</Badge>
            <Badge>{group.kind}</Badge>
            {group.assignor && <Badge title="How partitions are assigned">{group.assignor}</Badge>}
          </>
        }
      >
        <Rewind group={group} topics={topics} why={why} />
        <SetPlace group={group} topics={topics} why={why} />
        <Forget group={group} topics={topics} why={why} />
        <Action<DeletedGroup>
          label="Delete"
          destroys
          disabled={isUsed}
          why={why}
          title={`Delete ${visible(name)}`}
          confirm="Delete the group"
          call={() => ({ method: 'DELETE', path: api(`groups/${seg(name)}`, { if_epoch: group.epoch }) })}
          after={() => go(to(['groups']))}
        >
          <p>
            The group goes with its places in <b>{counted(group.commits_total, 'partition')}</b>. Consumers that begin under this name begin as new ones. Records stay. This cannot be taken back.
          </p>
        </Action>
      </Head>
      <Figures
        of={[
          { name: 'Lag', value: short(group.lag), exact: count(group.lag), more: 'log end minus commit' },
          { name: 'Members', value: count(group.members_total) },
          { name: 'Partitions', value: count(group.commits_total) },
          { name: 'Topics', value: count(topics.length) },
          { name: 'Epoch', value: count(group.epoch), more: 'of the membership' },
        ]}
      />
      {isUsed && <p className="quiet small lead">Rewinding and deleting are refused while the group has members: they would go on from where they are.</p>}
      <section className="card">
        <header>
          <h2>Places</h2>
        </header>
        {group.commits.length === 0 ? <p className="quiet">Nothing is committed.</p> : <Commits commits={group.commits.slice(0, SHOWN)} />}
        {group.commits_total > Math.min(SHOWN, group.commits.length) && <p className="quiet">{count(group.commits_total)} in all.</p>}
      </section>
      <section className="card">
        <header>
          <h2>Members</h2>
        </header>
        {group.members.length === 0 ? (
          <p className="quiet">The group has no members: nothing reads for it, and its lag grows as records come.</p>
        ) : (
          <Scroll>
            <Table caption="Members" columns={MEMBERS} rows={group.members} keyOf={({ member }) => member} />
          </Scroll>
        )}
      </section>
      <div className="row between">
        <h2>History</h2>
        <Ranges />
      </div>
      <Charts of={`group:${name}`} charts={CHARTS} />
    </>
  );
}

const MEMBERS: Column<Member>[] = [
  {
    head: 'Client',
    cell: ({ client, instance }) => (
      <>
        {visible(client)} {instance && <Badge>{visible(instance)}</Badge>}
      </>
    ),
  },
  { head: 'Host', cell: ({ host }) => host },
  { head: 'Member', phone: 'full', cell: ({ member }) => <span className="mono">{visible(member)}</span> },
  { head: 'Reads', phone: 'full', cell: ({ assigned }) => (assigned ?? []).map(({ topic, partitions }) => `${visible(topic)}: ${partitions.join(', ')}`).join('; ') || 'nothing' },
];

function Commits({ commits }: { commits: Commit[] }) {
  const most = Math.max(1, ...commits.map(({ lag }) => lag ?? 0));
  const columns: Column<Commit>[] = [
    {
      head: 'Partition',
      cell: ({ topic, partition, committed }) => (
        <Link href={to(['topics', topic], { tab: 'records', partition: String(partition), from: String(committed) })}>
          {visible(topic)} {partition}
        </Link>
      ),
    },
    { head: 'Committed', num: true, cell: ({ committed }) => count(committed) },
    { head: 'End', num: true, cell: ({ end }) => count(end) },
    { head: 'Lag', num: true, cell: ({ lag }) => count(lag) },
    { head: 'Share of the largest lag', unseen: true, wide: true, phone: 'less', cell: ({ lag }) => <Meter share={(lag ?? 0) / most} kind={1} /> },
    { head: 'When', phone: 'full', cell: ({ at }) => <Time at={at} /> },
  ];
  return (
    <Scroll>
      <Table caption="Commits" columns={columns} rows={commits} keyOf={({ topic, partition }) => `${topic} ${partition}`} />
    </Scroll>
  );
}

const MOVES: Column<CommitMove>[] = [
  { head: 'Partition', cell: ({ topic, partition }) => `${visible(topic)} ${partition}` },
  { head: 'Before', num: true, cell: ({ before }) => count(before) },
  { head: 'After', num: true, cell: ({ after }) => count(after) },
  { head: 'Change', num: true, cell: ({ before, after }) => (before == null ? 'new' : change(before, after)) },
];

/** Moves the places of a group, after a dry run with before and after side by side. */
function Rewind({ group, topics, why }: { group: State; topics: string[]; why?: string }) {
  const [topic, setTopic] = useState('');
  const [place, setPlace] = useState('earliest');
  const [text, setText] = useState('');
  const path = api(`groups/${seg(group.name)}/reset`, { if_epoch: group.epoch });
  const body = (dry: boolean): Reset => {
    const json: Reset = { dry_run: dry };
    if (topic) json.topic = topic;
    if (place === 'by') json.by = Number(text);
    else if (place === 'to') json.to = /^-?\d+$/.test(text) && !text.startsWith('-') ? Number(text) : text;
    else json.to = place;
    return json;
  };
  const dry = useDryRun(() => request<CommitMoves>('POST', path, { json: body(true) }));
  const moves = dry.found;
  const changed = (set: (value: string) => void) => (event: { target: { value: string } }) => {
    dry.forget();
    set(event.target.value);
  };
  const differ = (moves?.moved ?? []).filter(({ before, after }) => before !== after);
  return (
    <Action<CommitMoves>
      label="Rewind"
      destroys
      disabled={why !== undefined}
      why={why}
      wide
      title={`Move the places of ${visible(group.name)}`}
      confirm={moves ? `Move ${counted(differ.length, 'place')}` : 'Look first'}
      incomplete={!moves || differ.length === 0}
      onOpen={dry.forget}
      call={() => ({ method: 'POST', path, body: { json: body(false) } })}
      result={({ moved }) => `${counted(moved.length, 'place')} moved.`}
    >
      <p>Members that begin later read from there: records between are read again, or not at all.</p>
      <div className="form two">
        <Field label="Topic">
          <select value={topic} onChange={changed(setTopic)}>
            <option value="">all of the group</option>
            {topics.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </Field>
        <Field label="To">
          <select value={place} onChange={changed(setPlace)}>
            <option value="earliest">the oldest record</option>
            <option value="latest">the end</option>
            <option value="to">an offset, a time, or -N</option>
            <option value="by">by a number of records</option>
          </select>
        </Field>
        {(place === 'to' || place === 'by') && (
          <Field label={place === 'by' ? 'Records, negative is back' : 'Place'} help={place === 'to' ? 'Such as 1200, -50, or 2026-11-22T14:00:00Z' : undefined}>
            <input value={text} onChange={changed(setText)} spellCheck={false} required />
          </Field>
        )}
      </div>
      <DryRun of={dry} label="Show what would move (dry run)" />
      {moves && differ.length === 0 && <p className="hint">Every place is there already.</p>}
      {differ.length > 0 && (
        <Scroll low>
          <Table narrow caption="Places before and after" columns={MOVES} rows={differ} keyOf={({ topic: of, partition }) => `${of} ${partition}`} />
        </Scroll>
      )}
    </Action>
  );
}

/** Sets the place in one partition. */
function SetPlace({ group, topics, why }: { group: State; topics: string[]; why?: string }) {
  const [topic, setTopic] = useState(topics[0] ?? '');
  const [partition, setPartition] = useState('0');
  const [offset, setOffset] = useState('');
  const before = group.commits.find((commit) => commit.topic === topic && commit.partition === Number(partition))?.committed;
  return (
    <Action<CommitCount>
      label="Set a place"
      destroys
      disabled={why !== undefined}
      why={why}
      title={`Set a place of ${visible(group.name)}`}
      confirm={`Set it to ${offset === '' ? '…' : count(Number(offset))}`}
      incomplete={topic === '' || offset === ''}
      call={() => ({ method: 'PUT', path: api(`groups/${seg(group.name)}/offsets`), body: { json: { offsets: [{ topic, partition: Number(partition), offset: Number(offset) }] } } })}
      result={({ commits }) => `${counted(commits, 'place')} set.`}
    >
      <p>{before === undefined ? 'The group has no place in this partition.' : `It is at ${count(before)} now.`} Members that begin later read from the new place.</p>
      <div className="form two">
        <Field label="Topic">
          <input value={topic} onChange={(event) => setTopic(event.target.value)} list="topics-of-group" spellCheck={false} data-focus required />
        </Field>
        <datalist id="topics-of-group">
          {topics.map((name) => (
            <option key={name} value={name} />
          ))}
        </datalist>
        <Field label="Partition">
          <input type="number" min="0" value={partition} onChange={(event) => setPartition(event.target.value)} required />
        </Field>
        <Field label="Offset">
          <input type="number" min="0" value={offset} onChange={(event) => setOffset(event.target.value)} required />
        </Field>
      </div>
    </Action>
  );
}

/** Forgets the places in a topic. */
function Forget({ group, topics, why }: { group: State; topics: string[]; why?: string }) {
  const [topic, setTopic] = useState(topics[0] ?? '');
  const concerned = group.commits.filter((commit) => commit.topic === topic).length;
  return (
    <Action<CommitCount>
      label="Forget a topic"
      destroys
      hidden={topics.length === 0}
      disabled={why !== undefined}
      why={why}
      title={`Forget places of ${visible(group.name)}`}
      confirm={`Forget ${counted(concerned, 'place')}`}
      incomplete={topic === ''}
      call={() => ({ method: 'DELETE', path: api(`groups/${seg(group.name)}/offsets`, { topic }) })}
      result={({ commits }) => `${counted(commits, 'place')} forgotten.`}
    >
      <p>Members that begin later read this topic as if the group were new: from the beginning or the end, as their setting says. This cannot be taken back.</p>
      <Field label="Topic">
        <select value={topic} onChange={(event) => setTopic(event.target.value)}>
          {topics.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </Field>
    </Action>
  );
}
