// The audit: done and refused requests with user and address. The filters and the page are the address.
import { useState } from 'react';
import type { AuditEntryShown } from '../api/types';
import { counted, visible } from '../ui/format';
import { List, type Column } from '../ui/List';
import { pageOf } from '../ui/pages';
import { Badge, Field, Head, Time } from '../ui/parts';
import { Link, setParams, to, useRoute } from '../ui/route';

const TEXTS: [string, string, string][] = [
  ['by', 'User', 'ann'],
  ['action', 'Action', 'topic or topic.deleted'],
  ['on', 'Name of the thing', 'orders'],
];
const TIMES: [string, string][] = [
  ['since', 'From'],
  ['until', 'Before'],
];
const NAMES = [...TEXTS.map(([name]) => name), ...TIMES.map(([name]) => name)];

const COLUMNS: Column<AuditEntryShown>[] = [
  { head: 'Time', cell: ({ at, request }) => <span title={request ? `request ${request}` : undefined}><Time at={at} /></span>, text: ({ at }) => at },
  { head: 'User', cell: ({ by }) => (by === null ? <span className="quiet">without a name</span> : <Link className="name" href={to(['audit'], { by })}>{visible(by)}</Link>), text: ({ by }) => by },
  { head: 'Result', cell: ({ result }) => <Badge kind={result === 'refused' ? 'bad' : 'good'}>{result === 'refused' ? '✕ refused' : '✓ done'}</Badge>, text: ({ result }) => result },
  { head: 'Action', cell: ({ action }) => visible(action), text: ({ action }) => action },
  { head: 'On', cell: (entry) => <On entry={entry} />, text: ({ kind, namespace, name }) => [kind, namespace, name].filter(Boolean).join(' ') },
  { head: 'Details', phone: 'full', cell: ({ details }) => visible(details), text: ({ details }) => details },
  { head: 'From', cell: ({ from, via }) => [from, via].filter(Boolean).join(', ') || '–', text: ({ from, via }) => [from, via].filter(Boolean).join(' ') },
  { head: 'Request', phone: 'less', cell: ({ request }) => <span className="mono">{request ?? '–'}</span>, text: ({ request }) => request },
];

function On({ entry: { kind, namespace, name } }: { entry: AuditEntryShown }) {
  if (name === null) return <span className="quiet">{kind?.replaceAll('_', ' ') ?? '–'}</span>;
  const address = pageOf(kind, name, namespace);
  return (
    <>
      <span className="quiet">{kind?.replaceAll('_', ' ')}</span> {address ? <Link href={address}>{visible(name)}</Link> : visible(name)}
      {namespace !== null && namespace !== '/' && <span className="quiet"> in {visible(namespace)}</span>}
    </>
  );
}

/** A time of the reader's zone, without a zone, as the browser's field has it; undefined if it is none. */
const instant = (local: string | null): string | undefined => {
  const at = local ? new Date(local) : undefined;
  return at && !Number.isNaN(at.getTime()) ? at.toISOString() : undefined;
};

export function Audit() {
  const { query } = useRoute();
  const texts = Object.fromEntries(TEXTS.map(([name]) => [name, query.get(name) ?? undefined]));
  const times = Object.fromEntries(TIMES.map(([name]) => [name, instant(query.get(name))]));
  const chosen = Object.values({ ...texts, ...times }).filter(Boolean).length;
  return (
    <>
      <Head title="Audit" />
      <Choice key={NAMES.map((name) => query.get(name)).join('\n')} chosen={chosen} />
      <List<AuditEntryShown>
        path="audit"
        query={{ ...texts, ...times }}
        columns={COLUMNS}
        keyOf={({ id }) => id}
        noun="entries"
        search={false}
        isChosen={chosen > 0}
        filters={[
          { name: 'result', label: 'Refused', value: 'refused' },
          { name: 'result', label: 'Done', value: 'done' },
        ]}
        empty={
          <p>
            <strong>There is no entry yet.</strong> From the first administrator on, logins, changes of definitions and rights, actions of operators and all refusals are kept in the topic <code>stafett.audit</code>. Before, callers have no names.
          </p>
        }
      />
    </>
  );
}

function Choice({ chosen }: { chosen: number }) {
  const { query } = useRoute();
  const [values, setValues] = useState<Record<string, string>>(() => Object.fromEntries(NAMES.map((name) => [name, query.get(name) ?? ''])));
  const change = (name: string) => (event: { target: { value: string } }) => setValues({ ...values, [name]: event.target.value });
  return (
    <details className="filters" open={chosen > 0}>
      <summary>Choose entries{chosen > 0 && `: ${counted(chosen, 'condition')}`}</summary>
      <form
        className="form two"
        onSubmit={(event) => {
          event.preventDefault();
          setParams({ ...values, after: undefined }, false);
        }}
      >
        {TEXTS.map(([name, label, example]) => (
          <Field key={name} label={label}>
            <input value={values[name]} placeholder={example} spellCheck={false} autoCapitalize="none" onChange={change(name)} />
          </Field>
        ))}
        {TIMES.map(([name, label]) => (
          <Field key={name} label={label}>
            <input type="datetime-local" value={values[name]} onChange={change(name)} />
          </Field>
        ))}
        <div className="row wide">
          <button type="submit" className="main">
            Look
          </button>
          <button
            type="button"
            onClick={() => {
              setValues(Object.fromEntries(NAMES.map((name) => [name, ''])));
              setParams(Object.fromEntries([...NAMES, 'after'].map((name) => [name, undefined])), false);
            }}
          >
            Clear
          </button>
        </div>
      </form>
    </details>
  );
}
