// A list that the broker pages, sorts and searches. Its search, sort, filters and page are the address.
import { useEffect, useRef, useState, type KeyboardEvent, type ReactNode } from 'react';
import { useLive } from '../api/live';
import { api, Refusal, type Query } from '../api/http';
import { useHasDialog } from './Dialog';
import { count, counted } from './format';
import { Failure, save } from './parts';
import { go, setParams, useRoute } from './route';
import { useHours, type Hours } from './Spark';
import { Table, type Column } from './Table';

export type { Column };

export interface Filter {
  name: string;
  label: string;
  value: string;
}

interface Listed<T> {
  items: T[];
  next: string | null;
  /** Absent where the broker counts none: it reads a log backwards. */
  matched?: number;
  total?: number;
  looked_at?: number;
}

interface Props<T> {
  /** Path below `/v1`. */
  path: string;
  query?: Query;
  columns: Column<T>[];
  keyOf: (row: T) => string;
  filters?: Filter[];
  noun: string;
  empty: ReactNode;
  /** Actions on the ticked rows. */
  joint?: (rows: T[], clear: () => void) => ReactNode;
  tools?: ReactNode;
  /** Names in the address begin with it, where a page has two lists. */
  prefix?: string;
  search?: boolean;
  /** The query chooses, so that an empty page says nothing of the whole list. */
  isChosen?: boolean;
  sortDefault?: string;
  perPage?: number;
  /** Address of an object by its name, for callers that may see it but not the list. */
  openAt?: (name: string) => string;
  /** The last hour of each row. */
  hours?: Hours<T>;
}

const HOUR = 'Last hour';

/** Columns that are not shown, by the noun of the list; kept in this browser. */
function useHidden(noun: string): [string[], (head: string, isShown: boolean) => void] {
  const key = `stafett.columns.${noun}`;
  const [hidden, setHidden] = useState<string[]>(() => {
    try {
      const kept: unknown = JSON.parse(localStorage.getItem(key) ?? '[]');
      return Array.isArray(kept) ? kept.map(String) : [];
    } catch {
      return [];
    }
  });
  const set = (head: string, isShown: boolean) => {
    const next = isShown ? hidden.filter((it) => it !== head) : [...hidden, head];
    setHidden(next);
    try {
      localStorage.setItem(key, JSON.stringify(next));
    } catch {
      // A browser that keeps nothing.
    }
  };
  return [hidden, set];
}

export function List<T>(props: Props<T>) {
  const { path, query = {}, keyOf, filters = [], noun, empty, joint, tools, prefix = '', search = true } = props;
  const { query: address } = useRoute();
  const value = (name: string) => address.get(prefix + name) ?? undefined;
  const chosen = filters.filter((filter) => value(filter.name) === filter.value);
  const asked: Query = { ...query, q: value('q'), sort: value('sort') ?? props.sortDefault, after: value('after'), count: props.perPage ?? 50 };
  for (const filter of chosen) asked[filter.name] = filter.value;
  const url = api(path, asked);
  const found = useLive<Listed<T>>(url);
  const list = found.data;
  const [ticked, setTicked] = useState<Map<string, T>>(new Map());
  const [isHeld, setHeld] = useState(false);
  const { rows, isStale, isGone, refresh } = useSteady(list?.items, keyOf, isHeld, url, found.isPlaceholderData);
  const hour = useHours(rows, props.hours);
  const [hidden, setHidden] = useHidden(noun);
  const [isPicking, setPicking] = useState(false);
  const all: Column<T>[] = hour ? [...props.columns, { head: HOUR, phone: 'less', cell: hour }] : props.columns;
  const columns = all.filter(({ head }, index) => index === 0 || !hidden.includes(head));
  const set = (values: Record<string, string | undefined>, replace = true) => {
    const named = Object.entries({ after: undefined, ...values }).map(([key, text]) => [prefix + key, text]);
    setParams(Object.fromEntries(named) as Record<string, string | undefined>, replace);
  };
  const isNarrowed = Boolean(value('q') || chosen.length > 0 || value('after') || props.isChosen);
  const isEmpty = list !== undefined && !list.total && !list.next && !isNarrowed;
  // The last row is gone, and its dialog may tell its result.
  const isKept = useHasDialog() && rows.length > 0;
  if (isEmpty && list.items.length === 0 && !isKept) return <div className="empty">{empty}</div>;
  return (
    <section aria-label={noun}>
      <div className="tools">
        {search && <Search key={prefix} value={value('q')} noun={noun} onChange={(q) => set({ q })} />}
        {filters.length > 0 && (
          <div className="chips" role="group" aria-label="Filters">
            {filters.map((filter) => {
              const isOn = chosen.includes(filter);
              return (
                <button
                  key={filter.name + filter.value}
                  type="button"
                  className="chip"
                  aria-pressed={isOn}
                  onClick={() => set({ [filter.name]: isOn ? undefined : filter.value })}
                >
                  {filter.label}
                </button>
              );
            })}
          </div>
        )}
        {isStale && (
          <button type="button" className="plain small" onClick={refresh}>
            Order is out of date: update
          </button>
        )}
        {joint && ticked.size > 0 && <div className="row">{joint([...ticked.values()], () => setTicked(new Map()))}</div>}
        {tools}
      </div>
      <Failure error={found.error} />
      {props.openAt && found.error instanceof Refusal && found.error.needs && <OpenByName noun={noun} at={props.openAt} />}
      {list && list.items.length === 0 && !isKept && !found.error && <div className="empty">Nothing matches{list.looked_at !== undefined && ` among ${counted(list.looked_at, singular(noun), noun)} looked at`}.</div>}
      {rows.length > 0 && (
        <Rows
          {...{ columns, rows, keyOf, isGone, sort: value('sort') ?? props.sortDefault, noun }}
          onSort={(sort) => set({ sort })}
          onHold={setHeld}
          ticks={joint && { ticked, setTicked }}
        />
      )}
      {list && (
        <div className="foot">
          <span>
            <Matched list={list} noun={noun} />
          </span>
          <span className="row">
            {all.length > 3 && (
              <details className="pick" onToggle={(event) => setPicking(event.currentTarget.open)}>
                <summary>Columns{hidden.length > 0 && ` (${columns.length} of ${all.length})`}</summary>
                {isPicking && (
                  <div className="boxes" role="group" aria-label="Columns">
                    {all.slice(1).map(({ head }) => (
                      <label key={head} className="check">
                        <input type="checkbox" checked={!hidden.includes(head)} onChange={(event) => setHidden(head, event.target.checked)} /> {head}
                      </label>
                    ))}
                  </div>
                )}
              </details>
            )}
            <button type="button" className="plain small wide" onClick={() => save(`${noun.replace(/\W+/g, '-')}.csv`, csv(columns, rows))}>
              CSV
            </button>
            {value('after') && (
              <button type="button" onClick={() => set({})}>
                First page
              </button>
            )}
            {list.next && (
              <button type="button" onClick={() => set({ after: list.next ?? undefined }, false)}>
                Next page
              </button>
            )}
          </span>
        </div>
      )}
    </section>
  );
}

