import { useState } from 'react';
import type { App, AppDone, AppTask } from '../../api/types';
import { seg } from '../../api/http';
import { Action } from '../../ui/Action';
import { age, bytes, count, counted, short, visible } from '../../ui/format';
import { Badge, Field } from '../../ui/parts';
import { Link, to, useParam } from '../../ui/route';
import { Scroll, Table, type Column } from '../../ui/Table';
import { appUrl } from './Apps';

const SHOWN = 200;

/** True for a task that waits for an operator: at a gap, at a record or timer that failed for the last time, or with a log that cannot be read. */
export const rests = ({ gap, failure, unreadable }: AppTask): boolean => gap !== null || unreadable !== null || (failure !== null && failure.retry === null);

const FILTERS: [string, string, (task: AppTask) => boolean][] = [
  ['free', 'Without a worker', ({ worker }) => worker === null],
  ['failing', 'Failing or stopped', (task) => rests(task) || task.failure !== null],
  ['pinned', 'Pinned', ({ pinned }) => pinned !== null],
];

const ORDERS: [string, string, (task: AppTask) => number][] = [
  ['', 'by number', () => 0],
  ['lag', 'furthest behind first', ({ position }) => position?.lag ?? -1],
  ['bytes', 'most state first', ({ position }) => position?.bytes ?? -1],
  ['moves', 'most moves first', ({ moves }) => moves],
];

export function Tasks({ app }: { app: App }) {
  const [only, setOnly] = useParam('only');
  const [order = '', setOrder] = useParam('order');
  const [isAll, setAll] = useState(false);
  const filter = FILTERS.find(([name]) => name === only)?.[2];
  const weight = ORDERS.find(([name]) => name === order)?.[2];
  const matched = filter ? app.tasks.filter(filter) : app.tasks;
  const sorted = weight && order ? [...matched].sort((one, other) => weight(other) - weight(one)) : matched;
  const rows = isAll ? sorted : sorted.slice(0, SHOWN);
  return (
    <section aria-label="Tasks">
      <div className="tools">
        <div className="chips" role="group" aria-label="Which tasks">
          {FILTERS.map(([name, label]) => (
            <button key={name} type="button" className="chip" aria-pressed={only === name} onClick={() => setOnly(only === name ? undefined : name)}>
              {label}
            </button>
          ))}
        </div>
        <select aria-label="Order of the tasks" value={order} onChange={(event) => setOrder(event.target.value || undefined)}>
          {ORDERS.map(([name, label]) => (
            <option key={name} value={name}>
              {label}
            </option>
          ))}
        </select>
      </div>
      {rows.length === 0 ? (
        <div className="empty">No task is so.</div>
      ) : (
        <Scroll>
          <Table caption="Tasks" columns={columns(app)} rows={rows} keyOf={({ task }) => task} />
        </Scroll>
      )}
      <div className="foot">
        <span>
          {count(rows.length)} of {counted(app.tasks_total, 'task')}
        </span>
        {sorted.length > rows.length && (
          <button type="button" onClick={() => setAll(true)}>
            Show all {count(sorted.length)}
          </button>
        )}
      </div>
    </section>
  );
}

const columns = (app: App): Column<AppTask>[] => [
  {
    head: 'Task',
    cell: (task) => (
      <>
        <b>{task.task}</b> <Badge kind={task.state === 'held' ? '' : 'note'}>{task.state}</Badge> {task.pinned !== null && <Badge>{`pinned to ${visible(task.pinned)}`}</Badge>}
        <Trouble of={task} />
      </>
    ),
  },
  { head: 'Worker', cell: ({ worker }) => (worker === null ? <span className="quiet">none</span> : visible(worker)) },
  { head: 'Position', cell: (task) => <Position of={task} /> },
  { head: 'Lag', num: true, cell: ({ position }) => <span title={count(position?.lag)}>{short(position?.lag)}</span> },
  { head: 'State', num: true, cell: ({ position }) => bytes(position?.bytes) },
  { head: 'Entries', num: true, phone: 'less', cell: ({ position }) => short(position?.entries) },
  { head: 'Timers', num: true, phone: 'less', cell: ({ position }) => short(position?.timers) },
  { head: 'Moves', num: true, cell: ({ moves, epoch }) => <span title={`epoch ${epoch}`}>{count(moves)}</span> },
  {
    head: 'Does',
    phone: 'full',
    cell: (task) => (
      <span className="row">
        <Assign app={app} task={task} />
        {task.gap && <AcceptGap app={app} task={task} />}
      </span>
    ),
  },
];

