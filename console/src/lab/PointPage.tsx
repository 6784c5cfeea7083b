// One point: rates and latencies of its roles, second by second, with the band that holds 95 % of the latencies.
import type uPlot from 'uplot';
import { seg } from '../api/http';
import { Action } from '../ui/Action';
import { Plot } from '../ui/Chart';
import { count, rate, short } from '../ui/format';
import { Badge, Durability, Failure } from '../ui/parts';
import { go, to } from '../ui/route';
import { useTheme } from '../ui/theme';
import { lab, parameters, useStill, type Sample } from './api';

interface Whole {
  system: string;
  version: string;
  repetition: number;
  parameters: Record<string, unknown>;
  outcome: { kind: string; reason: string | null };
  durability: { given: string };
  warmup_s: number;
  measured_s: number;
  roles: { name: string; does: string; clients: number; rate: number; samples: Sample[] }[];
  remarks: string[];
}

const BAND = [
  { name: 'p50', label: 'Median' },
  { name: 'p2_5', label: '2.5 %' },
  { name: 'p97_5', label: '97.5 %' },
];
const RATES = [{ name: 'rate', label: 'Messages' }];
const millis = (value: number | null | undefined): string => (value == null ? '–' : `${short(value)} ms`);
const ms = (value: number | null | undefined): number | null => (value == null ? null : value / 1000);

export function PointOf({ run, number }: { run: string; number: string }) {
  const found = useStill<Whole>(lab(`runs/${seg(run)}/points/${seg(number)}`));
  const point = found.data;
  if (!point) return <Failure error={found.error} />;
  return (
    <section className="card" aria-label={`Point ${number}`}>
      <header>
        <h2>
          Point {number}: {point.system} {point.version} <Durability level={point.durability.given} />
        </h2>
        <Action label="Measure again" title={`Measure point ${number} again`} confirm="Measure it again" call={() => ({ method: 'POST', path: lab(`runs/${seg(run)}/points/${seg(number)}/again`) })} after={() => go(to(['runs', run]))}>
          <p>Its result is kept aside, in points/aside of the run, and the new one has a remark. The run waits in the queue like others.</p>
        </Action>
      </header>
      <p className="small">
        {parameters(point.parameters) || 'no parameters'}, repetition {point.repetition}; {count(point.warmup_s)} s of warm-up, {count(point.measured_s)} s that count.{' '}
        {point.outcome.kind !== 'done' && <Badge kind="bad">{`${point.outcome.kind}: ${point.outcome.reason ?? ''}`}</Badge>}
      </p>
      {point.remarks.map((remark) => (
        <p key={remark} className="small">
          <Badge kind="note">note</Badge> {remark}
        </p>
      ))}
      {point.roles.map((role) => (
        <RoleOf key={role.name} {...role} />
      ))}
    </section>
  );
}

function RoleOf({ name, does, clients, rate: mean, samples }: Whole['roles'][number]) {
  const theme = useTheme();
  const times = samples.map(({ at_s }) => at_s);
  const sends = does === 'produce' || does === 'request';
  const rates: uPlot.AlignedData = [times, samples.map((it) => (sends ? it.acknowledged : it.received) / (it.seconds || 1))];
  const latencies: uPlot.AlignedData = [times, samples.map((it) => ms(it.p50_us)), samples.map((it) => ms(it.p2_5_us)), samples.map((it) => ms(it.p97_5_us))];
  const hasBand = samples.some((it) => it.p97_5_us != null);
  return (
    <>
      <h3>
        {name}: {clients} {clients === 1 ? 'client' : 'clients'}, {does}, {rate(mean)}
      </h3>
      {samples.length > 1 && (
        <div className="grid">
          <figure className="chart" aria-label={`Messages per second of ${name}`}>
            <Plot key={`rate${theme}`} data={rates} series={RATES} format={rate} clock={false} />
            <figcaption className="small quiet">Messages per second, over the seconds of the point</figcaption>
          </figure>
          {samples.some((it) => it.p50_us != null) && (
            <figure className="chart" aria-label={`Latency of ${name}`}>
              <Plot key={`band${theme}`} data={latencies} series={BAND} format={millis} clock={false} bands={hasBand ? [[3, 2]] : []} />
              <figcaption className="small quiet">Latency: median, and the band from 2.5 to 97.5 %{hasBand ? '' : ' (not kept by the program that measured it)'}</figcaption>
            </figure>
          )}
        </div>
      )}
    </>
  );
}
