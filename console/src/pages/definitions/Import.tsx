import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { request } from '../../api/http';
import { count, counted, visible } from '../../ui/format';
import { Badge } from '../../ui/parts';
import { Scroll, Table, type Column } from '../../ui/Table';
import { canonical } from './collect';
import { idOf, type Step } from './plan';

const SHOWN = 200;

const short = (value: unknown): string => (value === undefined ? '(none)' : canonical(value).slice(0, 120));

const COLUMNS: Column<Step>[] = [
  { head: 'Change', cell: ({ state, call }) => <Badge kind={state === 'new' ? 'good' : 'note'}>{state === 'new' ? '+ new' : call ? '~ changes' : '✕ differs'}</Badge> },
  { head: 'Kind', cell: ({ item }) => item.kind },
  {
    head: 'Name',
    phone: 'full',
    cell: ({ item, differences, state, call }) => (
      <>
        <b>{visible(item.name)}</b> {item.namespace !== undefined && item.namespace !== '/' && <Badge>in {visible(item.namespace)}</Badge>}
        {state === 'new' && item.kind === 'rules' && <div className="quiet small">{visible(short(item.settings))}</div>}
        {differences.map(([name, here, wanted]) => (
          <div key={name} className="quiet small">
            {name}: {visible(short(here))} → {visible(short(wanted))}
          </div>
        ))}
        {state === 'differs' && !call && <div className="quiet small">This cannot change: delete it here first, or leave it.</div>}
      </>
    ),
  },
];

/** The changes of an import, and their making. A failure stops nothing else. */
export function Import({ name, steps, onDone }: { name: string; steps: Step[]; onDone: () => void }) {
  const client = useQueryClient();
  const [changes, setChanges] = useState(false);
  const [done, setDone] = useState<{ count: number; failures: [string, string][]; isOver: boolean }>();
  const made = steps.filter(({ state }) => state === 'new');
  const changed = steps.filter(({ state, call }) => state === 'differs' && call);
  const fixed = steps.filter(({ state, call }) => state === 'differs' && !call);
  const wanted = changes ? [...made, ...changed] : made;
  const run = async () => {
    const failures: [string, string][] = [];
    setDone({ count: 0, failures, isOver: false });
    for (const [index, { item, call }] of wanted.entries()) {
      try {
        if (call) await request(call.method, call.path, call.body);
      } catch (error) {
        failures.push([`${item.kind} ${item.name}`, error instanceof Error ? error.message : String(error)]);
      }
      if (index % 20 === 0) setDone({ count: index + 1, failures, isOver: false });
    }
    setDone({ count: wanted.length, failures, isOver: true });
    await client.invalidateQueries();
  };
  if (done) {
    return (
      <div className="above">
        <p role="status">
          {count(done.count)} of {count(wanted.length)} done, {count(done.failures.length)} refused.
        </p>
        {done.failures.slice(0, SHOWN).map(([what, why]) => (
          <p key={what} className="error">
            {visible(what)}: {why}
          </p>
        ))}
        <button type="button" disabled={!done.isOver} onClick={onDone}>
          Close
        </button>
      </div>
    );
  }
  const rows = steps.filter(({ state }) => state !== 'same');
  return (
    <div className="above">
      <p role="status">
        {visible(name)}: <b>{count(made.length)} new</b>, {count(changed.length)} differ and can change, {count(fixed.length)} differ and cannot, {count(steps.length - rows.length)} are the same.
      </p>
      {rows.length > 0 && (
        <Scroll low>
          <Table caption="What would change" columns={COLUMNS} rows={rows.slice(0, SHOWN)} keyOf={({ item }, index) => idOf(item) + index} />
        </Scroll>
      )}
      {rows.length > SHOWN && <p className="quiet small">The first {count(SHOWN)} are shown.</p>}
      {changed.length > 0 && (
        <label className="check">
          <input type="checkbox" checked={changes} onChange={(event) => setChanges(event.target.checked)} /> Change the {count(changed.length)} that differ, too
        </label>
      )}
      <div className="row above">
        <button type="button" className="main" disabled={wanted.length === 0} onClick={() => void run()}>
          {wanted.length === 0 ? 'Nothing to do' : `Make ${counted(wanted.length, 'change')}`}
        </button>
        <button type="button" onClick={onDone}>
          Cancel
        </button>
      </div>
    </div>
  );
}
