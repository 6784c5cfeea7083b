// Two messages or records beside each other, line by line.
import { useMemo } from 'react';
import { Dialog } from './Dialog';
import { decode } from './decode';
import { visible } from './format';
import type { Raw } from './Content';

export interface Side {
  title: string;
  raw: Raw;
  /** Fields beside the content: name and text. */
  fields: [string, string][];
}

interface Row {
  key: string;
  left: string | null;
  right: string | null;
}

/** Lines beyond are compared by their places. */
const LINES_MAX = 400;

function textOf({ value, base64 }: Raw): string {
  const decoded = decode(value, base64 ?? null);
  const [format] = decoded.formats;
  const tree = format === undefined ? undefined : decoded.tree(format);
  return tree === undefined ? decoded.text(format ?? 'text') : JSON.stringify(tree, null, 2);
}

/** Pairs of lines; of a line that the other side lacks one is null. */
export function paired(left: string[], right: string[]): [string | null, string | null][] {
  if (left.length > LINES_MAX || right.length > LINES_MAX) {
    return Array.from({ length: Math.max(left.length, right.length) }, (_, at) => [left[at] ?? null, right[at] ?? null]);
  }
  // Length of the longest common run of lines behind each pair of places.
  const common = Array.from({ length: left.length + 1 }, () => new Uint16Array(right.length + 1));
  const of = (one: number, other: number) => common[one]?.[other] ?? 0;
  for (let one = left.length - 1; one >= 0; one -= 1) {
    for (let other = right.length - 1; other >= 0; other -= 1) {
      common[one]![other] = left[one] === right[other] ? of(one + 1, other + 1) + 1 : Math.max(of(one + 1, other), of(one, other + 1));
    }
  }
  const pairs: [string | null, string | null][] = [];
  let [one, other] = [0, 0];
  while (one < left.length || other < right.length) {
    if (one < left.length && left[one] === right[other]) pairs.push([left[one++]!, right[other++]!]);
    else if (other >= right.length || (one < left.length && of(one + 1, other) >= of(one, other + 1))) pairs.push([left[one++]!, null]);
    else pairs.push([null, right[other++]!]);
  }
  return pairs;
}

function rowsOf(one: Side, other: Side): { fields: Row[]; lines: Row[] } {
  const names = [...new Set([...one.fields, ...other.fields].map(([name]) => name))];
  const value = (side: Side, wanted: string) => side.fields.find(([name]) => name === wanted)?.[1] ?? null;
  const lines = paired(textOf(one.raw).split('\n'), textOf(other.raw).split('\n'));
  return {
    fields: names.map((key) => ({ key, left: value(one, key), right: value(other, key) })),
    lines: lines.map(([left, right], index) => ({ key: String(index), left, right })),
  };
}

export function CompareTwo({ one, other, onClose }: { one: Side; other: Side; onClose: () => void }) {
  const { fields, lines } = useMemo(() => rowsOf(one, other), [one, other]);
  const differ = [...fields, ...lines].filter(({ left, right }) => left !== right).length;
  return (
    <Dialog title="Two beside each other" onClose={onClose} wide>
      <p role="status">{differ === 0 ? 'They are the same.' : `Lines that differ: ${differ}.`}</p>
      <Pairs caption="Fields" head="Field" one={one} other={other} rows={fields} named />
      <Pairs caption="Content" head="Line" one={one} other={other} rows={lines} />
      <div className="row end">
        <button type="button" autoFocus data-focus onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

function Pairs({ caption, head, one, other, rows, named }: { caption: string; head: string; one: Side; other: Side; rows: Row[]; named?: boolean }) {
  return (
    <div className="scroll" tabIndex={0}>
      <table className="pairs">
        <caption className="unseen">{caption}</caption>
        <thead>
          <tr>
            <th scope="col">{head}</th>
            <th scope="col">{one.title}</th>
            <th scope="col">
              <span className="unseen">Differs</span>
            </th>
            <th scope="col">{other.title}</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ key, left, right }) => (
            <tr key={key} className={left === right ? '' : 'differs'}>
              <th scope="row">{named ? key : Number(key) + 1}</th>
              <td className="mono">{left === null ? <span className="quiet">–</span> : visible(left)}</td>
              <td>{left !== right && <b aria-label="differs">≠</b>}</td>
              <td className="mono">{right === null ? <span className="quiet">–</span> : visible(right)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