const singular = (noun: string): string => noun.replace(/ies$/, 'y').replace(/s$/, '');

function Matched({ list: { items, matched, total, next }, noun }: { list: Listed<unknown>; noun: string }) {
  if (matched === undefined) return `${counted(items.length, singular(noun), noun)}${next === null ? '' : ', and earlier ones'}`;
  return matched === total ? counted(matched, singular(noun), noun) : `${count(matched)} of ${counted(total, singular(noun), noun)}`;
}

/** A way to an object of a list that may not be seen. */
function OpenByName({ noun, at }: { noun: string; at: (name: string) => string }) {
  const [name, setName] = useState('');
  return (
    <form
      className="tools"
      onSubmit={(event) => {
        event.preventDefault();
        if (name !== '') go(at(name));
      }}
    >
      <input value={name} onChange={(event) => setName(event.target.value)} placeholder="Name" aria-label={`Name among ${noun}`} spellCheck={false} />
      <button type="submit">Open by its name</button>
      <span className="quiet small">A right on one of the {noun} is enough to open it.</span>
    </form>
  );
}

/**
 * Rows that keep their places under the pointer: values change, the order does not. A row that is gone stays as it was,
 * so that a dialog of it can tell its result.
 */
function useSteady<T>(items: T[] | undefined, keyOf: (row: T) => string, isHeld: boolean, url: string, isOther: boolean) {
  const shown = useRef<{ url: string; rows: Map<string, T> }>({ url: '', rows: new Map() });
  const [, again] = useState(0);
  const fresh = new Map((items ?? []).map((row) => [keyOf(row), row]));
  const known = shown.current;
  const mayHold = isHeld && known.url === url && known.rows.size > 0;
  const isMoved = mayHold && [...known.rows.keys()].join('\n') !== [...fresh.keys()].join('\n');
  const rows = isMoved ? new Map([...known.rows].map(([key, row]) => [key, fresh.get(key) ?? row])) : fresh;
  // Rows of the address before, which are shown until those of this one are there, set no order.
  if (!isOther) shown.current = { url, rows };
  const refresh = () => {
    shown.current = { url, rows: fresh };
    again((n) => n + 1);
  };
  return { rows: [...rows.values()], isStale: isMoved, isGone: (row: T) => !fresh.has(keyOf(row)), refresh };
}

function Search({ value, noun, onChange }: { value?: string; noun: string; onChange: (value: string | undefined) => void }) {
  const [text, setText] = useState(value ?? '');
  const sent = useRef(value ?? '');
  useEffect(() => {
    if ((value ?? '') !== sent.current) {
      sent.current = value ?? '';
      setText(value ?? '');
    }
  }, [value]);
  useEffect(() => {
    if (text === sent.current) return undefined;
    const timer = setTimeout(() => {
      sent.current = text;
      onChange(text || undefined);
    }, 200);
    return () => clearTimeout(timer);
  });
  return (
    <input
      type="search"
      data-search
      value={text}
      placeholder={`Search ${noun}`}
      aria-label={`Search ${noun}`}
      onChange={(event) => setText(event.target.value)}
    />
  );
}

