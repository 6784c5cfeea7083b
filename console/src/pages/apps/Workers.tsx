import { useState } from 'react';
import { seg } from '../../api/http';
import type { App, AppDone, AppWorker } from '../../api/types';
import { Action } from '../../ui/Action';
import { count, counted, duration, share, visible } from '../../ui/format';
import { Badge, Commands, Field, Meter } from '../../ui/parts';
import { Scroll, Table, type Column } from '../../ui/Table';
import { appUrl } from './Apps';

export function Workers({ app }: { app: App }) {
  if (app.workers.length === 0) {
    return (
      <div className="empty">
        <p>
          <strong>No worker is there.</strong> Tasks keep their positions and state, and lag grows as records come. A worker is a program that joins:
        </p>
        <Commands text={`curl ${location.origin}${appUrl(app.name, '/workers/w-1/join')} -d '{}'`} />
      </div>
    );
  }
  return (
    <Scroll>
      <Table caption="Workers" columns={columns(app)} rows={app.workers} keyOf={({ name }) => name} />
    </Scroll>
  );
}

const columns = (app: App): Column<AppWorker>[] => [
  {
    head: 'Worker',
    cell: ({ name, draining, silent_ms: silent }) => (
      <>
        <b>{visible(name)}</b> {draining && <Badge kind="note">draining</Badge>} {silent * 2 > app.worker_timeout_ms && <Badge kind="bad">▲ silent</Badge>}
      </>
    ),
  },
  {
    head: 'Tasks',
    num: true,
    cell: ({ tasks, target }) => (
      <span title="tasks that it has, and its share">
        {count(tasks)} of {count(target)}
      </span>
    ),
  },
  { head: 'Share of the tasks', wide: true, phone: 'less', cell: ({ tasks }) => <Meter share={tasks / Math.max(1, app.tasks_total)} /> },
  { head: 'Weight', num: true, cell: ({ weight, tasks_max: max }) => `${count(weight)}${max === null ? '' : `, at most ${counted(max, 'task')}`}` },
  { head: 'Load', num: true, cell: ({ load }) => <span title="as it reports it, of a core">{share(load)}</span> },
  { head: 'Last sign of life', num: true, cell: ({ silent_ms: ms }) => `${duration(ms)} ago` },
  { head: 'Events waiting', num: true, phone: 'less', cell: ({ events_waiting: n }) => count(n) },
  { head: 'Does', phone: 'full', cell: (worker) => <Drain app={app} worker={worker} /> },
];

function Drain({ app, worker }: { app: App; worker: AppWorker }) {
  const [over, setOver] = useState('');
  const path = (query: Record<string, string | boolean | undefined>) => appUrl(app.name, `/workers/${seg(worker.name)}/drain`, query);
  const others = app.workers.length - 1;
  return (
    <>
      <Action<AppDone>
        label="Drain"
        hidden={worker.draining}
        title={`Drain ${visible(worker.name)}`}
        confirm={`Hand over ${counted(worker.tasks, 'task')}`}
        call={() => ({ method: 'POST', path: path({ over: over === '' ? undefined : `${over}s` }) })}
        result={() => `${visible(worker.name)} hands its tasks over, and is given none.`}
      >
        <p>
          Before its program is stopped: its tasks (<b>{count(worker.tasks)}</b>) {others === 0 ? 'wait without a worker, as there is no other one' : `go to ${others === 1 ? 'the other one' : `the other ${count(others)}`}`}, each after a commit, and it is given nothing meanwhile.
        </p>
        <Field label="Over seconds" help="Empty: at once">
          <input type="number" min="0" max="3600" value={over} onChange={(event) => setOver(event.target.value)} autoFocus data-focus />
        </Field>
      </Action>
      {worker.draining && (
        <Action<AppDone> label="End the drain" title={`Let ${visible(worker.name)} have tasks again`} confirm="End the drain" call={() => ({ method: 'POST', path: path({ cancel: true }) })}>
          <p>It is given its share of the tasks again.</p>
        </Action>
      )}
    </>
  );
}
