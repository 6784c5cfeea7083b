import { useState } from 'react';
import { api, request } from '../../api/http';
import { useRefresh } from '../../api/live';
import type { Imported, ImportedDefinition } from '../../api/types';
import { Running } from '../../ui/Action';
import { count, counted, visible } from '../../ui/format';
import { Badge, Failure } from '../../ui/parts';
import { Scroll, Table, type Column } from '../../ui/Table';

const SHOWN = 200;

const short = (value: unknown): string => (value === undefined || value === null ? '(none)' : JSON.stringify(value).slice(0, 120));

const BADGES: Record<ImportedDefinition['state'], string> = { made: '+ new', changed: '~ changes', differs: '✕ differs', refused: '✕ refused' };

const COLUMNS: Column<ImportedDefinition>[] = [
  { head: 'Change', cell: ({ state }) => <Badge kind={state === 'made' ? 'good' : 'note'}>{BADGES[state]}</Badge> },
  { head: 'Kind', cell: ({ kind }) => kind.replaceAll('_', ' ') },
  {
    head: 'Name',
    phone: 'full',
    cell: ({ name, namespace, differences, state, why }) => (
      <>
        <b>{visible(name ?? '')}</b> {namespace !== null && namespace !== '/' && <Badge>in {visible(namespace)}</Badge>}
        {differences.map(({ field, is, wanted }) => (
          <div key={field} className="quiet small">
            {field}: {visible(short(is))} → {visible(short(wanted))}
          </div>
        ))}
        {state === 'differs' && <div className="quiet small">This cannot change: delete it here first, or leave it.</div>}
        {state === 'refused' && why !== null && <div className="error">{visible(why)}</div>}
      </>
    ),
  },
];

/** The changes of an import, and their making. A failure stops nothing else. */
export function Import({ name, document, plan, onDone }: { name: string; document: string; plan: Imported; onDone: () => void }) {
  const refresh = useRefresh();
  const [changes, setChanges] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [operation, setOperation] = useState<string>();
  const [done, setDone] = useState<Imported>();
  const [error, setError] = useState<unknown>();
  const wanted = plan.made + (changes ? plan.changed : 0);
  const end = async (imported: Imported) => {
    setOperation(undefined);
    setDone(imported);
    await refresh();
  };
  const run = async () => {
    setBusy(true);
    try {
      const answer = await request<Imported & { operation?: string }>('POST', api('definitions', { change: changes }), { text: document, type: 'application/json' });
      if (answer.operation) setOperation(answer.operation);
      else await end(answer);
    } catch (failure) {
      setError(failure);
    }
  };
  if (error !== undefined) return <Failure error={error} />;
  if (operation !== undefined) return <Running id={operation} onEnd={(imported) => void end(imported as Imported)} onFailure={setError} />;
  if (done) {
    return (
      <div className="above">
        <p role="status">
          {count(done.made + done.changed)} of {count(wanted)} done, {count(done.refused)} refused{done.stopped && `; it was stopped, and ${count(done.not_reached)} are left`}.
        </p>
        {done.items
          .filter(({ state }) => state === 'refused')
          .slice(0, SHOWN)
          .map(({ kind, name: what, why }, index) => (
            <p key={index} className="error">
              {kind} {visible(what ?? '')}: {visible(why ?? '')}
            </p>
          ))}
        <button type="button" onClick={onDone}>
          Close
        </button>
      </div>
    );
  }
  return (
    <div className="above">
      <p role="status">
        {visible(name)}: <b>{count(plan.made)} new</b>, {count(plan.changed)} differ and can change, {count(plan.differ)} differ and cannot, {count(plan.refused)} refused, {count(plan.same)} are the
        same.
      </p>
      {plan.items.length > 0 && (
        <Scroll low>
          <Table caption="What would change" columns={COLUMNS} rows={plan.items.slice(0, SHOWN)} keyOf={({ kind, name: what }, index) => `${kind} ${what ?? ''} ${index}`} />
        </Scroll>
      )}
      {plan.items.length > SHOWN && <p className="quiet small">The first {count(SHOWN)} are shown.</p>}
      {plan.changed > 0 && (
        <label className="check">
          <input type="checkbox" checked={changes} onChange={(event) => setChanges(event.target.checked)} /> Change the {count(plan.changed)} that differ, too
        </label>
      )}
      <div className="row above">
        <button type="button" className="main" disabled={wanted === 0 || isBusy} onClick={() => void run()}>
          {wanted === 0 ? 'Nothing to do' : `Make ${counted(wanted, 'change')}`}
        </button>
        <button type="button" onClick={onDone}>
          Cancel
        </button>
      </div>
    </div>
  );
}
