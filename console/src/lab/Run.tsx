// One run: as it goes on, its points, the effects of its factors, laws, and its files.
import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import type uPlot from 'uplot';
import { seg } from '../api/http';
import { Action } from '../ui/Action';
import { Plot } from '../ui/Chart';
import { bytes, duration, rate, short, time } from '../ui/format';
import { Badge, Commands, Durability, Facts, Failure, Field, Figures, Head, Tabs, useTab } from '../ui/parts';
import { go, Link, to, useParam } from '../ui/route';
import { Scroll, Table, type Column } from '../ui/Table';
import { useTheme } from '../ui/theme';
import { isUp, lab, parameters, usePolled, type Law, type Listed, type Point, type Run, type Second } from './api';
import { EffectsOf } from './Effects';
import { PointOf } from './PointPage';
import { iso, Outcomes, Progress, StateBadge } from './Runs';

export function RunPage({ id }: { id: string }) {
  const found = usePolled<Run>(lab(`runs/${seg(id)}`));
  const run = found.data;
  const tab = useTab('run');
  if (!run) return <Failure error={found.error} />;
  return (
    <>
      <Head title={run.notes.title ?? run.id} trail={['Runs', to([])]} badges={<><StateBadge run={run} />{run.notes.archived && <Badge>archived</Badge>}</>}>
        <Controls run={run} />
      </Head>
      <p className="question">{run.question}</p>
      {run.reason && <div className="error">{run.reason}</div>}
      <Tabs of={[['run', 'Run'], ['points', 'Points'], ['effects', 'Effects'], ['laws', 'Laws'], ['files', 'Files']]} />
      {tab === 'run' && <Live run={run} />}
      {tab === 'points' && <Points run={run} />}
      {tab === 'effects' && <EffectsOf id={run.id} done={run.done} />}
      {tab === 'laws' && <Laws run={run} />}
      {tab === 'files' && <Files run={run} />}
    </>
  );
}

function Controls({ run }: { run: Run }) {
  const path = lab(`runs/${seg(run.id)}`);
  const [title, setTitle] = useState(run.notes.title ?? '');
  const [labels, setLabels] = useState(run.notes.labels.join(' '));
  const [text, setText] = useState(run.notes.text);
  const isResumable = run.state === 'interrupted' || run.state === 'stopped';
  return (
    <>
      {isUp(run) && (
        <>
          <Action label="Stop" title={`Stop ${run.id}`} confirm="Stop behind this point" call={() => ({ method: 'POST', path: `${path}/stop`, body: { json: {} } })}>
            <p>The point under way is measured to its end. The run can be resumed.</p>
          </Action>
          <Action label="Stop now" destroys title={`Stop ${run.id} now`} confirm="Stop now" call={() => ({ method: 'POST', path: `${path}/stop`, body: { json: { now: true } } })}>
            <p>The point under way is thrown away, {run.done} of {run.points} points stay. The run can be resumed.</p>
          </Action>
        </>
      )}
      {run.state === 'queued' && (
        <Action label="Do not run" title={`Take ${run.id} out of the queue`} confirm="Take it out" call={() => ({ method: 'DELETE', path })} after={() => go(to([]))} />
      )}
      {isResumable && (
        <Action label="Resume" className="main" title={`Resume ${run.id}`} confirm="Resume" call={() => ({ method: 'POST', path: `${path}/resume` })}>
          <p>{run.points - run.done} of {run.points} points are missing. They are measured with the experiment as it was.</p>
        </Action>
      )}
      <Action
        label="Note"
        title={`Note on ${run.id}`}
        confirm="Save"
        call={() => ({ method: 'PATCH', path, body: { json: { title, labels: labels.split(/[\s,]+/).filter(Boolean), text } } })}
      >
        <div className="form">
          <Field label="Title">
            <input value={title} onChange={(event) => setTitle(event.target.value)} />
          </Field>
          <Field label="Labels">
            <input value={labels} onChange={(event) => setLabels(event.target.value)} />
          </Field>
          <Field label="Text">
            <textarea value={text} onChange={(event) => setText(event.target.value)} />
          </Field>
        </div>
      </Action>
      {!isUp(run) && run.state !== 'queued' && (
        <>
          <Action
            label={run.notes.archived ? 'Take out of the archive' : 'Archive'}
            title={run.notes.archived ? `Take ${run.id} out of the archive` : `Archive ${run.id}`}
            confirm={run.notes.archived ? 'Take it out' : 'Archive'}
            call={() => ({ method: 'POST', path: `${path}/${run.notes.archived ? 'unarchive' : 'archive'}` })}
          />
          <Action label="Delete" destroys title={`Delete ${run.id}`} confirm="Delete" typed={run.id} call={() => ({ method: 'DELETE', path })} after={() => go(to([]))}>
            <p>{run.done} measured points, the report and all logs are deleted from the disk.</p>
          </Action>
        </>
      )}
    </>
  );
}

