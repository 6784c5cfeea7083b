import { useState } from 'react';
import { request } from '../../api/http';
import { useLive, useRefresh } from '../../api/live';
import type { App as State, AppMove, AppMoves, DeletedApp } from '../../api/types';
import { Action } from '../../ui/Action';
import { Course } from '../../ui/Course';
import { DryRun, useDryRun } from '../../ui/DryRun';
import { bytes, count, counted, short, visible } from '../../ui/format';
import { Badge, Durability, Failure, Figures, Head, Tabs, useTab } from '../../ui/parts';
import { go, to } from '../../ui/route';
import { Scroll, Table, type Column } from '../../ui/Table';
import { appUrl, TopicLink } from './Apps';
import { Reset } from './Reset';
import { Settings } from './Settings';
import { StateOf } from './StateOf';
import { rests, Tasks } from './Tasks';
import { Workers } from './Workers';

export function App({ name }: { name: string }) {
  const { data: app, error, dataUpdatedAt } = useLive<State>(appUrl(name));
  const tab = useTab('tasks');
  if (!app || error) {
    return (
      <>
        <Head title={visible(name)} trail={['Apps', to(['apps'])]} />
        <Failure error={error} />
      </>
    );
  }
  const stopped = app.tasks.filter(rests).length;
  return (
    <>
      <Head
        title={visible(name)}
        trail={['Apps', to(['apps'])]}
        badges={
          <>
            <Durability level={app.durability} />
            {app.paused ? <Badge kind="note">paused</Badge> : <Badge kind="good">● running</Badge>}
            {stopped > 0 && <Badge kind="bad">{`▲ ${count(stopped)} stopped`}</Badge>}
          </>
        }
      >
        <Actions app={app} />
      </Head>
      <p className="quiet lead">
        Reads {app.topics.map((topic) => <TopicLink key={topic} name={topic} />)}
      </p>
      <Totals app={app} />
      {tab === 'tasks' && <Course title="Lag" format={short} stamp={dataUpdatedAt} of={[{ name: 'lag', label: 'Lag', value: app.lag }]} />}
      <Tabs
        of={[
          ['tasks', `Tasks (${short(app.tasks_total)})`],
          ['workers', `Workers (${short(app.workers.length)})`],
          ['state', 'State'],
          ['settings', 'Settings'],
        ]}
      />
      {tab === 'tasks' && <Tasks app={app} />}
      {tab === 'workers' && <Workers app={app} />}
      {tab === 'state' && <StateOf app={app} />}
      {tab === 'settings' && <Settings app={app} />}
    </>
  );
}

/** Sum over the tasks whose state is known; null if none is. */
const sum = (app: State, of: 'bytes' | 'entries' | 'timers'): number | null => {
  const known = app.tasks.flatMap(({ position }) => position?.[of] ?? []);
  return known.length === 0 ? null : known.reduce((total, value) => total + value, 0);
};

function Totals({ app }: { app: State }) {
  const free = app.tasks.filter(({ worker }) => worker === null).length;
  return (
    <Figures
      of={[
        { name: 'Lag', value: short(app.lag), exact: count(app.lag), more: 'records' },
        { name: 'Tasks', value: count(app.tasks_total), more: free === 0 ? 'all have a worker' : `${count(free)} without a worker` },
        { name: 'Workers', value: count(app.workers.length), href: to(['apps', app.name], { tab: 'workers' }) },
        { name: 'State', value: bytes(sum(app, 'bytes')), more: `${short(sum(app, 'entries'))} entries` },
        { name: 'Timers', value: short(sum(app, 'timers')) },
        { name: 'Failing', value: count(app.tasks.filter(({ failure }) => failure).length), more: 'tasks at a record' },
      ]}
    />
  );
}

function Actions({ app }: { app: State }) {
  const refresh = useRefresh();
  const [error, setError] = useState<unknown>();
  const flip = () => {
    setError(undefined);
    request('POST', appUrl(app.name, app.paused ? '/resume' : '/pause')).then(refresh, setError);
  };
  return (
    <>
      <button type="button" onClick={flip} title={app.paused ? 'Deliver records to the workers again' : 'Deliver nothing more; what was delivered may still be committed'}>
        {app.paused ? 'Resume' : 'Pause'}
      </button>
      <Rebalance app={app} />
      <Reset app={app} />
      <Delete app={app} />
      <Failure error={error} />
    </>
  );
}

const MOVES: Column<AppMove>[] = [
  { head: 'Task', cell: ({ task }) => task },
  { head: 'From', cell: ({ from }) => visible(from) },
  { head: 'To', cell: ({ to: target }) => visible(target) },
];

function Rebalance({ app }: { app: State }) {
  const dry = useDryRun(() => request<AppMoves>('POST', appUrl(app.name, '/rebalance', { dry_run: true })));
  const moves = dry.found?.moves;
  return (
    <Action<AppMoves>
      label="Rebalance"
      title={`Rebalance ${visible(app.name)}`}
      confirm={moves ? `Move ${counted(moves.length, 'task')}` : 'Look first'}
      incomplete={!moves || moves.length === 0}
      onOpen={dry.forget}
      call={() => ({ method: 'POST', path: appUrl(app.name, '/rebalance') })}
      result={({ moves: begun }) => `${counted(begun.length, 'move')} begun: each worker finishes its record, commits, and releases the task.`}
    >
      <p>Moves as few tasks as give each worker its share. A task rests from its release to its next claim.</p>
      <DryRun of={dry} label="Show what would move (dry run)" />
      {moves?.length === 0 && <p className="hint">The tasks are balanced already.</p>}
      {moves && moves.length > 0 && (
        <Scroll low>
          <Table narrow caption="Moves" columns={MOVES} rows={moves} keyOf={({ task }) => task} />
        </Scroll>
      )}
    </Action>
  );
}

function Delete({ app }: { app: State }) {
  const [force, setForce] = useState(false);
  const held = app.tasks.filter(({ worker }) => worker !== null).length;
  const entries = sum(app, 'entries');
  return (
    <Action<DeletedApp>
      label="Delete"
      destroys
      title={`Delete ${visible(app.name)}`}
      confirm="Delete the app and its state"
      typed={(entries ?? 1001) > 1000 ? app.name : undefined}
      incomplete={held > 0 && !force}
      onOpen={() => setForce(false)}
      call={() => ({ method: 'DELETE', path: appUrl(app.name, '', { force: force || undefined }) })}
      after={() => go(to(['apps']))}
    >
      <p>
        The app goes with its positions and its state: <b>{entries === null ? 'an unknown number of entries' : counted(entries, 'entry', 'entries')}</b> ({bytes(sum(app, 'bytes'))}) in {counted(app.tables.length, 'table')}. Records of its topics stay. This
        cannot be taken back.
      </p>
      {held > 0 && (
        <label className="check">
          <input type="checkbox" checked={force} onChange={(event) => setForce(event.target.checked)} /> Although workers hold {count(held)} of its tasks: their next command is refused
        </label>
      )}
      <p className="quiet">Gentler: pause the app.</p>
    </Action>
  );
}
