// A button, its dialog, and the request behind it: what it does in numbers, the request as curl, progress and result.
import { useQueryClient } from '@tanstack/react-query';
import { useState, type ReactNode } from 'react';
import { get, request, type Body } from '../api/http';
import type { Operation } from '../api/types';
import { Dialog } from './Dialog';
import { count } from './format';
import { Copy, Failure } from './parts';

export interface Call {
  method: string;
  path: string;
  body?: Body;
}

interface Props<T> {
  label: ReactNode;
  title: string;
  /** What the button in the dialog says; it says the action. */
  confirm: string;
  call: () => Call;
  /** Text of the result; without one, the dialog closes. */
  result?: (answer: T) => ReactNode;
  after?: (answer: T) => void;
  destroys?: boolean;
  /** Text that has to be typed before. */
  typed?: string;
  disabled?: boolean;
  why?: string;
  /** A choice in the form is still open. */
  incomplete?: boolean;
  onOpen?: () => void;
  className?: string;
  wide?: boolean;
  children?: ReactNode;
}

export function Action<T>(props: Props<T>) {
  const [isOpen, setOpen] = useState(false);
  const kind = props.className ?? (props.destroys ? 'destroy' : '');
  return (
    <>
      <button
        type="button"
        className={kind}
        disabled={props.disabled}
        title={props.why}
        onClick={() => {
          props.onOpen?.();
          setOpen(true);
        }}
      >
        {props.label}
      </button>
      {isOpen && <ActionDialog {...props} onClose={() => setOpen(false)} />}
    </>
  );
}

type Phase<T> = { at: 'asks' } | { at: 'runs'; operation?: Operation } | { at: 'done'; answer: T };

export function ActionDialog<T>({ title, confirm, call, result, after, destroys, typed, incomplete, wide, children, onClose }: Props<T> & { onClose: () => void }) {
  const client = useQueryClient();
  const [phase, setPhase] = useState<Phase<T>>({ at: 'asks' });
  const [error, setError] = useState<unknown>();
  const [text, setText] = useState('');
  const close = () => onClose();
  const run = async () => {
    setError(undefined);
    setPhase({ at: 'runs' });
    try {
      const { method, path, body } = call();
      let answer = await request<T & { operation?: string }>(method, path, body);
      if (answer?.operation) answer = await finished(answer.operation, (operation) => setPhase({ at: 'runs', operation }));
      await client.invalidateQueries();
      after?.(answer);
      if (result) setPhase({ at: 'done', answer });
      else onClose();
    } catch (failure) {
      setError(failure);
      setPhase({ at: 'asks' });
    }
  };
  return (
    <Dialog title={title} onClose={close} wide={wide}>
      {phase.at === 'done' ? (
        <>
          <div className="done" role="status">
            {result?.(phase.answer)}
          </div>
          <div className="row end">
            <button type="button" autoFocus data-focus onClick={close}>
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
          {children}
          {typed !== undefined && (
            <label className="field">
              <span>
                Type <b>{typed}</b> to go on
              </span>
              <input value={text} onChange={(event) => setText(event.target.value)} autoComplete="off" spellCheck={false} />
            </label>
          )}
          <Failure error={error} />
          {error instanceof Error && error.name === 'Error' && !('code' in error) && <p className="error">{error.message}</p>}
          {phase.at === 'runs' && phase.operation && <Progress of={phase.operation} />}
          <Request call={call} />
          <div className="row end">
            <button type="button" autoFocus={destroys} data-focus={destroys ? '' : undefined} onClick={close}>
              Cancel
            </button>
            <button
              type="submit"
              className={`main ${destroys ? 'destroy' : ''}`}
              disabled={phase.at === 'runs' || incomplete || (typed !== undefined && text !== typed)}
            >
              {confirm}
            </button>
          </div>
        </form>
      )}
    </Dialog>
  );
}

async function finished<T>(id: string, show: (operation: Operation) => void): Promise<T> {
  for (;;) {
    const operation = await get<Operation>(`/v1/operations/${id}`);
    show(operation);
    if (operation.error) throw new Error(String((operation.error as { detail?: string }).detail ?? 'It failed.'));
    if (operation.state !== 'running') return operation.result as T;
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

const Progress = ({ of }: { of: Operation }) => (
  <div role="status">
    <progress value={of.done} max={Math.max(of.of, 1)} /> {count(of.done)} of {count(of.of)} {of.unit}. It goes on if this is closed.
  </div>
);

function Request({ call }: { call: () => Call }) {
  const [shown, setShown] = useState(false);
  return (
    <details onToggle={(event) => setShown(event.currentTarget.open)}>
      <summary>As curl</summary>
      {shown && <Curl call={call} />}
    </details>
  );
}

function Curl({ call }: { call: () => Call }) {
  let text: string;
  try {
    text = curl(call());
  } catch (error) {
    text = `# ${error instanceof Error ? error.message : 'incomplete'}`;
  }
  return (
    <>
      <pre tabIndex={0}>{text}</pre>
      <Copy text={text} />
    </>
  );
}

export function curl({ method, path, body }: Call): string {
  const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;
  const content = body?.json !== undefined ? JSON.stringify(body.json) : body?.text;
  const parts = ['curl', ...(method === 'GET' || (method === 'POST' && content !== undefined) ? [] : ['-X', method])];
  parts.push(quoted(location.origin + path));
  if (body?.type) parts.push('-H', quoted(`Content-Type: ${body.type}`));
  if (content !== undefined) parts.push('-d', quoted(content));
  return parts.join(' ');
}
