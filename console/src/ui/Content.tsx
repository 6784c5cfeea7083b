// Content of a record or a message: its format is recognised, and it is shown as text alone. Links in it are no links.
import { useMemo, useState } from 'react';
import { decode, type Format } from './decode';
import { bytes, count, visible } from './format';
import { Copy, save } from './parts';
import { Scroll, Table, type Column } from './Table';

export interface Raw {
  value: unknown;
  base64?: string | null;
}

/** First line of a content, for a row. */
export function firstLine({ value, base64 }: Raw): string {
  if (value == null) return base64 ? `bytes: ${base64.slice(0, 60)}` : '(no value)';
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return visible((text.split('\n', 1)[0] ?? '').slice(0, 240));
}

export function Content({ raw, cut, size }: { raw: Raw; cut?: boolean; size?: number }) {
  const decoded = useMemo(() => decode(raw.value, raw.base64 ?? null), [raw.value, raw.base64]);
  const [chosen, choose] = useState<Format>();
  const [isWhole, setWhole] = useState(false);
  if (raw.value == null && !raw.base64) return <p className="quiet">There is no value.</p>;
  const format = chosen && decoded.formats.includes(chosen) ? chosen : decoded.formats[0];
  const text = decoded.text(format ?? 'text');
  return (
    <div>
      <div className="row">
        <div className="chips" role="group" aria-label="Format">
          {decoded.formats.map((name) => (
            <button key={name} type="button" className="chip" aria-pressed={name === format} onClick={() => choose(name)}>
              {name}
            </button>
          ))}
        </div>
        <Copy text={text} />
        <button type="button" className="plain small" title="The bytes as they are" onClick={() => save('content.bin', [decoded.bytes])}>
          Save
        </button>
        {size !== undefined && <span className="quiet small">{bytes(size)}</span>}
      </div>
      {cut && <p className="hint">Only the beginning is shown.</p>}
      {format && format !== 'text' && format !== 'hex' && format !== 'XML' ? (
        <div className="tree card">
          <Tree value={decoded.tree(format)} />
        </div>
      ) : (
        <>
          <pre tabIndex={0}>{visible(isWhole ? text : text.slice(0, SHOWN_LETTERS))}</pre>
          {!isWhole && text.length > SHOWN_LETTERS && (
            <p className="row">
              <span className="quiet small">The first {bytes(SHOWN_LETTERS)} are shown.</span>
              {text.length <= WHOLE_LETTERS ? (
                <button type="button" className="plain small" onClick={() => setWhole(true)}>
                  Show all
                </button>
              ) : (
                <span className="quiet small">It is too large for a page: save it.</span>
              )}
            </p>
          )}
        </>
      )}
    </div>
  );
}

/** Letters of a text that are shown at first, and at most. */
const SHOWN_LETTERS = 64 << 10;
const WHOLE_LETTERS = 16 << 20;
const SHOWN = 200;

function Tree({ value, name, depth = 0 }: { value: unknown; name?: string; depth?: number }) {
  const [all, setAll] = useState(false);
  const key = name === undefined ? null : <span className="k">{visible(name)}: </span>;
  if (value === null || typeof value !== 'object') {
    const kind = typeof value === 'string' ? 's' : 'v';
    return (
      <div>
        {key}
        <span className={kind}>{typeof value === 'string' ? visible(JSON.stringify(value)) : String(value)}</span>
      </div>
    );
  }
  const entries = Object.entries(value);
  const isList = Array.isArray(value);
  const shown = all ? entries : entries.slice(0, SHOWN);
  return (
    <details open={depth < 3}>
      <summary>
        {key}
        <span className="quiet">
          {isList ? '[' : '{'}
          {count(entries.length)}
          {isList ? ']' : '}'}
        </span>
      </summary>
      <div className="in">
        {shown.map(([inner, each]) => (
          <Tree key={inner} name={inner} value={each} depth={depth + 1} />
        ))}
        {entries.length > shown.length && (
          <button type="button" className="plain small" onClick={() => setAll(true)}>
            {count(entries.length - shown.length)} more
          </button>
        )}
      </div>
    </details>
  );
}

const HEADERS: Column<[string, unknown]>[] = [
  { head: 'Header', cell: ([name]) => <span className="mono">{visible(name)}</span> },
  { head: 'Value', cell: ([, value]) => <span className="mono">{visible(typeof value === 'string' ? value : JSON.stringify(value))}</span> },
];

export function Headers({ of }: { of: Record<string, unknown> }) {
  const rows = Object.entries(of);
  if (rows.length === 0) return null;
  return (
    <Scroll>
      <Table narrow caption="Headers" columns={HEADERS} rows={rows} keyOf={([name]) => name} />
    </Scroll>
  );
}
