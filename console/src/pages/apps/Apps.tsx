import { useState } from 'react';
import { api, seg } from '../../api/http';
import type { AppDefinition, AppEntry, DeclaredApp } from '../../api/types';
import { Action } from '../../ui/Action';
import { count, short, visible } from '../../ui/format';
import { List, type Column } from '../../ui/List';
import { Badge, Commands, Field, Head } from '../../ui/parts';
import { go, Link, to } from '../../ui/route';

export const appUrl = (name: string, more = '', query = {}): string => api(`apps/${seg(name)}${more}`, query);

/** Names in a text: by commas, spaces or lines. */
export const names = (text: string): string[] => text.split(/[\s,]+/).filter(Boolean);

const COLUMNS: Column<AppEntry>[] = [
  {
    head: 'Name',
    sort: 'name',
    cell: ({ name, paused, stopped }) => (
      <>
        <Link className="name" href={to(['apps', name])}>
          {visible(name)}
        </Link>{' '}
        {paused && <Badge kind="note">paused</Badge>}
        {stopped > 0 && <Badge kind="bad">{`▲ ${count(stopped)} stopped`}</Badge>}
      </>
    ),
    text: ({ name }) => name,
  },
  { head: 'Lag', sort: 'lag', num: true, cell: ({ lag }) => <span title={count(lag)}>{short(lag)}</span>, text: ({ lag }) => lag },
  { head: 'Tasks', sort: 'tasks', num: true, cell: ({ tasks }) => count(tasks), text: ({ tasks }) => tasks },
  { head: 'Without a worker', num: true, cell: ({ free }) => (free > 0 ? <b>{count(free)}</b> : count(free)), text: ({ free }) => free },
  { head: 'Workers', sort: 'workers', num: true, cell: ({ workers }) => count(workers), text: ({ workers }) => workers },
  { head: 'Reads', phone: 'full', cell: ({ topics }) => topics.map((topic) => <TopicLink key={topic} name={topic} />), text: ({ topics }) => topics.join(' ') },
];

export const TopicLink = ({ name }: { name: string }) => (
  <>
    <Link href={to(['topics', name])}>{visible(name)}</Link>{' '}
  </>
);

export const Apps = () => (
  <>
    <Head title="Apps">
      <Declare />
    </Head>
    <List<AppEntry>
      path="apps"
      columns={COLUMNS}
      keyOf={({ name }) => name}
      noun="apps"
      openAt={(name) => to(['apps', name])}
      empty={
        <>
          <p>
            <strong>There is no app yet.</strong> An app reads topics, keeps state by key, and passes results on. Its workers, programs of any language, take turns: a partition has one worker at a time, and another
            goes on with the same state where it stopped. Declare one above, or by a program:
          </p>
          <Commands text={`curl -X PUT ${location.origin}/v1/apps/totals -d '{"topics": ["orders"], "tables": {"sums": {}}}'\ncurl ${location.origin}/v1/apps/totals/workers/w-1/join -d '{}'`} />
        </>
      }
    />
  </>
);

function Declare() {
  const [name, setName] = useState('');
  const [topics, setTopics] = useState('');
  const [tables, setTables] = useState('');
  const [from, setFrom] = useState('earliest');
  const [filter, setFilter] = useState('');
  const [letters, setLetters] = useState('');
  const call = () => {
    const json: AppDefinition = { topics: names(topics), tables: Object.fromEntries(names(tables).map((table) => [table, {}])) };
    if (from !== 'earliest') json.from = from;
    if (filter) json.filter = filter;
    if (letters) json.dead_letter = letters;
    return { method: 'PUT', path: appUrl(name), body: { json } };
  };
  return (
    <Action<DeclaredApp> label="Declare an app" className="main" title="Declare an app" confirm="Declare" incomplete={name === '' || names(topics).length === 0} call={call} after={() => go(to(['apps', name]))}>
      <div className="form two">
        <Field label="Name" wide>
          <input value={name} onChange={(event) => setName(event.target.value)} required autoFocus data-focus spellCheck={false} />
        </Field>
        <Field label="Topics" help="Stored ones with equally many partitions: a task for each partition">
          <input value={topics} onChange={(event) => setTopics(event.target.value)} required placeholder="orders, returns" spellCheck={false} />
        </Field>
        <Field label="Tables" help="Of its state; values are JSON">
          <input value={tables} onChange={(event) => setTables(event.target.value)} placeholder="sums" spellCheck={false} />
        </Field>
        <Field label="Begins at">
          <select value={from} onChange={(event) => setFrom(event.target.value)}>
            <option value="earliest">the oldest record</option>
            <option value="latest">records to come</option>
          </select>
        </Field>
        <Field label="Filter" help="Condition on records; others are passed over; empty: all">
          <input value={filter} onChange={(event) => setFilter(event.target.value)} placeholder="value.total > 100" spellCheck={false} />
        </Field>
        <Field label="Dead letters" help="Topic of records that keep failing; without one their task stops">
          <input value={letters} onChange={(event) => setLetters(event.target.value)} spellCheck={false} />
        </Field>
      </div>
    </Action>
  );
}
