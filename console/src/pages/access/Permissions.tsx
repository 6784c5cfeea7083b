// Permissions as RabbitMQ's clients and tools see them: patterns by namespace, which are rules here.
import { useState } from 'react';
import { api } from '../../api/http';
import { useOnce } from '../../api/live';
import type { AccessRule, NamespaceList } from '../../api/types';
import { Action, type Call } from '../../ui/Action';
import { visible } from '../../ui/format';
import { Field } from '../../ui/parts';
import { Scroll, Table, type Column } from '../../ui/Table';
import { keyOf, permissionsOf, rulesOf, type Patterns, type Permission } from './rule';

export function Permissions({ user, rules }: { user: string; rules: AccessRule[] }) {
  const permissions = permissionsOf(rules);
  return (
    <section aria-label="Permissions in namespaces">
      <div className="row between above">
        <h2>Permissions in namespaces, as RabbitMQ has them</h2>
        <Set user={user} known={permissions} />
      </div>
      {permissions.length === 0 ? (
        <div className="empty">
          <p>
            It has none. A client of RabbitMQ's protocol needs one to enter a namespace (a virtual host). Permissions are rules: they are listed above too.
          </p>
        </div>
      ) : (
        <Scroll>
          <Table caption="Permissions" columns={columns(user, permissions)} rows={permissions} keyOf={({ namespace }) => namespace} />
        </Scroll>
      )}
    </section>
  );
}

const pattern = (text: string) => (text === '' ? <span className="quiet">nothing</span> : <span className="mono">{visible(text)}</span>);

const columns = (user: string, known: Permission[]): Column<Permission>[] => [
  { head: 'Namespace', cell: ({ namespace }) => <b>{visible(namespace)}</b> },
  { head: 'Configure', cell: ({ patterns }) => pattern(patterns.configure) },
  { head: 'Write', cell: ({ patterns }) => pattern(patterns.write) },
  { head: 'Read', cell: ({ patterns }) => pattern(patterns.read) },
  {
    head: 'Does',
    phone: 'full',
    cell: (permission) => (
      <span className="row">
        <Set user={user} known={known} before={permission} />
        <Clear user={user} permission={permission} />
      </span>
    ),
  },
];

const rulesPath = api('rules');

/** Requests that make rules out of others: new ones first, so that nothing in both is refused meanwhile. */
function replaced(before: AccessRule[], after: AccessRule[]): Call[] {
  const made = after.map((rule): Call => ({ method: 'POST', path: rulesPath, body: { json: rule } }));
  const gone = before.flatMap((rule): Call[] => {
    const same = after.find((other) => keyOf(other) === keyOf(rule));
    const actions = rule.actions.filter((action) => !same?.actions.includes(action));
    return actions.length === 0 ? [] : [{ method: 'DELETE', path: rulesPath, body: { json: { ...rule, actions } } }];
  });
  return [...made, ...gone];
}

const ALL: Patterns = { configure: '.*', write: '.*', read: '.*' };

function Set({ user, known, before }: { user: string; known: Permission[]; before?: Permission }) {
  const namespaces = useOnce<NamespaceList>('/v1/namespaces?count=1000').data?.items ?? [];
  const [namespace, setNamespace] = useState(before?.namespace ?? '/');
  const [patterns, setPatterns] = useState<Patterns>(before?.patterns ?? ALL);
  const old = before ?? known.find((permission) => permission.namespace === namespace);
  const set = (name: keyof Patterns) => (event: { target: { value: string } }) => setPatterns({ ...patterns, [name]: event.target.value });
  const open = () => {
    setNamespace(before?.namespace ?? '/');
    setPatterns(before?.patterns ?? ALL);
  };
  return (
    <Action<unknown>
      right="administer"
      label={before ? 'Change' : 'Set a permission'}
      title={`Permission of ${visible(user)}${before ? ` in ${visible(before.namespace)}` : ''}`}
      confirm="Set the permission"
      onOpen={open}
      call={() => replaced(old?.rules ?? [], rulesOf(`user:${user}`, namespace, patterns))}
      result={() => 'Set. It holds at once, on open connections too.'}
    >
      {!before && (
        <Field label="Namespace">
          <select value={namespace} onChange={(event) => setNamespace(event.target.value)} autoFocus data-focus>
            {namespaces.map(({ name }) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </Field>
      )}
      {!before && old && <p className="hint">It replaces the permission that {visible(user)} has there.</p>}
      <Field label="Configure" help="Queues and exchanges that it may create, change and delete: a regular expression; empty for none">
        <input value={patterns.configure} onChange={set('configure')} spellCheck={false} />
      </Field>
      <Field label="Write" help="That it may publish to, and bind queues">
        <input value={patterns.write} onChange={set('write')} spellCheck={false} />
      </Field>
      <Field label="Read" help="That it may consume, and bind exchanges">
        <input value={patterns.read} onChange={set('read')} spellCheck={false} />
      </Field>
    </Action>
  );
}

function Clear({ user, permission }: { user: string; permission: Permission }) {
  return (
    <Action<unknown> right="administer" label="Clear" destroys title={`Clear the permission of ${visible(user)} in ${visible(permission.namespace)}`} confirm="Clear the permission" call={() => replaced(permission.rules, [])}>
      <p>
        It may not enter {visible(permission.namespace)} any more: its AMQP connections there end at once, and its consumers with them. Other rules, of its tags and of everyone, stay.
      </p>
    </Action>
  );
}