interface RowsProps<T> {
  columns: Column<T>[];
  rows: T[];
  keyOf: (row: T) => string;
  isGone: (row: T) => boolean;
  sort?: string;
  noun: string;
  onSort: (sort: string | undefined) => void;
  onHold: (held: boolean) => void;
  ticks?: { ticked: Map<string, T>; setTicked: (ticked: Map<string, T>) => void };
}

function Rows<T>({ columns, rows, keyOf, isGone, sort, noun, onSort, onHold, ticks }: RowsProps<T>) {
  const holder = useRef<HTMLDivElement>(null);
  const toggled = (row: T, isOn: boolean) => {
    const next = new Map(ticks?.ticked);
    if (isOn) next.set(keyOf(row), row);
    else next.delete(keyOf(row));
    ticks?.setTicked(next);
  };
  const allTicked = ticks !== undefined && rows.every((row) => ticks.ticked.has(keyOf(row)));
  return (
    <div
      className="scroll"
      tabIndex={0}
      ref={holder}
      onMouseEnter={() => onHold(true)}
      onMouseLeave={() => onHold(isInUse(holder.current, document.activeElement))}
      onFocus={(event) => onHold(event.target !== event.currentTarget)}
      onBlur={(event) => onHold(isInUse(event.currentTarget, event.relatedTarget) || event.currentTarget.matches(':hover'))}
      onKeyDown={(event) => moveInRows(event)}
    >
      <Table
        caption={noun}
        columns={columns}
        rows={rows}
        keyOf={keyOf}
        isGone={isGone}
        heading={(column) => <Heading column={column} sort={sort} onSort={onSort} />}
        ticks={
          ticks && {
            all: (
              <input
                type="checkbox"
                aria-label="All rows of this page"
                checked={allTicked}
                onChange={(event) => ticks.setTicked(event.target.checked ? new Map(rows.map((row) => [keyOf(row), row])) : new Map())}
              />
            ),
            of: (row) => (
              <input
                type="checkbox"
                aria-label={`Choose ${keyOf(row)}`}
                checked={ticks.ticked.has(keyOf(row))}
                onChange={(event) => toggled(row, event.target.checked)}
              />
            ),
          }
        }
      />
    </div>
  );
}

/** True while the focus is on something in a table, or a dialog of one of its rows is open. */
const isInUse = (table: Element | null, focused: Element | null): boolean =>
  table !== null && ((focused !== table && table.contains(focused)) || table.querySelector('dialog') !== null);

function Heading<T>({ column, sort, onSort }: { column: Column<T>; sort?: string; onSort: (sort: string | undefined) => void }) {
  const name = sort?.replace(/^-/, '');
  const isSorted = column.sort !== undefined && name === column.sort;
  const isDown = isSorted && sort?.startsWith('-');
  const next = () => {
    const [first, second] = column.num ? [`-${column.sort}`, column.sort] : [column.sort, `-${column.sort}`];
    if (!isSorted) return onSort(first);
    return onSort(sort === first ? second : undefined);
  };
  return (
    <th scope="col" className={column.num ? 'num' : ''} aria-sort={isSorted ? (isDown ? 'descending' : 'ascending') : undefined}>
      {column.sort ? (
        <button type="button" onClick={next}>
          {column.head} <span aria-hidden="true">{isSorted ? (isDown ? '↓' : '↑') : ''}</span>
        </button>
      ) : (
        column.head
      )}
    </th>
  );
}

/** Arrows go from row to row, Space ticks. Enter is the link's. */
function moveInRows(event: KeyboardEvent<HTMLElement>) {
  const row = (event.target as HTMLElement).closest('tbody tr');
  if (!row || event.target instanceof HTMLTextAreaElement) return;
  const step = event.key === 'ArrowDown' ? 'nextElementSibling' : event.key === 'ArrowUp' ? 'previousElementSibling' : undefined;
  if (step) {
    const target = row[step]?.querySelector<HTMLElement>('a, button');
    target?.focus();
    if (target) event.preventDefault();
  } else if (event.key === ' ' && event.target instanceof HTMLAnchorElement) {
    row.querySelector<HTMLInputElement>('.tick input')?.click();
    event.preventDefault();
  }
}

function csv<T>(columns: Column<T>[], rows: T[]): string {
  const cell = (value: string | number | null) => {
    const text = String(value ?? '');
    // A spreadsheet would compute a text that begins like a formula.
    const safe = typeof value === 'string' && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const shown = columns.filter((column) => column.text);
  const lines = [shown.map((column) => cell(column.head)), ...rows.map((row) => shown.map((column) => cell(column.text?.(row) ?? null)))];
  return lines.map((line) => `${line.join(',')}\r\n`).join('');
}
