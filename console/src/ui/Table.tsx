// A table with its heads and rows. On a phone its rows become cards.
import { Fragment, type ReactNode } from 'react';

export interface Column<T> {
  head: string;
  /** Name by which the broker sorts. */
  sort?: string;
  /** Numbers are sorted downwards first. */
  num?: boolean;
  cell: (row: T) => ReactNode;
  /** Value for CSV. */
  text?: (row: T) => string | number | null;
  /** Not on a phone; or over its whole width. */
  phone?: 'less' | 'full';
  /** The head is for screen readers alone. */
  unseen?: boolean;
  wide?: boolean;
}

interface Props<T> {
  caption: string;
  columns: Column<T>[];
  rows: readonly T[];
  keyOf: (row: T, index: number) => string;
  /** Head of a column; its name by default. */
  heading?: (column: Column<T>) => ReactNode;
  /** Boxes in front of the rows. */
  ticks?: { all?: ReactNode; of: (row: T) => ReactNode };
  /** True for a row that is shown, and no longer there. */
  isGone?: (row: T) => boolean;
  /** Rows stay rows on a phone: there are two or three short columns. */
  narrow?: boolean;
}

export function Table<T>({ caption, columns, rows, keyOf, heading, ticks, isGone, narrow }: Props<T>) {
  return (
    <table className={narrow ? undefined : 'cards'}>
      <caption className="unseen">{caption}</caption>
      <thead>
        <tr>
          {ticks && <th className="tick">{ticks.all ?? <span className="unseen">Choose</span>}</th>}
          {columns.map((column) => (
            <Fragment key={column.head}>{heading?.(column) ?? <Heading column={column} />}</Fragment>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row, index) => (
          <tr key={keyOf(row, index)} className={isGone?.(row) ? 'gone' : undefined}>
            {ticks && <td className="tick">{ticks.of(row)}</td>}
            {columns.map((column) => (
              <td key={column.head} className={`${column.num ? 'num' : ''} ${column.phone ?? ''}`} data-head={column.head}>
                {column.cell(row)}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const Heading = <T,>({ column: { head, num, unseen, wide } }: { column: Column<T> }) => (
  <th scope="col" className={`${num ? 'num' : ''} ${wide ? 'wide-col' : ''}`}>
    {unseen ? <span className="unseen">{head}</span> : head}
  </th>
);

/** A table that scrolls by itself where it is wider, or higher, than its place. */
export const Scroll = ({ children, low }: { children: ReactNode; low?: boolean }) => (
  <div className={`scroll ${low ? 'low' : ''}`} tabIndex={0}>
    {children}
  </div>
);