interface Events {
  seconds: Second[];
  lines: string[];
}

/** Follows a run: seconds of the point under way, and lines about the rest. */
function useFollowed(id: string, isOn: boolean): Events {
  const [events, setEvents] = useState<Events>({ seconds: [], lines: [] });
  const client = useQueryClient();
  useEffect(() => {
    if (!isOn) return undefined;
    const source = new EventSource(lab(`runs/${seg(id)}/events`));
    const on = (name: string, take: (before: Events, value: Record<string, unknown>) => Events) =>
      source.addEventListener(name, (event) => {
        const value = JSON.parse((event as MessageEvent<string>).data) as Record<string, unknown>;
        setEvents((before) => take(before, value));
      });
    const add = (before: Events, line: string): Events => ({ ...before, lines: [...before.lines, line].slice(-200) });
    on('does', (before, { text }) => add(before, String(text)));
    on('point', (before, { number, system, parameters: of, repetition }) => ({
      ...add(before, `point ${String(number)}: ${String(system)} ${parameters(of as Record<string, unknown>)} #${String(repetition)}`),
      seconds: [],
    }));
    on('second', (before, value) => ({ ...before, seconds: [...before.seconds, value as unknown as Second].slice(-3600) }));
    on('ended', (before, { number, outcome, reason }) => {
      void client.invalidateQueries({ queryKey: [lab(`runs/${seg(id)}/points?count=1000`)] });
      return add(before, `point ${String(number)} ${String(outcome)}${reason ? `: ${String(reason)}` : ''}`);
    });
    on('closed', (before, { status }) => add(before, `the run is ${String(status)}`));
    return () => source.close();
  }, [client, id, isOn]);
  return events;
}

const RATE = [
  { name: 'rate', label: 'acknowledged' },
  { name: 'received', label: 'received' },
];
const LATENCY = [
  { name: 'p50', label: 'median' },
  { name: 'p2_5', label: '2.5 %' },
  { name: 'p97_5', label: '97.5 %' },
  { name: 'p99', label: 'p99' },
];
const CPU = [
  { name: 'broker', label: 'broker' },
  { name: 'client', label: 'client' },
];
const STORE = [
  { name: 'memory', label: "broker's memory" },
  { name: 'written', label: 'written to disk in a second' },
];
const millis = (value: number | null | undefined): string => (value == null ? '–' : `${short(value)} ms`);

