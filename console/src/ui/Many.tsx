// The same action on many objects: one result each, and a failure stops nothing else.
import { useState } from 'react';
import { Dialog } from './Dialog';
import { count, visible } from './format';

interface Props {
  label: string;
  title: string;
  confirm: string;
  lines: string[];
  names: string[];
  typed?: string;
  each: (index: number) => Promise<unknown>;
  after: () => void;
}

const SHOWN = 12;

export function Many({ label, title, confirm, lines, names, typed, each, after }: Props) {
  const [isOpen, setOpen] = useState(false);
  const [text, setText] = useState('');
  const [results, setResults] = useState<(string | null)[]>();
  const close = () => {
    setOpen(false);
    setText('');
    if (results) after();
    setResults(undefined);
  };
  const run = async () => {
    const done: (string | null)[] = [];
    setResults([]);
    for (let index = 0; index < names.length; index += 1) {
      try {
        await each(index);
        done.push(null);
      } catch (error) {
        done.push(error instanceof Error ? error.message : String(error));
      }
      setResults([...done]);
    }
  };
  const failures = (results ?? []).flatMap((failure, index) => (failure === null ? [] : [[names[index] ?? '', failure] as const]));
  return (
    <>
      <button type="button" className="destroy" onClick={() => setOpen(true)}>
        {label}
      </button>
      {isOpen && (
        <Dialog title={title} onClose={close}>
          {results ? (
            <>
              <p role="status">
                {count(results.length)} of {count(names.length)} done, {count(failures.length)} refused.
              </p>
              {failures.map(([name, failure]) => (
                <p key={name} className="error">
                  {visible(name)}: {failure}
                </p>
              ))}
              <div className="row end">
                <button type="button" disabled={results.length < names.length} onClick={close}>
                  Close
                </button>
              </div>
            </>
          ) : (
            <form
              className="form"
              onSubmit={(event) => {
                event.preventDefault();
                void run();
              }}
            >
              <p>This cannot be taken back.</p>
              <ul className="plain-list">
                {lines.slice(0, SHOWN).map((line) => (
                  <li key={line}>{visible(line)}</li>
                ))}
                {lines.length > SHOWN && <li>and {count(lines.length - SHOWN)} more</li>}
              </ul>
              {typed && (
                <label className="field">
                  <span>
                    Type <b>{typed}</b> to go on
                  </span>
                  <input value={text} onChange={(event) => setText(event.target.value)} autoComplete="off" />
                </label>
              )}
              <div className="row end">
                <button type="button" autoFocus data-focus onClick={close}>
                  Cancel
                </button>
                <button type="submit" className="main destroy" disabled={typed !== undefined && text !== typed}>
                  {confirm}
                </button>
              </div>
            </form>
          )}
        </Dialog>
      )}
    </>
  );
}
