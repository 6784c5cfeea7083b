// The test protocol: all runs with what became of them, failed ones too, as one document to be printed.
import { seg } from '../api/http';
import { Durability, Failure, Head } from '../ui/parts';
import { Link, to } from '../ui/route';
import { time } from '../ui/format';
import { lab, parameters, usePolled, type Listed, type Point, type Run } from './api';
import { iso, Outcomes, StateBadge } from './Runs';

export function ProtocolPage() {
  const current = usePolled<Listed<Run>>(lab('runs?count=1000'), 30_000);
  const archived = usePolled<Listed<Run>>(lab('runs?count=1000&archived=true'), 30_000);
  const runs = [...(current.data?.items ?? []), ...(archived.data?.items ?? [])].sort((one, other) => (one.begun ?? Infinity) - (other.begun ?? Infinity));
  return (
    <>
      <Head title="Test protocol" trail={['Runs', to([])]}>
        <button type="button" className="unprinted" disabled={runs.length === 0} onClick={() => window.print()}>
          Print
        </button>
      </Head>
      <Failure error={current.error ?? archived.error} />
      {current.data && runs.length === 0 && <div className="empty">No run has begun yet.</div>}
      {runs.map((run) => (
        <OfRun key={run.id} run={run} />
      ))}
    </>
  );
}

function OfRun({ run }: { run: Run }) {
  const failed = usePolled<Listed<Point>>(run.failed + run.lost > 0 ? lab(`runs/${seg(run.id)}/points?count=1000`) : null, 60_000).data?.items.filter(({ outcome }) => !['done', 'open', 'skipped'].includes(outcome)) ?? [];
  return (
    <article className="card">
      <header>
        <h2>
          <Link href={to(['runs', run.id])}>{run.notes.title ?? run.id}</Link> <StateBadge run={run} />
        </h2>
        <span className="quiet small">
          {time(iso(run.begun))} to {time(iso(run.ended))}
        </span>
      </header>
      <p>{run.question}</p>
      <p className="small">
        {run.experiment}, {run.systems.join(', ')}; {run.done} of {run.points} points. <Outcomes run={run} />
      </p>
      {run.reason && <p className="error">{run.reason}</p>}
      {run.notes.text && <p className="note-text">{run.notes.text}</p>}
      {failed.length > 0 && (
        <ul className="plain-list small">
          {failed.map((point) => (
            <li key={point.number}>
              Point {point.number}: {point.system} {parameters(point.parameters)} #{point.repetition} <Durability level={point.durability} />: {point.outcome}, {point.reason}
            </li>
          ))}
        </ul>
      )}
      {run.command && <pre tabIndex={0}>{run.command}</pre>}
    </article>
  );
}
