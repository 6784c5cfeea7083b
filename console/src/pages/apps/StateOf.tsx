// State of an app: the entries of a table as of the last commits, page by page, or the one of a key.
import { useState } from 'react';
import { seg } from '../../api/http';
import { useOnce } from '../../api/live';
import type { App, AppState, AppStateItem, AppStateList, Text } from '../../api/types';
import { curl } from '../../ui/Action';
import { Content, firstLine } from '../../ui/Content';
import { Dialog } from '../../ui/Dialog';
import { count, visible } from '../../ui/format';
import { Copy, Facts, Failure, Field, save } from '../../ui/parts';
import { setParams, useRoute } from '../../ui/route';
import { Scroll, Table, type Column } from '../../ui/Table';
import { appUrl } from './Apps';

const PAGE = 50;
const KEYS = ['prefix', 'key', 'task'];

const keyText = (key: Text): string => (typeof key === 'string' ? key : `base64:${key.base64}`);

export function StateOf({ app }: { app: App }) {
  const { query } = useRoute();
  const table = query.get('table') ?? app.tables[0];
  if (table === undefined) {
    return (
      <div className="empty">
        <p>
          <strong>The app has no table.</strong> Tables are part of its declaration; workers put entries into them with their commits.
        </p>
      </div>
    );
  }
  return (
    <section aria-label="State">
      {app.tables.length > 1 && (
        <div className="chips above-list" role="group" aria-label="Tables">
          {app.tables.map((name) => (
            <button key={name} type="button" className="chip" aria-pressed={name === table} onClick={() => setParams({ table: name, after: undefined, key: undefined })}>
              {visible(name)}
            </button>
          ))}
        </div>
      )}
      <Choice key={query.toString()} app={app} />
      {query.get('key') ? <One app={app} table={table} name={query.get('key') ?? ''} task={query.get('task')} /> : <Page app={app} table={table} />}
    </section>
  );
}

function Choice({ app }: { app: App }) {
  const { query } = useRoute();
  const [texts, setTexts] = useState<Record<string, string>>(() => Object.fromEntries(KEYS.map((name) => [name, query.get(name) ?? ''])));
  const set = (name: string) => (event: { target: { value: string } }) => setTexts({ ...texts, [name]: event.target.value });
  return (
    <form
      className="form two card"
      onSubmit={(event) => {
        event.preventDefault();
        setParams({ ...texts, after: undefined });
      }}
    >
      <Field label="Key begins with">
        <input value={texts.prefix} onChange={set('prefix')} spellCheck={false} data-search />
      </Field>
      <Field label="Key, exactly">
        <input value={texts.key} onChange={set('key')} spellCheck={false} />
      </Field>
      <Field label="Task of the key" help="Empty: as records are partitioned by their keys">
        <select value={texts.task} onChange={set('task')}>
          <option value="">by the key</option>
          {app.tasks.slice(0, 1000).map(({ task }) => (
            <option key={task}>{task}</option>
          ))}
        </select>
      </Field>
      <div className="row wide">
        <button type="submit" className="main">
          Look
        </button>
        <span className="quiet small">Entries are as of the last commit of their task.</span>
      </div>
    </form>
  );
}

const columns = (onOpen: (item: AppStateItem) => void): Column<AppStateItem>[] => [
  {
    head: 'Key',
    cell: (item) => (
      <button type="button" className="link mono" onClick={() => onOpen(item)}>
        {visible(keyText(item.key)) || '(empty)'}
      </button>
    ),
  },
  { head: 'Task', cell: ({ task }) => task },
  { head: 'Value', phone: 'full', cell: ({ value, value_base64: base64 }) => <span className="line mono">{firstLine({ value, base64 })}</span> },
];

function Page({ app, table }: { app: App; table: string }) {
  const { query } = useRoute();
  const [opened, setOpened] = useState<AppStateItem>();
  const url = appUrl(app.name, `/state/${seg(table)}`, { count: PAGE, prefix: query.get('prefix'), after: query.get('after') });
  const found = useOnce<AppStateList>(url);
  const items = found.data?.items ?? [];
  const next = found.data?.next;
  return (
    <>
      <Failure error={found.error} />
      {found.data && items.length === 0 && <div className="empty">{next ? 'No entry on this page: go on.' : 'No entry is there.'}</div>}
      {items.length > 0 && (
        <Scroll>
          <Table caption={`Entries of ${table}`} columns={columns(setOpened)} rows={items} keyOf={({ key, task }) => `${task} ${keyText(key)}`} />
        </Scroll>
      )}
      {found.data && (
        <div className="foot">
          <span>{count(items.length)} shown</span>
          <span className="row">
            <button type="button" className="plain small" onClick={() => void found.refetch()}>
              Look again
            </button>
            <Copy label="As curl" text={curl({ method: 'GET', path: url })} />
            <button type="button" className="plain small" onClick={() => save(`state.ndjson`, items.map((item) => `${JSON.stringify(item)}\n`).join(''))}>
              Save as NDJSON
            </button>
            {query.get('after') && (
              <button type="button" onClick={() => setParams({ after: undefined })}>
                First page
              </button>
            )}
            {next && (
              <button type="button" onClick={() => setParams({ after: next }, false)}>
                Next page
              </button>
            )}
          </span>
        </div>
      )}
      {opened && (
        <Dialog title={`Entry of ${visible(table)}`} onClose={() => setOpened(undefined)} wide>
          <Entry of={opened} />
          <div className="row end">
            <button type="button" autoFocus data-focus onClick={() => setOpened(undefined)}>
              Close
            </button>
          </div>
        </Dialog>
      )}
    </>
  );
}

const Entry = ({ of: { key, task, value, value_base64: base64 } }: { of: AppStateItem }) => (
  <>
    <Facts rows={[['Key', <code key="k">{visible(keyText(key))}</code>], ['Task', task]]} />
    <Content raw={{ value, base64 }} />
  </>
);

function One({ app, table, name, task }: { app: App; table: string; name: string; task: string | null }) {
  const { data, error } = useOnce<AppState>(appUrl(app.name, `/state/${seg(table, name)}`, { task }));
  return (
    <>
      <Failure error={error} />
      {data && (
        <section className="card stack">
          <Entry of={data} />
          <Facts
            rows={[
              ['Commit', count(data.seq)],
              ['Records before', Object.entries(data.next).map(([topic, next]) => `${visible(topic)} ${count(next)}`).join(', ')],
            ]}
          />
        </section>
      )}
    </>
  );
}
