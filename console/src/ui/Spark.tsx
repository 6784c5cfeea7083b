// The last hour of what a row counts, as lines without axes: one request for all rows that are shown.
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { get } from '../api/http';
import type { History } from '../api/types';
import { usePaused } from '../api/watch';
import { Link } from './route';

/** Objects of rows, and the series that are drawn of each. */
export interface Hours<T> {
  /** As the history names it: `queue:NAME`. */
  of: (row: T) => string;
  namespace?: (row: T) => string;
  names: readonly string[];
  format: (value: number | null | undefined) => string;
  /** Page with the same in full. */
  href: (row: T) => string;
}

const EVERY_MS = 30_000;
/** Objects of one request. */
const PIECE = 25;

const keyOf = (namespace: string, of: string): string => `${namespace} ${of}`;

async function ask(objects: [string, string][], names: readonly string[], signal: AbortSignal): Promise<Map<string, History>> {
  const spaces = new Map<string, string[]>();
  for (const [namespace, of] of objects) spaces.set(namespace, [...(spaces.get(namespace) ?? []), of]);
  const pieces = [...spaces].flatMap(([namespace, all]) => Array.from({ length: Math.ceil(all.length / PIECE) }, (_, n): [string, string[]] => [namespace, all.slice(n * PIECE, (n + 1) * PIECE)]));
  const found = new Map<string, History>();
  const asked = pieces.map(async ([namespace, some]) => {
    const of = some.map((name) => `of=${encodeURIComponent(name)}`).join('&');
    const answer = await get<History | History[]>(`/v1/metrics/history?${of}&namespace=${encodeURIComponent(namespace)}&names=${names.join(',')}&from=-60m&step=60s`, signal);
    for (const history of [answer].flat()) found.set(keyOf(namespace, history.of), history);
  });
  // What a caller may not see, or what is gone, has no line.
  await Promise.allSettled(asked);
  return found;
}

/** Returns the cell of a row with its last hour; undefined where rows have none. */
export function useHours<T>(rows: T[], hours: Hours<T> | undefined): ((row: T) => ReactNode) | undefined {
  const isPaused = usePaused();
  const namespace = (row: T) => hours?.namespace?.(row) ?? '/';
  // In an order of their own: rows that change their places are no others.
  const objects = hours ? rows.map((row): [string, string] => [namespace(row), hours.of(row)]).sort((one, other) => keyOf(...one).localeCompare(keyOf(...other))) : [];
  const found = useQuery({
    queryKey: ['hours', objects, hours?.names],
    queryFn: ({ signal }) => ask(objects, hours?.names ?? [], signal),
    enabled: objects.length > 0,
    placeholderData: keepPreviousData,
    staleTime: EVERY_MS,
    refetchInterval: isPaused ? false : EVERY_MS,
  }).data;
  return hours && ((row) => <Spark history={found?.get(keyOf(namespace(row), hours.of(row)))} names={hours.names} format={hours.format} href={hours.href(row)} />);
}

const [WIDTH, HEIGHT] = [100, 20];

/** Runs of known values as a path. */
function path(values: (number | null)[], most: number): string {
  let isOpen = false;
  const at = (value: number, index: number) => `${((index / Math.max(1, values.length - 1)) * WIDTH).toFixed(1)} ${(HEIGHT - 1 - (value / most) * (HEIGHT - 2)).toFixed(1)}`;
  return values
    .map((value, index) => {
      if (value === null) {
        isOpen = false;
        return '';
      }
      // A value alone is seen, too.
      const step = isOpen ? `L${at(value, index)}` : `M${at(value, index)}h0.5`;
      isOpen = true;
      return step;
    })
    .join('');
}

function Spark({ history, names, format, href }: { history: History | undefined; names: readonly string[]; format: Hours<unknown>['format']; href: string }) {
  const lines = names.map((name) => history?.series[name] ?? []);
  const known = lines.flat().filter((value) => value !== null);
  if (known.length === 0) return <span className="quiet">–</span>;
  const most = Math.max(...known);
  const text = `Last hour: ${format(most)} at most`;
  return (
    <Link href={href} title={text} className="spark">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={text}>
        {lines.map((values, index) => (
          <path key={names[index]} className={`s${index}`} d={path(values, most || 1)} />
        ))}
      </svg>
    </Link>
  );
}
