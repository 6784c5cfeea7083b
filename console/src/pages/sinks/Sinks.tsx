import { api, seg } from '../../api/http';
import type { SinkSummary } from '../../api/types';
import { count, short, visible } from '../../ui/format';
import { List, type Column } from '../../ui/List';
import { Badge, Commands, Head } from '../../ui/parts';
import { Link, to } from '../../ui/route';

export const sinkUrl = (name: string, more = ''): string => api(`sinks/${seg(name)}${more}`);

const KINDS: Record<string, '' | 'bad' | 'note' | 'good'> = { running: 'good', retrying: 'note', paused: 'note', quiet: 'note', waiting: 'note' };

/** The state of a sink, with a sign beside the word. */
export function State({ of: { state, why } }: { of: Pick<SinkSummary, 'state' | 'why'> }) {
  const kind = KINDS[state] ?? 'bad';
  const sign = kind === 'good' ? '●' : kind === 'bad' ? '▲' : '◆';
  return <Badge kind={kind} title={why || undefined}>{`${sign} ${state}`}</Badge>;
}

/** Topics, or a queue (`queue:NAME`), that a sink reads. */
export const Sources = ({ of }: { of: string[] }) => (
  <>
    {of.map((name) => (
      <span key={name}>
        {name.startsWith('queue:') ? visible(name) : <Link href={to(['topics', name])}>{visible(name)}</Link>}{' '}
      </span>
    ))}
  </>
);

const COLUMNS: Column<SinkSummary>[] = [
  {
    head: 'Name',
    sort: 'name',
    cell: ({ name }) => (
      <Link className="name" href={to(['sinks', name])}>
        {visible(name)}
      </Link>
    ),
    text: ({ name }) => name,
  },
  { head: 'State', cell: (sink) => <State of={sink} />, text: ({ state }) => state },
  { head: 'Lag', num: true, cell: ({ lag }) => <span title={count(lag)}>{short(lag)}</span>, text: ({ lag }) => lag },
  { head: 'Reads', phone: 'full', cell: ({ from }) => <Sources of={from} />, text: ({ from }) => from.join(' ') },
  { head: 'Writes to', cell: ({ to: kind }) => visible(kind), text: ({ to: kind }) => kind },
  { head: 'Rows', num: true, phone: 'less', cell: ({ rows }) => <span title={count(rows)}>{short(rows)}</span>, text: ({ rows }) => rows },
  { head: 'Dead letters', num: true, phone: 'less', cell: ({ poison }) => count(poison), text: ({ poison }) => poison },
  { head: 'Why', phone: 'full', wide: true, cell: ({ why }) => visible(why) || '–', text: ({ why }) => why },
];

export const Sinks = () => (
  <>
    <Head title="Sinks" />
    <List<SinkSummary>
      path="sinks"
      columns={COLUMNS}
      keyOf={({ name }) => name}
      noun="sinks"
      openAt={(name) => to(['sinks', name])}
      empty={
        <>
          <p>
            <strong>There is no sink yet.</strong> A sink writes the records of topics into a database, files, topics of another broker, or a webhook. Its position lies there, in one piece with the rows. Define one in a
            file, check it, and give it to the broker:
          </p>
          <Commands text={'stafett sink check -f sinks.toml\nstafett sink define -f sinks.toml'} />
        </>
      }
    />
  </>
);
