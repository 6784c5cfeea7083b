import { useState } from 'react';
import { request } from '../../api/http';
import type { App, AppReset, AppResets } from '../../api/types';
import { Action } from '../../ui/Action';
import { DryRun, useDryRun } from '../../ui/DryRun';
import { change, count, counted, visible } from '../../ui/format';
import { Field } from '../../ui/parts';
import { Scroll, Table, type Column } from '../../ui/Table';
import { appUrl } from './Apps';

interface Place {
  task: string;
  topic: string;
  before: number;
  after: number;
}

const PLACES: Column<Place>[] = [
  { head: 'Task', cell: ({ task, topic }) => `${task}, ${visible(topic)}` },
  { head: 'Before', num: true, cell: ({ before }) => count(before) },
  { head: 'After', num: true, cell: ({ after }) => count(after) },
  { head: 'Change', num: true, cell: ({ before, after }) => change(before, after) },
];

const placesOf = ({ tasks }: AppResets): Place[] =>
  tasks.flatMap(({ task, from, to }) => Object.entries(to).map(([topic, after]) => ({ task, topic, before: from[topic] ?? 0, after })));

/** Sets the positions of a paused app, after a dry run. */
export function Reset({ app }: { app: App }) {
  const [task, setTask] = useState('');
  const [place, setPlace] = useState('earliest');
  const [text, setText] = useState('');
  const [state, setState] = useState('keep');
  const body = (): AppReset => {
    const json: AppReset = { to: place };
    if (place === 'text') json.to = text;
    if (place === 'offsets') json.to = offsets(text, app.topics);
    if (task) json.task = task;
    if (state === 'drop') json.state = 'drop';
    return json;
  };
  const dry = useDryRun(() => request<AppResets>('POST', appUrl(app.name, '/reset', { dry_run: true }), { json: body() }));
  const changed = (set: (value: string) => void) => (event: { target: { value: string } }) => {
    dry.forget();
    set(event.target.value);
  };
  const places = dry.found && placesOf(dry.found);
  const why = app.paused ? undefined : 'Pause the app first: positions are set while it rests';
  return (
    <Action<AppResets>
      label="Reset"
      destroys
      wide
      disabled={why !== undefined}
      why={why}
      title={`Set the positions of ${visible(app.name)}`}
      confirm={places ? `Set ${counted(places.length, 'position')}` : 'Look first'}
      incomplete={!places}
      typed={state === 'drop' ? app.name : undefined}
      onOpen={dry.forget}
      call={() => ({ method: 'POST', path: appUrl(app.name, '/reset'), body: { json: body() } })}
      result={(done) => `${counted(placesOf(done).length, 'position')} set. The app is still paused: resume it.`}
    >
      <p>All claims end, and workers claim the tasks again from the new positions. With the state kept, a record that is done again counts again; results are sent again.</p>
      <div className="form two">
        <Field label="Task">
          <select value={task} onChange={changed(setTask)}>
            <option value="">all {count(app.tasks_total)}</option>
            {app.tasks.map(({ task: id }) => (
              <option key={id}>{id}</option>
            ))}
          </select>
        </Field>
        <Field label="To">
          <select value={place} onChange={changed(setPlace)}>
            <option value="earliest">the oldest record</option>
            <option value="latest">the end</option>
            <option value="text">a time or an age</option>
            <option value="offsets">offsets</option>
          </select>
        </Field>
        {place === 'text' && (
          <Field label="Time or age" help="Such as 2026-11-22T14:00:00Z, or -1h">
            <input value={text} onChange={changed(setText)} spellCheck={false} required />
          </Field>
        )}
        {place === 'offsets' && (
          <Field label="Offsets" help={app.topics.length === 1 ? 'A number' : 'By topic, such as {"orders": 3}'}>
            <input value={text} onChange={changed(setText)} spellCheck={false} required />
          </Field>
        )}
        <Field label="State">
          <select value={state} onChange={changed(setState)}>
            <option value="keep">is kept</option>
            <option value="drop">is dropped: tables and timers</option>
          </select>
        </Field>
      </div>
      {state === 'drop' && <p className="hint">{task === '' ? 'The state of all tasks is destroyed' : `The state of task ${task} is destroyed`}. This cannot be taken back.</p>}
      <DryRun of={dry} label="Show what would change (dry run)" />
      {places && (
        <Scroll low>
          <Table narrow caption="Positions before and after" columns={PLACES} rows={places} keyOf={({ task: id, topic }) => `${id} ${topic}`} />
        </Scroll>
      )}
    </Action>
  );
}

/** Offsets of a text: a number for the only topic, or an object by topic. */
function offsets(text: string, topics: string[]): AppReset['to'] {
  if (/^\d+$/.test(text) && topics.length === 1) return Number(text);
  return JSON.parse(text) as { [name: string]: number };
}
