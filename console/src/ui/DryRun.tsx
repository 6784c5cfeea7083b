// A dry run: the effects of a change, asked for before it is made.
import { useState } from 'react';
import { Failure } from './parts';

export interface Dry<T> {
  found?: T;
  error?: unknown;
  look: () => void;
  /** A choice has changed: the effects are unknown again. */
  forget: () => void;
}

export function useDryRun<T>(ask: () => Promise<T>): Dry<T> {
  const [found, setFound] = useState<T>();
  const [error, setError] = useState<unknown>();
  const forget = () => {
    setFound(undefined);
    setError(undefined);
  };
  const look = () => {
    forget();
    // A choice that cannot be sent is an error, too.
    Promise.resolve().then(ask).then(setFound, setError);
  };
  return { found, error, look, forget };
}

export const DryRun = <T,>({ of: { look, error }, label, disabled }: { of: Dry<T>; label: string; disabled?: boolean }) => (
  <>
    <div className="row">
      <button type="button" onClick={look} disabled={disabled}>
        {label}
      </button>
    </div>
    <Failure error={error} />
  </>
);
