// All that a request finds, page after page, as lines of JSON in one file.
import { useRef, useState } from 'react';
import { get } from '../api/http';
import { Dialog } from './Dialog';
import { count } from './format';
import { Failure, save } from './parts';

interface Props {
  label: string;
  title: string;
  file: string;
  /** What is to come, before anything is asked for. */
  about: string;
  /** Path of a page; of the first one without a place. */
  page: (after: string | undefined) => string;
  items: (answer: never) => unknown[];
  disabled?: boolean;
}

interface Page {
  next: string | number | null;
}

/** Bytes that a page of a browser holds without trouble. */
const BYTES_MAX = 512 << 20;

type State = { at: 'asks' } | { at: 'runs' | 'done'; lines: number } | { at: 'full'; lines: number };

export function Export({ label, title, file, about, page, items, disabled }: Props) {
  const [isOpen, setOpen] = useState(false);
  const [state, setState] = useState<State>({ at: 'asks' });
  const [error, setError] = useState<unknown>();
  const stop = useRef<AbortController>(undefined);
  const close = () => {
    stop.current?.abort();
    setOpen(false);
    setState({ at: 'asks' });
    setError(undefined);
  };
  const run = async () => {
    const { signal } = (stop.current = new AbortController());
    const parts: string[] = [];
    let [lines, bytes] = [0, 0];
    let after: string | undefined;
    setError(undefined);
    try {
      do {
        setState({ at: 'runs', lines });
        const answer = await get<Page>(page(after), signal);
        const some = items(answer as never);
        const text = some.map((each) => `${JSON.stringify(each)}\n`).join('');
        parts.push(text);
        lines += some.length;
        bytes += text.length;
        after = answer.next === null || answer.next === undefined ? undefined : String(answer.next);
      } while (after !== undefined && bytes < BYTES_MAX);
      save(file, parts);
      setState({ at: after === undefined ? 'done' : 'full', lines });
    } catch (failure) {
      if (signal.aborted) return;
      setError(failure);
      setState({ at: 'asks' });
    }
  };
  return (
    <>
      <button type="button" disabled={disabled} onClick={() => setOpen(true)}>
        {label}
      </button>
      {isOpen && (
        <Dialog title={title} onClose={close}>
          <p>{about} It is read page by page, and has no effect on anything.</p>
          <Failure error={error} />
          {state.at !== 'asks' && (
            <p role="status">
              {count(state.lines)} lines{state.at === 'runs' ? ' so far' : ` in ${file}`}.{state.at === 'full' && ' The file is as large as it may be; a program goes on from here.'}
            </p>
          )}
          <div className="row end">
            <button type="button" onClick={close}>
              {state.at === 'done' || state.at === 'full' ? 'Close' : 'Cancel'}
            </button>
            {(state.at === 'asks' || state.at === 'runs') && (
              <button type="button" className="main" autoFocus data-focus disabled={state.at === 'runs'} onClick={() => void run()}>
                Save as NDJSON
              </button>
            )}
          </div>
        </Dialog>
      )}
    </>
  );
}
