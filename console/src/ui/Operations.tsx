// What takes long goes on when its dialog is closed, and is found again in the frame.
import { useState } from 'react';
import { request } from '../api/http';
import { useLive } from '../api/live';
import { useCaller, useLoginWanted } from '../api/session';
import type { Operation, OperationList } from '../api/types';
import { Dialog } from './Dialog';
import { count, visible } from './format';
import { Badge, Failure, Time } from './parts';

export function Operations() {
  const [isOpen, setOpen] = useState(false);
  const caller = useCaller();
  const isLoginWanted = useLoginWanted();
  const found = useLive<OperationList>(!isLoginWanted && caller?.can.includes('view') ? '/v1/operations?count=50&sort=-begun' : null, 3000).data;
  const items = found?.items ?? [];
  const running = items.filter(({ state }) => state === 'running');
  if (running.length === 0 && !isOpen) return null;
  const [first] = running;
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>
        {first && <progress value={first.done} max={Math.max(first.of, 1)} aria-label={words(first)} />}
        <span className="wide">{first ? words(first) : 'Operations'}</span>
        {running.length > 1 && ` and ${running.length - 1} more`}
      </button>
      {isOpen && (
        <Dialog title="Operations" onClose={() => setOpen(false)}>
          {items.length === 0 && <p className="quiet">None is known.</p>}
          {items.map((operation) => (
            <One key={operation.id} of={operation} />
          ))}
          <div className="row end">
            <button type="button" autoFocus data-focus onClick={() => setOpen(false)}>
              Close
            </button>
          </div>
        </Dialog>
      )}
    </>
  );
}

const words = ({ what, on }: Operation): string => `${what.replaceAll('_', ' ')} ${visible(on.queue ?? on.topic ?? on.namespace ?? on.target ?? '')}`.trim();
const KINDS: { [state: string]: '' | 'good' | 'note' | 'bad' } = { running: 'note', done: 'good', failed: 'bad' };

function One({ of }: { of: Operation }) {
  const [error, setError] = useState<unknown>();
  const failure = of.error as { detail?: string } | null | undefined;
  return (
    <section>
      <p className="row">
        <Badge kind={KINDS[of.state] ?? ''}>{of.state}</Badge> <b>{words(of)}</b> <Time at={of.begun} />
      </p>
      <p className="row">
        <progress value={of.done} max={Math.max(of.of, 1)} aria-label={`${words(of)}, done`} /> {count(of.done)} of {count(of.of)} {of.unit}
        {of.state === 'running' && (of.what === 'move' || of.what === 'scrub') && (
          <button type="button" onClick={() => void request('DELETE', `/v1/operations/${of.id}`).catch(setError)}>
            Stop
          </button>
        )}
      </p>
      {failure?.detail && <p className="error">{visible(failure.detail)}</p>}
      <Failure error={error} />
    </section>
  );
}
