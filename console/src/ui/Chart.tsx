// History of rates and counts: lines over time, a legend with the latest values, the same figures as a table and as CSV.
import { useEffect, useMemo, useRef, useState } from 'react';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { useHistory } from '../api/live';
import { usePageSettings } from '../api/session';
import type { History } from '../api/types';
import { byteRate, bytes, short, time } from './format';
import { Failure, save } from './parts';
import { useParam } from './route';
import { Scroll, Table, type Column } from './Table';
import { useTheme } from './theme';

export interface Series {
  name: string;
  label: string;
}

/** One chart of an object's history. */
export interface Drawn {
  title: string;
  series: Series[];
  format: (value: number | null | undefined) => string;
}

interface Props extends Drawn {
  history: History | undefined;
  isPending: boolean;
}

const RANGES = [1, 5, 15, 60];

export function useMinutes(): number {
  const [text] = useParam('range');
  const minutes = Number(text);
  return RANGES.includes(minutes) ? minutes : 15;
}

export function Ranges() {
  const minutes = useMinutes();
  const [, set] = useParam('range');
  const longer = usePageSettings()?.prometheus_url;
  return (
    <div className="row">
      {longer && (
        <a href={longer} target="_blank" rel="noopener noreferrer">
          Longer, in Prometheus
        </a>
      )}
      <div className="chips" role="group" aria-label="Time range of the charts">
      {RANGES.map((range) => (
        <button key={range} type="button" className="chip" aria-pressed={range === minutes} onClick={() => set(range === 15 ? undefined : String(range))}>
          {range === 60 ? '1 h' : `${range} min`}
        </button>
      ))}
      </div>
    </div>
  );
}

/** The charts of a page, which are of one object: their history is one state. */
export function Charts({ of, namespace, charts }: { of: string; namespace?: string; charts: readonly Drawn[] }) {
  const names = charts.flatMap(({ series }) => series.map(({ name }) => name));
  const found = useHistory(of, names, useMinutes(), namespace);
  return (
    <>
      <Failure error={found.error} />
      <div className={charts.length > 2 ? 'grid charts' : charts.length > 1 ? 'grid' : ''}>
        {charts.map((chart) => (
          <Chart key={chart.title} {...chart} history={found.data} isPending={found.isPending} />
        ))}
      </div>
    </>
  );
}

function Chart({ title, series, format, history, isPending }: Props) {
  const theme = useTheme();
  const data = useMemo<uPlot.AlignedData | undefined>(() => {
    if (!history || history.missing) return undefined;
    const lines = series.map(({ name }) => history.series[name] ?? []);
    const from = Date.parse(history.from) / 1000;
    const length = Math.max(0, ...lines.map((line) => line.length));
    const times = Array.from({ length }, (_, index) => from + (index + 1) * history.step_s);
    return [times, ...lines] as uPlot.AlignedData;
  }, [history, series]);
  const isUnknown = !data || data.slice(1).every((line) => [...line].every((value) => value == null));
  return (
    <figure className="chart card" aria-label={title}>
      <header className="row">
        <h3>{title}</h3>
      </header>
      {isUnknown ? (
        <div className="plot">
          <p className="quiet small">{isPending ? '' : 'Nothing was counted in this time. The history begins when something is, and is kept for an hour.'}</p>
        </div>
      ) : (
        <Plot key={theme + series.length} data={data} series={series} format={format} />
      )}
      <div className="legend">
        {series.map(({ name, label }, index) => (
          <span key={name}>
            <i className={`k${index}`} />
            {label} <b>{format(latest(history?.series[name]))}</b>
          </span>
        ))}
      </div>
      {!isUnknown && <Values data={data} series={series} format={format} title={title} />}
    </figure>
  );
}

const latest = (line: (number | null)[] | undefined): number | null => line?.findLast((value) => value != null) ?? null;

interface Plotted {
  data: uPlot.AlignedData;
  series: Series[];
  format: Props['format'];
  /** False if the horizontal axis has plain numbers instead of times. */
  clock?: boolean;
  /** Series whose points are joined over gaps; the others are points alone. All are lines with gaps by default. */
  joined?: boolean[];
  /** Pairs of series, by their numbers from 1 on, between which the area is filled. */
  bands?: [number, number][];
}

