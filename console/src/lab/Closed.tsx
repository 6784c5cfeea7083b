// A closed network (mean value analysis) that is fitted to a run whose clients wait for each answer: its curves
// beside what was measured, the bounds, and what would be with other processors or a shorter delay.
import { useQuery } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import type uPlot from 'uplot';
import { Refusal, request } from '../api/http';
import { Plot } from '../ui/Chart';
import { rate, share, short } from '../ui/format';
import { Badge, Facts, Failure, Field } from '../ui/parts';
import { useTheme } from '../ui/theme';
import { lab, type ClosedFit } from './api';

const millis = (value: number | null | undefined): string => (value == null ? '–' : `${short(value)} ms`);
const JOINED = [true, true, true, false];

export function ClosedOf({ run, system }: { run: string; system: string }) {
  const [processors, setProcessors] = useState('1');
  const [delay, setDelay] = useState('1');
  const [times, setTimes] = useState('1.5');
  const asked = { run, system, processors: Number(processors), delay: Number(delay) };
  const first = useQuery<ClosedFit>({ queryKey: ['closed', run, system], queryFn: ({ signal }) => request('POST', lab('models/closed'), { json: { run, system } }, signal) });
  const most = Math.max(1, ...(first.data?.measured.map(({ clients }) => clients) ?? []));
  const found = useQuery<ClosedFit>({
    queryKey: ['closed', asked, times, most],
    queryFn: ({ signal }) => request('POST', lab('models/closed'), { json: { ...asked, clients: Math.min(10_000, Math.ceil(most * Number(times))) } }, signal),
    enabled: first.data !== undefined,
    placeholderData: first.data,
  });
  // A run without closed loops has no such network: there is nothing to say.
  if (first.error instanceof Refusal && first.error.status === 400) return null;
  const fit = found.data ?? first.data;
  if (!fit) return <Failure error={first.error ?? found.error} />;
  const isChanged = asked.processors !== 1 || asked.delay !== 1;
  return (
    <section className="card" aria-label="Closed network">
      <h2>Closed network {fit.fits !== null && (fit.fits ? <Badge kind="good">fits</Badge> : <Badge kind="bad">does not fit</Badge>)}</h2>
      <p className="small quiet">Clients that wait for each answer, by exact mean value analysis. The demands are those of the point with the fewest clients; client and broker share the processors of one machine.</p>
      <Facts
        rows={[
          ...fit.centres.map(({ name, demand_s: demand, servers }): [string, string] => [name, `${millis(demand * 1000)} a message${servers > 0 ? `, ${servers} with one queue` : ', without a queue'}`]),
          ['Think time', millis(fit.think_s * 1000)],
          ['Knee', `${short(fit.knee)} clients: beyond, the bottleneck decides`],
          ['Largest difference', fit.difference === null ? '–' : share(fit.difference)],
        ]}
      />
      {fit.fits === false && <p className="small">One sync serves many messages, so the delay falls with load; or the clients were at their limit.</p>}
      <div className="form two">
        <Field label={`${processors} times the processors`}>
          <input type="range" min="0.5" max="4" step="0.5" value={processors} onChange={(event) => setProcessors(event.target.value)} />
        </Field>
        <Field label={`${delay} times the delay`} help="Disk and network, such as a disk that syncs in half the time.">
          <input type="range" min="0.1" max="2" step="0.1" value={delay} onChange={(event) => setDelay(event.target.value)} />
        </Field>
        <Field label={`Up to ${times} times the clients`}>
          <input type="range" min="1" max="10" step="0.5" value={times} onChange={(event) => setTimes(event.target.value)} />
        </Field>
      </div>
      <Failure error={found.error} />
      <div className="grid">
        <Curves title="Messages per second" fit={fit} isChanged={isChanged} of={({ rate: it }) => it} bound={({ rate_max: it }) => it} show={rate} />
        <Curves title="Response time" fit={fit} isChanged={isChanged} of={({ response_s: it }) => it * 1000} bound={({ response_s_min: it }) => it * 1000} show={millis} />
      </div>
    </section>
  );
}

type Row = ClosedFit['fitted'][number];

function Curves({ title, fit, isChanged, of, bound, show }: { title: string; fit: ClosedFit; isChanged: boolean; of: (row: Row) => number; bound: (row: ClosedFit['bounds'][number]) => number; show: typeof rate }) {
  const theme = useTheme();
  const series = useMemo(
    () => [
      { name: 'fitted', label: 'the fitted network' },
      { name: 'predicted', label: isChanged ? 'predicted by MVA' : 'as it is' },
      { name: 'bound', label: 'bound' },
      { name: 'measured', label: 'measured' },
    ],
    [isChanged],
  );
  const measured = new Map(fit.measured.map((row) => [Math.round(row.clients), of(row)]));
  const data = [
    fit.fitted.map(({ clients }) => clients),
    fit.fitted.map(of),
    fit.predicted.map(of),
    fit.bounds.map(bound),
    fit.fitted.map(({ clients }) => measured.get(clients) ?? null),
  ] as uPlot.AlignedData;
  return (
    <figure className="chart" aria-label={`${title} over clients`}>
      <h3>{title}, over clients</h3>
      <Plot key={theme} data={data} series={series} format={show} clock={false} joined={JOINED} />
      <div className="legend">
        {series.map(({ name, label }, index) => (
          <span key={name}>
            <i className={`k${index}`} />
            {label}
          </span>
        ))}
      </div>
    </figure>
  );
}