const partition = (task: string): string => task.split(/\D/)[0] ?? task;

/** Next offset and end of each topic, with a way to the records. */
const Position = ({ of: { task, position } }: { of: AppTask }) =>
  position === null ? (
    <span className="quiet">not in memory</span>
  ) : (
    <>
      {Object.entries(position.next).map(([topic, next]) => (
        <div key={topic}>
          <Link href={to(['topics', topic], { tab: 'records', partition: partition(task), from: String(next) })}>
            {visible(topic)} {count(next)}
          </Link>{' '}
          <span className="quiet">of {count(position.end[topic])}</span>
        </div>
      ))}
    </>
  );

/** The reason why a task rests, or tries a record again. */
function Trouble({ of: { gap, failure, unreadable } }: { of: AppTask }) {
  return (
    <>
      {unreadable !== null && <p className="error tight">The log of the task cannot be read: {visible(unreadable)}.</p>}
      {gap && (
        <p className="hint tight">
          Records {count(Number(gap[1]))} to {count(Number(gap[2]))} of {visible(String(gap[0]))} are gone. The task rests until that is accepted.
        </p>
      )}
      {failure && (
        <p className={`${failure.retry === null ? 'error' : 'hint'} tight`}>
          {failure.timer
            ? `Timer ${visible(String(failure.timer[0]))} ${visible(String(failure.timer[2]))}`
            : `Record ${count(failure.offset ?? 0)} of ${visible(failure.topic ?? '')}`}{' '}
          failed {counted(failure.attempts, 'time')}: {visible(failure.error)}.{' '}
          {failure.retry === null ? 'The task rests: set a topic for dead letters in the settings, or reset its position behind the record.' : `It is tried again ${due(failure.retry)}.`}
        </p>
      )}
    </>
  );
}

const due = (ms: number): string => {
  const at = new Date(ms).toISOString();
  const since = age(at);
  return since === 'now' ? 'soon' : `since ${since}`;
};

function Assign({ app, task }: { app: App; task: AppTask }) {
  const [worker, setWorker] = useState('');
  const [absent, setAbsent] = useState('wait');
  const path = appUrl(app.name, `/tasks/${seg(task.task)}/worker`);
  return (
    <>
      <Action<AppDone>
        label="Assign"
        title={`Assign task ${task.task} to a worker`}
        confirm="Assign"
        incomplete={worker === ''}
        call={() => ({ method: 'PUT', path, body: { json: { worker, absent } } })}
        result={() => `Task ${task.task} is pinned to ${visible(worker)}.`}
      >
        <p>
          The task is pinned: {task.worker === null ? 'the worker gets it at once.' : `${visible(task.worker)} finishes its record, commits and releases it first.`} Balancing leaves it alone until the pin ends.
        </p>
        <Field label="Worker" help={app.workers.length === 0 ? 'No worker is there now' : undefined}>
          <input list={`workers-${task.task}`} value={worker} onChange={(event) => setWorker(event.target.value)} autoFocus data-focus required spellCheck={false} />
        </Field>
        <datalist id={`workers-${task.task}`}>
          {app.workers.map(({ name }) => (
            <option key={name} value={name} />
          ))}
        </datalist>
        <Field label="While it is not there">
          <select value={absent} onChange={(event) => setAbsent(event.target.value)}>
            <option value="wait">the task waits</option>
            <option value="balance">others may have the task</option>
            <option value="refuse">refuse, if it is not there now</option>
          </select>
        </Field>
      </Action>
      {task.pinned !== null && (
        <Action<AppDone> label="Unpin" title={`End the pin of task ${task.task}`} confirm="End the pin" call={() => ({ method: 'DELETE', path })}>
          <p>Balancing may move the task again.</p>
        </Action>
      )}
    </>
  );
}

function AcceptGap({ app, task }: { app: App; task: AppTask }) {
  const [topic, from, until] = task.gap ?? [];
  return (
    <Action<AppDone>
      label="Accept the gap"
      destroys
      title={`Let task ${task.task} go on behind the gap`}
      confirm={`Go on without ${counted(Number(until) - Number(from), 'record')}`}
      call={() => ({ method: 'POST', path: appUrl(app.name, `/tasks/${seg(task.task)}/accept-gap`) })}
    >
      <p>
        Retention removed records {count(Number(from))} to {count(Number(until))} of {visible(String(topic))} before the task had read them. <b>Its state lacks them for good</b>, and it goes on from {count(Number(until))}.
      </p>
    </Action>
  );
}