function Live({ run }: { run: Run }) {
  const isOn = isUp(run);
  const { seconds, lines } = useFollowed(run.id, isOn);
  const theme = useTheme();
  const now = run.now;
  const times = seconds.map(({ at_s }) => at_s);
  const line = (of: (second: Second) => number | null | undefined, by = 1) => seconds.map((second) => (of(second) == null ? null : of(second)! / by));
  const rates: uPlot.AlignedData = [times, line(({ rate: it }) => it), line(({ received_rate: it }) => it)];
  const latencies: uPlot.AlignedData = [times, line((it) => it.p50_us, 1000), line((it) => it.p2_5_us, 1000), line((it) => it.p97_5_us, 1000), line((it) => it.p99_us, 1000)];
  const cpus: uPlot.AlignedData = [times, line((it) => it.broker_cpu), line((it) => it.client_cpu)];
  const stores: uPlot.AlignedData = [times, line((it) => it.broker_memory_bytes), line((it) => it.broker_disk_written)];
  const last = seconds.at(-1);
  return (
    <>
      <Figures
        of={[
          { name: 'Points', value: `${run.done} of ${run.points}`, more: isOn && run.left_s !== null ? `${duration(run.left_s * 1000)} left` : undefined },
          { name: 'Failed', value: String(run.failed) },
          { name: 'Begun', value: time(iso(run.begun)) },
          { name: 'Took', value: run.begun === null ? '–' : duration((run.ended ?? Date.now()) - run.begun) },
          ...(now?.rate === undefined ? [] : [{ name: 'Rate', value: rate(now.rate), more: <Durability level={now.durability} /> }]),
          ...(now?.p99_us == null ? [] : [{ name: 'p99', value: millis(now.p99_us / 1000), more: <Durability level={now.durability} /> }]),
        ]}
      />
      {isOn && (
        <section className="card" aria-label="Under way">
          <h2>Under way</h2>
          <p>
            {now?.number === undefined ? (now?.does ?? 'starting') : `Point ${now.number}: ${now.system ?? ''}, ${parameters(now.parameters)}, repetition ${now.repetition ?? 1}`}{' '}
            {now?.number !== undefined && <Durability level={now.durability} />}
          </p>
          {now?.of_s !== undefined ? (
            <p className="row">
              <progress max={now.of_s} value={now.at_s ?? 0} aria-label="Time of the point" /> {Math.round(now.at_s ?? 0)} of {Math.round(now.of_s)} s
            </p>
          ) : (
            now?.does && <p className="quiet">{now.does}</p>
          )}
          {last?.clients !== undefined && (
            <p className="quiet small">
              {last.clients} clients at work, {last.timed_out ?? 0} not answered in time, {last.reconnects ?? 0} reconnects in the last second
            </p>
          )}
          {seconds.length > 1 && (
            <div className="grid charts">
              <Watched title="Messages per second" theme={theme} data={rates} series={RATE} format={rate} />
              <Watched title="Latency: median, the band from 2.5 to 97.5 %, and p99" theme={theme} data={latencies} series={LATENCY} format={millis} bands={BAND} />
              <Watched title="Processors" theme={theme} data={cpus} series={CPU} format={short} />
              <Watched title="Memory and disk of the broker" theme={theme} data={stores} series={STORE} format={bytes} />
            </div>
          )}
        </section>
      )}
      <Heat run={run} />
      {lines.length > 0 && (
        <section className="card" aria-label="Log">
          <h2>Log</h2>
          <pre tabIndex={0} className="log">
            {lines.join('\n')}
          </pre>
        </section>
      )}
      {run.done > 0 && (
        <p>
          <a className="button" href={lab(`runs/${seg(run.id)}/report.html`)} target="_blank" rel="noopener">
            Report
          </a>
        </p>
      )}
      {run.command && (
        <section aria-label="Command">
          <h3>The command that repeats it</h3>
          <Commands text={run.command} />
        </section>
      )}
      {run.environment && (
        <section className="card" aria-label="Machine">
          <h2>Machine</h2>
          <Facts
            rows={[
              ['Processor', `${run.environment.cpu}, ${run.environment.cores} cores`],
              ['Memory', bytes(run.environment.memory_bytes)],
              ['Kernel', run.environment.kernel],
              ['Disk', run.environment.disk],
              ['Stafett', `${run.environment.stafett} ${run.environment.revision ?? ''}`],
              ...Object.entries(run.environment.versions).map(([system, version]): [string, string] => [system, version]),
            ]}
          />
        </section>
      )}
    </>
  );
}

const BAND: [number, number][] = [[3, 2]];

