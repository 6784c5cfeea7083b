// History of rates and counts: lines over time, a legend with the latest values, the same figures as a table and as CSV.
import { useQuery } from '@tanstack/react-query';
import { useEffect, useMemo, useRef, useState } from 'react';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { api, get } from '../api/http';
import { useHistory, useLive } from '../api/live';
import { usePageSettings } from '../api/session';
import type { EventList, History, SeriesNames } from '../api/types';
import { byteRate, bytes, counted, short, time, visible } from './format';
import { Copy, Failure, save } from './parts';
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

/** Seconds of which a range was chosen by dragging. */
interface Zoom {
  min: number;
  max: number;
}

/** An event, at a time in seconds. */
interface Mark {
  at: number;
  text: string;
}

interface Shared {
  zoom?: Zoom;
  onZoom?: (zoom: Zoom | undefined) => void;
  marks?: Mark[];
}

interface Props extends Drawn, Shared {
  /** Kind of the object. */
  kind: string;
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
  const [zoom, setZoom] = useState<Zoom>();
  const marks = useMarks(of, namespace, found.data);
  return (
    <>
      <Failure error={found.error} />
      <div className={charts.length > 2 ? 'grid charts' : charts.length > 1 ? 'grid' : ''}>
        {charts.map((chart) => (
          <Chart key={chart.title} {...chart} kind={of.split(':', 1)[0] ?? of} history={found.data} isPending={found.isPending} {...{ zoom, marks }} onZoom={setZoom} />
        ))}
      </div>
      {zoom && (
        <p className="row">
          <span className="quiet small">
            {time(iso(zoom.min))} to {time(iso(zoom.max))}
          </span>
          <button type="button" className="plain small" onClick={() => setZoom(undefined)}>
            Whole range
          </button>
        </p>
      )}
      {marks.length > 0 && (
        <details className="below">
          <summary>{counted(marks.length, 'event')} in this time</summary>
          <ul className="plain-list small">
            {marks.map(({ at, text }) => (
              <li key={at + text}>
                <span className="quiet">{time(iso(at))}</span> {visible(text)}
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

const iso = (at: number): string => new Date(at * 1000).toISOString();
const NONE: Mark[] = [];
/** Kinds of events that concern the whole node. */
const OF_NODE = /^(alarm|node|cluster|backup|scrub)\b/;

/** The events of an object within its history, each a line through its charts. */
function useMarks(of: string, namespace: string | undefined, history: History | undefined): Mark[] {
  const [, name] = /^[^:]*:(.*)$/s.exec(of) ?? [];
  const events = useLive<EventList>(api('events', { on: name, count: 200 }), 5000).data?.items;
  const from = history?.from;
  return useMemo(() => {
    if (!from || !events) return NONE;
    const here = events.filter((event) => (name === undefined ? OF_NODE.test(event.kind) : event.kind.startsWith(of.slice(0, of.indexOf(':'))) && (event.on.namespace ?? namespace ?? '/') === (namespace ?? '/')));
    const marks = here.map((event) => ({ at: Date.parse(event.at) / 1000, text: `${event.kind} ${event.text}${event.by ? ` by ${event.by}` : ''}` }));
    return marks.filter(({ at }) => at * 1000 >= Date.parse(from));
  }, [events, from, name, namespace, of]);
}

function Chart({ title, series, format, history, isPending, kind, zoom, onZoom, marks }: Props) {
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
        <Plot key={theme + series.length} {...{ data, series, format, zoom, onZoom, marks }} />
      )}
      <div className="legend">
        {series.map(({ name, label }, index) => (
          <span key={name}>
            <i className={`k${index}`} />
            {label} <b>{format(latest(history?.series[name]))}</b>
          </span>
        ))}
      </div>
      {!isUnknown && <Values {...{ data, series, format, title, kind }} />}
    </figure>
  );
}

const latest = (line: (number | null)[] | undefined): number | null => line?.findLast((value) => value != null) ?? null;

interface Plotted extends Shared {
  data: uPlot.AlignedData;
  series: Series[];
  format: Props['format'];
  /** False if the horizontal axis has plain numbers instead of times. */
  clock?: boolean;
  /** Series whose points are joined over gaps; the others are points alone. All are lines with gaps by default. */
  joined?: boolean[];
  /** Pairs of series, by their numbers from 1 on, between which the area is filled. */
  bands?: [number, number][];
  isLog?: boolean;
  /** True if values are on both sides of 0. */
  isSigned?: boolean;
  /** Texts of a horizontal axis that has but two places, 0 and 1. */
  ends?: [string, string];
}

export function Plot({ data, series, format, clock = true, joined, bands = [], isLog, isSigned, ends, zoom, onZoom, marks }: Plotted) {
  const holder = useRef<HTMLDivElement>(null);
  const shared = useRef<Shared>({});
  shared.current = { zoom, onZoom, marks };
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
        cursor: { sync: { key: 'page' }, y: false, points: { size: 6 }, ...(onZoom ? { drag: { x: true, y: false, setScale: false } } : {}) },
        scales: { x: { time: clock, ...(onZoom ? { range: (_: uPlot, min: number, max: number): uPlot.Range.MinMax => [shared.current.zoom?.min ?? min, shared.current.zoom?.max ?? max] } : {}) }, y: isLog ? { distr: 3 } : isSigned ? { range: (_, min, max) => signed(min, max) } : { range: (_, __, max) => [0, max > 0 ? max * 1.08 : 1] } },
        axes: [
          { ...axis, size: 26, space: 70, ...(ends ? { splits: () => [0, 1] } : {}), values: (_, ticks) => ticks.map((tick) => (ends ? (ends[tick] ?? '') : clock ? time(new Date(tick * 1000).toISOString()).replace(/:00$/, '').slice(-8) : short(tick))) },
          { ...axis, size: 62, space: 34, incrs: isBinary(format) ? BINARY : undefined, values: (_, ticks) => ticks.map((tick) => format(tick)) },
        ],
        series: [{}, ...series.map(({ label }, index) => ({ label, stroke: colour(`--c${index % 8}`), spanGaps: joined?.[index] ?? false, ...drawn(joined?.[index] ?? true) }))],
        bands: bands.map((pair) => ({ series: pair, fill: `${colour('--c0')}33` })),
        plugins: [tip(series, format, clock, shared), lines(shared, colour('--note'))],
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
  }, [series, format, isLog]);
  // Marks and the range are drawn with the data.
  useEffect(() => plot.current?.setData(data), [data, zoom, marks]);
  return <div className="plot" ref={holder} aria-hidden="true" onDoubleClick={() => onZoom?.(undefined)} />;
}

/** Events as lines through the chart, and a range that is dragged. */
function lines(shared: { current: Shared }, colour: string): uPlot.Plugin {
  return {
    hooks: {
      draw: ({ ctx, bbox, valToPos }) => {
        ctx.save();
        ctx.strokeStyle = colour;
        ctx.lineWidth = 1;
        ctx.setLineDash([4, 3]);
        for (const { at } of shared.current.marks ?? []) {
          const x = Math.round(valToPos(at, 'x', true)) + 0.5;
          if (x < bbox.left || x > bbox.left + bbox.width) continue;
          ctx.beginPath();
          ctx.moveTo(x, bbox.top);
          ctx.lineTo(x, bbox.top + bbox.height);
          ctx.stroke();
        }
        ctx.restore();
      },
      setSelect: (plot) => {
        const { left, width } = plot.select;
        const { onZoom } = shared.current;
        if (!onZoom || width < 4) return;
        onZoom({ min: plot.posToVal(left, 'x'), max: plot.posToVal(left + width, 'x') });
        plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      },
    },
  };
}

/** An axis that has 0 in its middle. */
function signed(min: number, max: number): [number, number] {
  const most = Math.max(Math.abs(min), Math.abs(max)) * 1.1 || 1;
  return [-most, most];
}

const drawn = (isLine: boolean): Partial<uPlot.Series> => (isLine ? { width: 1.5, points: { show: false } } : { width: 0, points: { show: true, size: 7 } });

/** Steps of an axis of bytes. */
const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);
const isBinary = (format: Props['format']): boolean => format === bytes || format === byteRate;

/** The values under the pointer. */
function tip(series: Series[], format: Props['format'], clock: boolean, shared: { current: Shared }): uPlot.Plugin {
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
        const step = at === undefined ? 0 : at - (plot.data[0][idx - 1] ?? at);
        const events = (shared.current.marks ?? []).filter((mark) => at !== undefined && mark.at > at - step && mark.at <= at).map(({ text }) => `◆ ${text.slice(0, 60)}`);
        element.textContent = [at === undefined ? '' : clock ? time(iso(at)) : short(at), ...lines, ...events].join('\n');
        element.classList.toggle('left', left > plot.over.clientWidth / 2);
      },
    },
  };
}

function Values({ data, series, format, title, kind }: { data: uPlot.AlignedData; series: Series[]; format: Props['format']; title: string; kind: string }) {
  const [isOpen, setOpen] = useState(false);
  const times = [...data[0]];
  const names = useQuery({ queryKey: ['series', kind], queryFn: ({ signal }) => get<SeriesNames>(api('metrics/names', { of: kind }), signal), enabled: isOpen, staleTime: Infinity }).data?.items ?? [];
  const expressions = names.flatMap(({ name, prometheus }) => (prometheus !== null && prometheus !== undefined && series.some((it) => it.name === name) ? [prometheus] : []));
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
          <div className="row">
            <button type="button" className="plain small" onClick={csv}>
              Save as CSV
            </button>
            {expressions.length > 0 && <Copy label="Copy for Prometheus" text={expressions.join('\n')} />}
          </div>
          <Scroll low>
            <Table narrow caption={title} columns={columns} rows={times.map((_, row) => row).reverse()} keyOf={String} />
          </Scroll>
        </>
      )}
    </details>
  );
}
