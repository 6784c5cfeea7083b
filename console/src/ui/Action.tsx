// A button, its dialog, and the requests behind it: its effects in numbers, the requests as curl, progress and result.
import { useEffect, useState, type ReactNode } from 'react';
import { request, type Body } from '../api/http';
import { useOperation, useRefresh } from '../api/live';
import { useMissing, type Right } from '../api/session';
import type { Operation } from '../api/types';
import { commandOf } from './command';
import { Dialog } from './Dialog';
import { count } from './format';
import { Copy, Failure, quoted } from './parts';

export interface Call {
  method: string;
  path: string;
  body?: Body;
}

interface Props<T> {
  label: ReactNode;
  title: string;
  /** Text of the button in the dialog: the action. */
  confirm: string;
  /** The request; of several, made one after the other, the answer of the last is the result. */
  call: () => Call | Call[];
  /** Text of the result; without one, the dialog closes. */
  result?: (answer: T) => ReactNode;
  after?: (answer: T) => void;
  destroys?: boolean;
  /** Text that has to be typed before. */
  typed?: string;
  disabled?: boolean;
  /** The button is not there, but its dialog, if it is open, stays. */
  hidden?: boolean;
  why?: string;
  /** Right on the whole broker that it needs. */
  right?: Right;
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
  const missing = useMissing(props.right);
  return (
    <>
      <button
        type="button"
        className={kind}
        hidden={props.hidden}
        disabled={props.disabled || missing !== undefined}
        title={missing ?? props.why}
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

type Phase<T> = { at: 'asks' } | { at: 'runs'; operation?: string } | { at: 'done'; answer: T };

export function ActionDialog<T>({ title, confirm, call, result, after, destroys, typed, incomplete, wide, children, onClose }: Props<T> & { onClose: () => void }) {
  const refresh = useRefresh();
  const [phase, setPhase] = useState<Phase<T>>({ at: 'asks' });
  const [error, setError] = useState<unknown>();
  const [text, setText] = useState('');
  const end = async (answer: T) => {
    await refresh();
    after?.(answer);
    if (result) setPhase({ at: 'done', answer });
    else onClose();
  };
  const fail = (failure: unknown) => {
    setError(failure);
    setPhase({ at: 'asks' });
  };
  const run = async () => {
    setError(undefined);
    setPhase({ at: 'runs' });
    try {
      let answer: (T & { operation?: string }) | undefined;
      for (const { method, path, body } of [call()].flat()) answer = await request(method, path, body);
      if (answer?.operation) setPhase({ at: 'runs', operation: answer.operation });
      else await end(answer as T);
    } catch (failure) {
      fail(failure);
    }
  };
  return (
    <Dialog title={title} onClose={onClose} wide={wide}>
      {phase.at === 'done' ? (
        <>
          <div className="done" role="status">
            {result?.(phase.answer)}
          </div>
          <div className="row end">
            <button type="button" autoFocus data-focus onClick={onClose}>
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
          {phase.at === 'runs' && phase.operation && <Running id={phase.operation} onEnd={(answer) => void end(answer as T)} onFailure={fail} />}
          <Request call={call} />
          <div className="row end">
            <button type="button" autoFocus={destroys} data-focus={destroys ? '' : undefined} onClick={onClose}>
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

/** An operation until its end. */
export function Running({ id, onEnd, onFailure }: { id: string; onEnd: (result: unknown) => void; onFailure: (error: Error) => void }) {
  const operation = useOperation(id);
  const state = operation?.state ?? 'running';
  useEffect(() => {
    const failure = operation?.error as { detail?: string } | null | undefined;
    if (failure) onFailure(new Error(failure.detail ?? 'It failed.'));
    else if (state !== 'running') onEnd(operation?.result);
    // Its end is told once.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [state]);
  return operation && <Progress of={operation} />;
}

const Progress = ({ of }: { of: Operation }) => (
  <div role="status">
    <progress value={of.done} max={Math.max(of.of, 1)} /> {count(of.done)} of {count(of.of)} {of.unit}. It goes on if this is closed.
  </div>
);

function Request({ call }: { call: () => Call | Call[] }) {
  const [shown, setShown] = useState(false);
  return (
    <details onToggle={(event) => setShown(event.currentTarget.open)}>
      <summary>As curl and as a command</summary>
      {shown && <Curl call={call} />}
    </details>
  );
}

function Curl({ call }: { call: () => Call | Call[] }) {
  let text: string;
  let commands: string[] = [];
  try {
    text = [call()].flat().map(curl).join('\n');
    commands = [call()].flat().flatMap((each) => commandOf(each) ?? []);
  } catch (error) {
    text = `# ${error instanceof Error ? error.message : 'incomplete'}`;
  }
  return (
    <>
      <pre tabIndex={0}>{text}</pre>
      <Copy text={text} />
      {commands.length > 0 && (
        <>
          <pre tabIndex={0}>{commands.join('\n')}</pre>
          <Copy text={commands.join('\n')} />
        </>
      )}
    </>
  );
}

/** A password is not shown. */
const unsecret = (name: string, value: unknown): unknown => (name === 'password' && value ? '…' : value);

export function curl({ method, path, body }: Call): string {
  const content = body?.json !== undefined ? JSON.stringify(body.json, unsecret) : body?.text;
  const parts = ['curl', ...(method === 'GET' || (method === 'POST' && content !== undefined) ? [] : ['-X', method])];
  parts.push(quoted(location.origin + path));
  if (body?.type) parts.push('-H', quoted(`Content-Type: ${body.type}`));
  if (content !== undefined) parts.push('-d', quoted(content));
  return parts.join(' ');
}