/** A series of the point under way; without values it is left out. */
function Watched({ title, theme, data, series, format, bands }: { title: string; theme: string; data: uPlot.AlignedData; series: { name: string; label: string }[]; format: (value: number | null | undefined) => string; bands?: [number, number][] }) {
  if (data.slice(1).every((values) => [...values].every((value) => value == null))) return null;
  return (
    <figure className="chart" aria-label={title}>
      <h3>{title}</h3>
      <Plot key={theme} data={data} series={series} format={format} clock={false} bands={bands} />
      <div className="legend">
        {series.map(({ name, label }, index) => (
          <span key={name}>
            <i className={`k${index}`} />
            {label} <b>{format(data[index + 1]?.[data[0].length - 1])}</b>
          </span>
        ))}
      </div>
    </figure>
  );
}

function usePoints(run: Run) {
  // A run that waits, or just begins, has no list of points yet.
  return usePolled<Listed<Point>>(run.points > 0 ? lab(`runs/${seg(run.id)}/points?count=1000`) : null, isUp(run) ? 2000 : 60_000);
}

/** The points in their grid: a row for each system and setting, a cell for each repetition. */
function Heat({ run }: { run: Run }) {
  const points = usePoints(run).data?.items ?? [];
  const rows = new Map<string, Point[]>();
  for (const point of points) {
    const key = `${point.system} ${parameters(point.parameters)}`;
    rows.set(key, [...(rows.get(key) ?? []), point]);
  }
  if (rows.size === 0) return null;
  return (
    <section className="card" aria-label="Grid">
      <h2>Grid</h2>
      <ul className="heat">
        {[...rows].map(([key, cells]) => (
          <li key={key}>
            <span className="cells">
              {cells.map((point) => {
                const isNow = point.outcome === 'open' && run.now?.number === point.number;
                const state = isNow ? 'under way' : point.outcome;
                return (
                  <Link
                    key={point.number}
                    className={`cell is-${isNow ? 'now' : point.outcome}`}
                    href={to(['runs', run.id], { tab: 'points', point: String(point.number) })}
                    aria-label={`Point ${point.number}: ${state}`}
                    title={`Point ${point.number}, repetition ${point.repetition}: ${state}${point.reason ? `: ${point.reason}` : ''}`}
                  />
                );
              })}
            </span>
            {key}
          </li>
        ))}
      </ul>
      <p className="small quiet">
        <span className="cell is-done" /> done <span className="cell is-now" /> under way <span className="cell is-open" /> open <span className="cell is-failed" /> failed or refused <span className="cell is-lost" /> lost
        messages <span className="cell is-skipped" /> skipped
      </p>
    </section>
  );
}

const metric = (name: string, show: (value: number) => string) => (point: Point) => {
  const value = point.metrics[name];
  return value === undefined ? <span className="quiet">–</span> : show(value);
};
const latency = (value: number) => millis(value / 1000);

const columns = (id: string): Column<Point>[] => [
  { head: 'Point', num: true, cell: ({ number, outcome }) => (outcome === 'open' ? number : <Link href={to(['runs', id], { tab: 'points', point: String(number) })}>{number}</Link>) },
  { head: 'System', cell: ({ system }) => system },
  { head: 'Parameters', cell: (point) => parameters(point.parameters), phone: 'full' },
  { head: 'Repetition', num: true, cell: ({ repetition }) => repetition },
  {
    head: 'Outcome',
    cell: ({ outcome, reason }) => (
      <Badge kind={outcome === 'done' ? 'good' : outcome === 'open' || outcome === 'skipped' ? '' : 'bad'} title={reason ?? undefined}>
        {outcome}
      </Badge>
    ),
  },
  { head: 'Durability', cell: ({ durability }) => <Durability level={durability} /> },
  { head: 'In', num: true, cell: metric('produce_rate', rate) },
  { head: 'Out', num: true, cell: metric('consume_rate', rate) },
  { head: 'Delivery p99', num: true, cell: metric('delivery_p99_us', latency) },
  { head: 'Acknowledged p99', num: true, cell: metric('acknowledged_p99_us', latency), phone: 'less' },
  { head: 'Broker CPU-s per M', num: true, cell: metric('broker_cpu_per_million', short) },
  { head: 'Remarks', cell: ({ remarks, reason }) => [reason, ...remarks].filter(Boolean).join('; '), phone: 'full' },
];

