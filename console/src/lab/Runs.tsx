// All runs: the test protocol, failed ones included.
import { useState } from 'react';
import { duration } from '../ui/format';
import { Badge, Failure, Head, Time } from '../ui/parts';
import { Link, to, useParam } from '../ui/route';
import { Table, type Column } from '../ui/Table';
import { CompareLink } from './Compare';
import { isUp, lab, usePolled, type Listed, type Run, type RunState } from './api';

const KINDS: Record<RunState, '' | 'bad' | 'note' | 'good'> = { queued: '', starting: 'note', running: 'note', finished: 'good', interrupted: 'note', stopped: 'bad', refused: 'bad' };

export const StateBadge = ({ run }: { run: Run }) => (
  <Badge kind={KINDS[run.state]} title={run.reason ?? undefined}>
    {run.state}
  </Badge>
);

export const iso = (ms: number | null): string | null => (ms === null ? null : new Date(ms).toISOString());

export function Progress({ run }: { run: Run }) {
  return (
    <span className="row">
      <progress max={run.points || 1} value={run.done} aria-label={`${run.done} of ${run.points} points`} />
      <span className="small">
        {run.done} / {run.points}
        {isUp(run) && run.left_s !== null && <span className="quiet"> {duration(run.left_s * 1000)} left</span>}
      </span>
    </span>
  );
}

/** Outcomes that are not plain success. */
export const Outcomes = ({ run }: { run: Run }) => (
  <span className="badges">
    {run.failed > 0 && <Badge kind="bad">{run.failed} failed</Badge>}
    {run.lost > 0 && <Badge kind="bad">{run.lost} lost messages</Badge>}
    {run.skipped > 0 && <Badge>{run.skipped} skipped</Badge>}
  </span>
);

const COLUMNS: Column<Run>[] = [
  { head: 'Run', cell: (run) => <Link href={to(['runs', run.id])}>{run.notes.title ?? run.id}</Link>, phone: 'full' },
  { head: 'State', cell: (run) => <StateBadge run={run} /> },
  { head: 'Points', cell: (run) => (run.points > 0 ? <Progress run={run} /> : <span className="quiet">{run.reason ?? '–'}</span>) },
  { head: 'Outcomes', cell: (run) => <Outcomes run={run} />, phone: 'less' },
  { head: 'Systems', cell: ({ systems }) => systems.join(', '), phone: 'less' },
  { head: 'Begun', cell: ({ begun }) => <Time at={iso(begun)} /> },
  { head: 'Labels', cell: ({ notes }) => notes.labels.map((label) => <Badge key={label}>{label}</Badge>), phone: 'less' },
];

export function Runs() {
  const [archived, setArchived] = useParam('archived');
  const [text, setText] = useState('');
  const [ticked, setTicked] = useState<string[]>([]);
  const found = usePolled<Listed<Run>>(lab(`runs?count=1000${archived ? '&archived=true' : ''}`));
  const needle = text.toLowerCase();
  const all = found.data?.items ?? [];
  const rows = all.filter(({ id, experiment, notes }) => `${id} ${experiment} ${notes.title ?? ''} ${notes.labels.join(' ')}`.toLowerCase().includes(needle));
  const order = (run: Run): number => (run.state === 'queued' ? Infinity : (run.begun ?? 0));
  rows.sort((a, b) => order(b) - order(a) || a.id.localeCompare(b.id));
  return (
    <>
      <Head title={archived ? 'Archived runs' : 'Runs'}>
        <Link className="button" href={to(['protocol'])}>
          Test protocol
        </Link>
        <Link className="button" href={to(['experiments'])}>
          Choose an experiment
        </Link>
      </Head>
      <div className="tools">
        <input type="search" data-search aria-label="Search runs" placeholder="Search runs" value={text} onChange={(event) => setText(event.target.value)} />
        <div className="chips" role="group" aria-label="Filters">
          <button type="button" className="chip" aria-pressed={Boolean(archived)} onClick={() => setArchived(archived ? undefined : 'true')}>
            Archived
          </button>
        </div>
        {ticked.length > 1 ? <CompareLink ids={ticked} /> : ticked.length === 1 && <span className="quiet small">Tick another run to compare them.</span>}
      </div>
      <Failure error={found.error} />
      {rows.length > 0 && (
        <Table
          caption="Runs"
          columns={COLUMNS}
          rows={rows}
          keyOf={({ id }) => id}
          ticks={{
            of: ({ id, done }) => (
              <input type="checkbox" aria-label={`Compare ${id}`} disabled={done === 0} checked={ticked.includes(id)} onChange={(event) => setTicked(event.target.checked ? [...ticked, id] : ticked.filter((it) => it !== id))} />
            ),
          }}
        />
      )}
      {found.data && rows.length === 0 && (
        <div className="empty">
          {all.length > 0 ? (
            'Nothing matches.'
          ) : (
            <>
              No runs yet. <Link href={to(['experiments'])}>Choose an experiment</Link>; peak with a scale of 0.1 takes some minutes.
            </>
          )}
        </div>
      )}
    </>
  );
}
