// Runs beside each other: ratios of a figure to that of the first run, with their intervals.
import { short, share, visible } from '../ui/format';
import { Badge, Durability, Failure, Field, Head } from '../ui/parts';
import { Link, to, useParam } from '../ui/route';
import { Scroll, Table, type Column } from '../ui/Table';
import { lab, parameters, useStill, type Compared, type ComparedLine, type ComparedSide, type Listed, type Run } from './api';

const VERDICTS: Record<NonNullable<ComparedSide['verdict']>, [string, '' | 'good' | 'bad' | 'note']> = {
  better: ['better', 'good'],
  worse: ['worse', 'bad'],
  more: ['more', 'note'],
  less: ['less', 'note'],
  not_told: ['not told apart', ''],
  no_interval: ['without an interval', ''],
};

export function ComparePage() {
  const [text = ''] = useParam('runs');
  const [metric, setMetric] = useParam('metric');
  const ids = text.split(',').filter(Boolean);
  const path = ids.length < 2 ? null : lab(`compare?runs=${encodeURIComponent(ids.join(','))}${metric ? `&metric=${encodeURIComponent(metric)}` : ''}`);
  const found = useStill<Compared>(path);
  const runs = useStill<Listed<Run>>(lab('runs?count=1000')).data?.items ?? [];
  const title = (id: string) => runs.find((run) => run.id === id)?.notes.title ?? id;
  const data = found.data;
  return (
    <>
      <Head title="Compare" trail={['Runs', to([])]} />
      {path === null && <div className="empty">Tick two or more runs in the list of runs.</div>}
      <Failure error={found.error} />
      {data && (
        <>
          <div className="tools">
            <Field label="Figure">
              <select value={data.metric.name} onChange={(event) => setMetric(event.target.value)}>
                {data.metrics.map(({ name, label, unit }) => (
                  <option key={name} value={name}>
                    {label}
                    {unit && `, ${unit}`}
                  </option>
                ))}
              </select>
            </Field>
          </div>
          <Differences data={data} titles={ids.map(title)} />
          <Scroll>
            <Table caption="Comparison" columns={columns(data, ids, title)} rows={data.lines} keyOf={(_, index) => String(index)} />
          </Scroll>
          <p className="small quiet">
            Ratios of means to <b>{visible(title(ids[0] ?? ''))}</b>, with 95 % confidence intervals (Fieller). An interval that holds 1 tells no difference: more repetitions may.
          </p>
          {data.unmatched.length > 0 && (
            <section className="card">
              <h2>Not in {visible(title(ids[0] ?? ''))}</h2>
              <ul className="plain-list">
                {data.unmatched.map(({ run, system, parameters: of }, index) => (
                  <li key={index}>
                    {visible(title(ids[run] ?? ''))}: {system} {parameters(of)}
                  </li>
                ))}
              </ul>
            </section>
          )}
        </>
      )}
    </>
  );
}

const Differences = ({ data, titles }: { data: Compared; titles: string[] }) =>
  data.differences.length === 0 ? null : (
    <section className="card" aria-label="Differences of the runs">
      <h2>Not the same in all runs</h2>
      <Scroll>
        <Table
          caption="Differences of the runs"
          columns={[{ head: 'Fact', cell: ({ what }) => what }, ...titles.map((title, index): Column<Compared['differences'][number]> => ({ head: title, cell: ({ values }) => visible(values[index] ?? '') || '–' }))]}
          rows={data.differences}
          keyOf={({ what }) => what}
        />
      </Scroll>
    </section>
  );

const columns = (data: Compared, ids: string[], title: (id: string) => string): Column<ComparedLine>[] => [
  { head: 'System', cell: ({ system }) => system },
  { head: 'Parameters', cell: (line) => parameters(line.parameters), phone: 'full' },
  ...ids.map((id, index): Column<ComparedLine> => ({
    head: title(id),
    cell: (line) => <Side side={line.sides[index]} unit={data.metric.unit} />,
    phone: 'full',
  })),
];

function Side({ side, unit }: { side: ComparedSide | null | undefined; unit: string }) {
  if (!side) return <span className="quiet">not measured</span>;
  const { estimate, ratio, verdict } = side;
  const spread = estimate.interval && estimate.value !== 0 ? (estimate.interval.high - estimate.interval.low) / 2 / Math.abs(estimate.value) : null;
  return (
    <span className="stack">
      <span>
        {short(estimate.value)} {unit} {spread !== null && <span className="quiet small">± {share(spread)}</span>} <Durability level={side.durability} />
      </span>
      {ratio && verdict && (
        <span>
          <b>× {ratio.value.toFixed(3)}</b> {ratio.interval && <span className="quiet small">{`${ratio.interval.low.toFixed(3)} to ${ratio.interval.high.toFixed(3)}`}</span>}{' '}
          <Badge kind={VERDICTS[verdict][1]}>{VERDICTS[verdict][0]}</Badge>
        </span>
      )}
    </span>
  );
}

export const CompareLink = ({ ids }: { ids: string[] }) => (
  <Link className="button" href={to(['compare'], { runs: ids.join(',') })}>
    Compare {ids.length} runs
  </Link>
);