function Points({ run }: { run: Run }) {
  const found = usePoints(run);
  const rows = found.data?.items ?? [];
  const [point] = useParam('point');
  return (
    <>
      <Failure error={found.error} />
      {point !== undefined && <PointOf key={point} run={run.id} number={point} />}
      <div className="row">
        <a className="button" href={lab(`runs/${seg(run.id)}/points.csv`)} download={`${run.id}.csv`}>
          CSV
        </a>
        <a className="button" href={lab(`runs/${seg(run.id)}/points.ndjson`)} download={`${run.id}.ndjson`}>
          JSON lines
        </a>
      </div>
      {rows.length > 0 && (
        <Scroll>
          <Table caption="Points" columns={columns(run.id)} rows={rows} keyOf={({ number }) => String(number)} />
        </Scroll>
      )}
      <Outcomes run={run} />
    </>
  );
}

const LAWS: Record<Law['law'], [string, string]> = {
  interactive_response_time: ['Response time, R = N / X', 'clients in a closed loop'],
  little: ['Little, N = X · R', 'messages on their way'],
  bound: ['Bound, X ≤ 1 / D', 'processor time of a message'],
};

const LAW_COLUMNS: Column<Law>[] = [
  { head: 'Point', num: true, cell: ({ point }) => point },
  { head: 'System', cell: ({ system }) => system },
  { head: 'Law', cell: ({ law, role }) => <span title={LAWS[law][1]}>{LAWS[law][0]}{role && ` (${role})`}</span>, phone: 'full' },
  { head: 'Measured', num: true, cell: ({ measured, unit }) => `${short(measured)} ${unit}` },
  { head: 'Computed', num: true, cell: ({ computed, unit }) => `${short(computed)} ${unit}` },
  { head: 'Durability', cell: ({ durability }) => <Durability level={durability} /> },
  { head: 'Difference', num: true, cell: ({ difference, told }) => <Badge kind={told ? 'bad' : 'good'}>{`${difference > 0 ? '+' : ''}${short(difference * 100)} %`}</Badge> },
  { head: 'Meaning', cell: ({ text }) => text ?? '', phone: 'full' },
];

function Laws({ run }: { run: Run }) {
  const found = usePolled<{ items: Law[] }>(run.points > 0 ? lab(`runs/${seg(run.id)}/laws`) : null, isUp(run) ? 5000 : 60_000);
  const rows = found.data?.items ?? [];
  return (
    <>
      <p className="small quiet">Relations that hold for any system. A difference says that something was not counted, or that clients were not always waiting.</p>
      <Failure error={found.error} />
      {rows.length > 0 ? (
        <Scroll>
          <Table caption="Operational laws" columns={LAW_COLUMNS} rows={rows} keyOf={(_, index) => String(index)} />
        </Scroll>
      ) : (
        <div className="empty">No point says enough for a law.</div>
      )}
    </>
  );
}

function Files({ run }: { run: Run }) {
  const path = lab(`runs/${seg(run.id)}`);
  const logs = usePolled<{ items: { path: string; bytes: number }[] }>(`${path}/logs`, 5000).data?.items ?? [];
  return (
    <>
      <div className="row">
        <a className="button" href={`${path}/report.html`} target="_blank" rel="noopener">
          Report
        </a>
        <a className="button" href={`${path}/download.zip`} download={`${run.id}.zip`}>
          Everything as zip
        </a>
      </div>
      <ul className="plain-list">
        {logs.map((log) => (
          <li key={log.path}>
            <a href={`${path}/logs/${log.path.split('/').map(encodeURIComponent).join('/')}`} target="_blank" rel="noopener">
              {log.path}
            </a>{' '}
            <span className="quiet small">{bytes(log.bytes)}</span>
          </li>
        ))}
      </ul>
      <Progress run={run} />
    </>
  );
}