export function Plot({ data, series, format, clock = true, joined, bands = [] }: Plotted) {
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined);
  useEffect(() => {
    const element = holder.current;
    if (!element) return undefined;
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour('--muted'), grid: { stroke: colour('--grid'), width: 1 }, ticks: { stroke: colour('--grid'), width: 1 }, font: '11px system-ui, sans-serif' };
    const made = new uPlot(
      {
        width: element.clientWidth,
        height: 180,
        padding: [10, 14, 0, 0],
        legend: { show: false },
        cursor: { sync: { key: 'page' }, y: false, points: { size: 6 } },
        scales: { x: { time: clock }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.08 : 1] } },
        axes: [
          { ...axis, size: 26, space: 70, values: (_, ticks) => ticks.map((tick) => (clock ? time(new Date(tick * 1000).toISOString()).replace(/:00$/, '').slice(-8) : short(tick))) },
          { ...axis, size: 62, space: 34, incrs: isBinary(format) ? BINARY : undefined, values: (_, ticks) => ticks.map((tick) => format(tick)) },
        ],
        series: [{}, ...series.map(({ label }, index) => ({ label, stroke: colour(`--c${index}`), spanGaps: joined?.[index] ?? false, ...drawn(joined?.[index] ?? true) }))],
        bands: bands.map((pair) => ({ series: pair, fill: `${colour('--c0')}33` })),
        plugins: [tip(series, format, clock)],
      },
      data,
      element,
    );
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: 180 }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
    };
    // The data comes by the effect below.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [series, format]);
  useEffect(() => plot.current?.setData(data), [data]);
  return <div className="plot" ref={holder} aria-hidden="true" />;
}

const drawn = (isLine: boolean): Partial<uPlot.Series> => (isLine ? { width: 1.5, points: { show: false } } : { width: 0, points: { show: true, size: 7 } });

/** Steps of an axis of bytes. */
const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);
const isBinary = (format: Props['format']): boolean => format === bytes || format === byteRate;

/** The values under the pointer. */
function tip(series: Series[], format: Props['format'], clock: boolean): uPlot.Plugin {
  const element = document.createElement('div');
  element.className = 'tip';
  return {
    hooks: {
      init: (plot) => void plot.over.append(element),
      setCursor: (plot) => {
        const { idx, left = -1 } = plot.cursor;
        element.hidden = idx == null || left < 0;
        if (idx == null || left < 0) return;
        const at = plot.data[0][idx];
        const lines = series.map(({ label }, index) => `${label} ${format(plot.data[index + 1]?.[idx])}`);
        element.textContent = [at === undefined ? '' : clock ? time(new Date(at * 1000).toISOString()) : short(at), ...lines].join('\n');
        element.classList.toggle('left', left > plot.over.clientWidth / 2);
      },
    },
  };
}

function Values({ data, series, format, title }: { data: uPlot.AlignedData; series: Series[]; format: Props['format']; title: string }) {
  const [isOpen, setOpen] = useState(false);
  const times = [...data[0]];
  const iso = (at: number) => new Date(at * 1000).toISOString();
  const columns: Column<number>[] = [
    { head: 'Time', cell: (row) => time(iso(times[row] ?? 0)) },
    ...series.map(({ label }, index): Column<number> => ({ head: label, num: true, cell: (row) => format(data[index + 1]?.[row]) })),
  ];
  const csv = () => {
    const head = ['time', ...series.map(({ name }) => name)].join(',');
    const lines = times.map((at, row) => [iso(at), ...series.map((_, index) => data[index + 1]?.[row] ?? '')].join(','));
    save('history.csv', `${[head, ...lines].join('\r\n')}\r\n`);
  };
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>As a table</summary>
      {isOpen && (
        <>
          <button type="button" className="plain small" onClick={csv}>
            Save as CSV
          </button>
          <Scroll low>
            <Table narrow caption={title} columns={columns} rows={times.map((_, row) => row).reverse()} keyOf={String} />
          </Scroll>
        </>
      )}
    </details>
  );
}
