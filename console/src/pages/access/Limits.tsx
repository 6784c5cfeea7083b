import { useState } from 'react';
import { api } from '../../api/http';
import type { Limits as State } from '../../api/types';
import { Action } from '../../ui/Action';
import { count, visible } from '../../ui/format';
import { List, type Column } from '../../ui/List';
import { Commands, Field } from '../../ui/parts';
import { Link } from '../../ui/route';
import { pageOf } from '../../ui/pages';

type Owner = 'namespace' | 'user';
type Limit = Exclude<keyof State, Owner>;

const PATH = api('limits');
const LIMITS: [Limit, string, Owner[]][] = [
  ['connections', 'Connections', ['namespace', 'user']],
  ['channels', 'Channels', ['user']],
  ['queues', 'Queues', ['namespace']],
  ['topics', 'Topics', ['namespace']],
  ['messages', 'Messages', ['namespace']],
  ['bytes', 'Bytes', ['namespace']],
];

const ownerOf = (limits: State): [Owner, string] => (limits.user != null ? ['user', limits.user] : ['namespace', limits.namespace ?? '']);
const nameOf = (limits: State): string => ownerOf(limits).map(visible).join(' ');

const COLUMNS: Column<State>[] = [
  {
    head: 'Of',
    cell: (limits) => {
      const [kind, name] = ownerOf(limits);
      return (
        <>
          <span className="quiet">{kind}</span>{' '}
          <Link className="name" href={pageOf(kind, name) ?? ''}>
            {visible(name)}
          </Link>
        </>
      );
    },
    text: nameOf,
  },
  ...LIMITS.map(([name, head]): Column<State> => ({
    head,
    num: true,
    cell: (limits) => (limits[name] == null ? <span className="quiet">unlimited</span> : count(limits[name])),
    text: (limits) => limits[name] ?? null,
  })),
  {
    head: 'Does',
    phone: 'full',
    cell: (limits) => (
      <span className="row">
        <SetLimits before={limits} />
        <Remove limits={limits} />
      </span>
    ),
  },
];

export const Limits = () => (
  <List<State>
    path="limits"
    columns={COLUMNS}
    keyOf={nameOf}
    noun="limits"
    empty={
      <>
        <p>
          <strong>There are no limits.</strong> A limit is the most that a namespace has of connections, queues, topics, messages and their bytes, or a user of connections and channels. What is there already stays when one is set. Set one above, or by a program:
        </p>
        <Commands text={`curl -X PUT ${location.origin}/v1/limits -d '{"namespace": "shop", "queues": 1000}'`} />
      </>
    }
  />
);

type Form = Record<Limit, string> & { owner: Owner; name: string };

function formOf(limits: State): Form {
  const [owner, name] = ownerOf(limits);
  const texts = Object.fromEntries(LIMITS.map(([limit]) => [limit, limits[limit]?.toString() ?? ''])) as Record<Limit, string>;
  return { ...texts, owner, name };
}

export function SetLimits({ before }: { before?: State }) {
  const [form, setForm] = useState<Form>(() => formOf(before ?? {}));
  const change = (name: keyof Form) => (event: { target: { value: string } }) => setForm({ ...form, [name]: event.target.value });
  const known = LIMITS.filter(([, , owners]) => owners.includes(form.owner));
  const set = known.filter(([limit]) => form[limit] !== '');
  const json: State = { [form.owner]: form.name, ...Object.fromEntries(set.map(([limit]) => [limit, Number(form[limit])])) };
  return (
    <Action<State>
      label={before ? 'Change' : 'Set limits'}
      className={before ? '' : 'main'}
      title={before ? `Limits of ${nameOf(before)}` : 'Set limits'}
      confirm="Set the limits"
      incomplete={form.name === '' || set.length === 0}
      onOpen={() => setForm(formOf(before ?? {}))}
      call={() => ({ method: 'PUT', path: PATH, body: { json } })}
    >
      <p className="quiet">More than the limit is refused from then on. What is there stays.</p>
      {!before && (
        <div className="form two">
          <Field label="Of">
            <select value={form.owner} onChange={change('owner')} autoFocus data-focus>
              <option value="namespace">a namespace</option>
              <option value="user">a user</option>
            </select>
          </Field>
          <Field label="Name">
            <input value={form.name} onChange={change('name')} required autoComplete="off" autoCapitalize="none" spellCheck={false} />
          </Field>
        </div>
      )}
      <div className="form two">
        {known.map(([limit, label]) => (
          <Field key={limit} label={label} help="At most; empty: unlimited">
            <input type="number" min="0" value={form[limit]} onChange={change(limit)} />
          </Field>
        ))}
      </div>
    </Action>
  );
}

function Remove({ limits }: { limits: State }) {
  const [owner, name] = ownerOf(limits);
  return (
    <Action<State> label="Remove" destroys title={`Remove the limits of ${nameOf(limits)}`} confirm="Remove the limits" call={() => ({ method: 'PUT', path: PATH, body: { json: { [owner]: name } } })}>
      <p>It has no limits from then on.</p>
    </Action>
  );
}
