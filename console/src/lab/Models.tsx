// Queueing models: fitted to a run, drawn beside it, and changed by hand.
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type uPlot from 'uplot';
import { request } from '../api/http';
import { Plot } from '../ui/Chart';
import { rate, share, short } from '../ui/format';
import { Badge, Facts, Failure, Field, Head } from '../ui/parts';
import { useTheme } from '../ui/theme';
import { ClosedOf } from './Closed';
import { lab, usePolled, type Listed, type Modelled, type Run } from './api';

const SERIES = [
  { name: 'model', label: 'predicted by the model' },
  { name: 'measured', label: 'measured' },
];
const STEPS = 60;
const millis = (value: number | null | undefined): string => (value == null ? '–' : `${short(value)} ms`);

export function ModelsPage() {
  const runs = usePolled<Listed<Run>>(lab('runs?count=1000'), 5000).data?.items.filter(({ done }) => done > 0) ?? [];
  const [id, setId] = useState('');
  const [system, setSystem] = useState('');
  const [latency, setLatency] = useState('delivery');
  const [servers, setServers] = useState('1');
  const [room, setRoom] = useState('');
  const [by, setBy] = useState('1');
  const run = runs.find((it) => it.id === id) ?? runs[0];
  const chosen = run?.systems.includes(system) ? system : run?.systems[0];
  const fit = run && chosen ? { run: run.id, system: chosen, latency, servers: Number(servers) || 1, room: room ? Number(room) : null } : undefined;
  const fitted = useQuery<Modelled>({
    queryKey: ['models', fit],
    queryFn: ({ signal }) => request<Modelled>('POST', lab('models'), { json: { fit } }, signal),
    enabled: fit !== undefined,
  });
  const model = fitted.data;
  const changed = (model?.service_rate ?? 0) * (Number(by) || 1);
  const top = Math.max(0, ...(model?.measured.map((it) => it.rate) ?? [])) * 1.1;
  const rates = Array.from({ length: STEPS }, (_, step) => (top * (step + 1)) / STEPS);
  const curve = useQuery<Modelled>({
    queryKey: ['curve', changed, fit?.servers, fit?.room, top],
    queryFn: ({ signal }) =>
      request<Modelled>('POST', lab('models'), { json: { station: { service_rate: changed, servers: fit?.servers ?? 1, room: fit?.room ?? null }, rates } }, signal),
    enabled: changed > 0 && top > 0,
  });
  return (
    <>
      <Head title="Models" />
      <p className="small quiet">A station with Poisson arrivals and exponential service (M/M/1, M/M/m, M/M/m/B). Its rate of service is fitted to a run with several rates, by least squares of relative differences.</p>
      {runs.length === 0 ? (
        <div className="empty">No run has points yet.</div>
      ) : (
        <div className="form two">
          <Field label="Run">
            <select value={run?.id ?? ''} onChange={(event) => setId(event.target.value)}>
              {runs.map((it) => (
                <option key={it.id} value={it.id}>
                  {it.notes.title ?? it.id}
                </option>
              ))}
            </select>
          </Field>
          <Field label="System">
            <select value={chosen ?? ''} onChange={(event) => setSystem(event.target.value)}>
              {run?.systems.map((it) => (
                <option key={it}>{it}</option>
              ))}
            </select>
          </Field>
          <Field label="Latency">
            <select value={latency} onChange={(event) => setLatency(event.target.value)}>
              {['delivery', 'acknowledged', 'round_trip'].map((it) => (
                <option key={it} value={it}>
                  {it.replace('_', ' ')}
                </option>
              ))}
            </select>
          </Field>
          <Field label="Servers, m" help="Cores, or threads that serve.">
            <input type="number" min="1" max="1024" value={servers} onChange={(event) => setServers(event.target.value)} />
          </Field>
          <Field label="Room, B" help="Messages that find room; empty: no bound.">
            <input type="number" min="1" max="100000" value={room} onChange={(event) => setRoom(event.target.value)} />
          </Field>
          <Field label={`Service ${by} times as fast`} help="What if: the curve, not the points.">
            <input type="range" min="0.25" max="4" step="0.25" value={by} onChange={(event) => setBy(event.target.value)} />
          </Field>
        </div>
      )}
      <Failure error={fitted.error ?? curve.error} />
      {run && chosen && <ClosedOf key={`${run.id} ${chosen}`} run={run.id} system={chosen} />}
      {model && (
        <section className="card" aria-label="Fit">
          <h2>Fit {model.fits !== null && (model.fits ? <Badge kind="good">fits</Badge> : <Badge kind="bad">does not fit</Badge>)}</h2>
          <Facts
            rows={[
              ['Rate of one server', rate(model.service_rate)],
              ['Largest difference', model.difference === null ? '–' : `${share(model.difference)} in the middle half of the rates`],
              ['Points', String(model.measured.length)],
            ]}
          />
          {model.fits === false && <p className="small">Arrivals that are not Poisson, batches (one sync serves many) or a client at its limit make a system another one than this model.</p>}
          {curve.data && <Curve rates={rates} curve={curve.data} model={model} />}
        </section>
      )}
    </>
  );
}

function Curve({ rates, curve, model }: { rates: number[]; curve: Modelled; model: Modelled }) {
  const theme = useTheme();
  const all = [...rates.map((at, index) => ({ at, model: curve.open[index]?.response_s ?? null, measured: null as number | null }))];
  for (const { rate: at, response_s } of model.measured) all.push({ at, model: null, measured: response_s });
  all.sort((a, b) => a.at - b.at);
  const ms = (value: number | null) => (value === null ? null : value * 1000);
  const data: uPlot.AlignedData = [all.map(({ at }) => at), all.map((it) => ms(it.model)), all.map((it) => ms(it.measured))];
  return (
    <figure className="chart" aria-label="Response time over the rate">
      <h3>Response time over the rate</h3>
      <Plot key={theme} data={data} series={SERIES} format={millis} clock={false} joined={[true, false]} />
      <div className="legend">
        {SERIES.map(({ name, label }, index) => (
          <span key={name}>
            <i className={`k${index}`} />
            {label}
          </span>
        ))}
      </div>
    </figure>
  );
}
