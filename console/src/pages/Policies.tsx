// Policies: settings of all queues whose names a pattern finds, beside those that a queue was declared with.
import { useState } from 'react';
import { api, seg } from '../api/http';
import type { NewPolicy, Policy, PolicySettings } from '../api/types';
import { Action } from '../ui/Action';
import { bytes, count, duration, visible } from '../ui/format';
import { List, type Column } from '../ui/List';
import { Badge, Commands, Field, Head } from '../ui/parts';
import { to, Link, useParam } from '../ui/route';

type Key = 'ttl_ms' | 'expires_ms' | 'length_max' | 'bytes_max' | 'delivery_limit';

const NUMBERS: [Key, string, string, (value: number) => string][] = [
  ['ttl_ms', 'Time to live in ms', 'A message that waits longer expires', duration],
  ['length_max', 'Messages at most', 'Those beyond are dropped or refused', count],
  ['bytes_max', 'Bytes at most', 'Of the bodies that wait', bytes],
  ['delivery_limit', 'Returns at most', 'Then a message is a dead letter; -1: no limit', count],
  ['expires_ms', 'Deleted without use after ms', 'The queue with its messages', duration],
];

const pathOf = (name: string, namespace: string, operator: boolean) => api(`policies/${seg(name)}`, { namespace: namespace === '/' ? undefined : namespace, operator: operator || undefined });

function words(settings: PolicySettings): string {
  const numbers = NUMBERS.flatMap(([key, label, , format]) => (settings[key] == null ? [] : [`${label.replace(/ in ms$| after ms$/, '')}: ${format(settings[key])}`]));
  const dead = settings.dead_letter_exchange == null ? [] : [`dead letters to ${settings.dead_letter_exchange || 'the queue'} ${settings.dead_letter_key ?? ''}`];
  return [...numbers, ...(settings.overflow ? [`when full: ${settings.overflow}`] : []), ...dead].join('; ');
}

const columns = (operator: boolean): Column<Policy>[] => [
  { head: 'Name', sort: 'name', cell: ({ name, namespace }) => <><b>{visible(name)}</b> {namespace !== '/' && <Badge>in {visible(namespace)}</Badge>}</>, text: ({ name }) => name },
  { head: 'Queues', cell: ({ pattern, queues }) => <><Link href={to(['queues'])}><code>{visible(pattern) || 'all'}</code></Link> {queues !== 'all' && <Badge>{queues.replaceAll('_', ' ')}</Badge>}</>, text: ({ pattern }) => pattern },
  { head: 'Priority', num: true, cell: ({ priority }) => count(priority), text: ({ priority }) => priority },
  { head: 'Settings', phone: 'full', cell: ({ settings }) => visible(words(settings)), text: ({ settings }) => words(settings) },
  {
    head: 'Does',
    phone: 'full',
    cell: (policy) => (
      <span className="row">
        <SetPolicy before={policy} operator={operator} />
        <Action label="Delete" destroys title={`Delete the policy ${visible(policy.name)}`} confirm="Delete the policy" call={() => ({ method: 'DELETE', path: pathOf(policy.name, policy.namespace, operator) })}>
          <p>Queues that it was in force for have the settings of the next policy that matches, or those that they were declared with.</p>
        </Action>
      </span>
    ),
  },
];

export function Policies() {
  const [of, setOf] = useParam('of');
  const operator = of === 'operator';
  return (
    <>
      <Head title="Policies">
        <SetPolicy operator={operator} />
      </Head>
      <div className="chips above-list" role="group" aria-label="Whose policies">
        {[undefined, 'operator'].map((kind) => (
          <button key={kind ?? 'users'} type="button" className="chip" aria-pressed={of === kind} onClick={() => setOf(kind)}>
            {kind ? 'Bounds of the operator' : 'Of users'}
          </button>
        ))}
      </div>
      <List<Policy>
        key={of}
        path="policies"
        query={{ operator: operator || undefined }}
        isChosen={operator}
        columns={columns(operator)}
        keyOf={({ namespace, name }) => `${namespace} ${name}`}
        noun="policies"
        empty={
          <>
            <p>
              <strong>There is no policy.</strong> A policy sets limits, times to live and the way of dead letters for all queues whose names it finds, also those that come later. Of several, the one with the highest priority holds. Set one above, or by a program:
            </p>
            <Commands text={`curl -X PUT ${location.origin}/v1/policies/short -H 'Content-Type: application/json' -d '{"pattern": "^work\\\\.", "settings": {"ttl_ms": 60000}}'`} />
          </>
        }
      />
    </>
  );
}

interface Form {
  name: string;
  pattern: string;
  priority: string;
  overflow: string;
  dead: string;
  numbers: Partial<Record<Key, string>>;
}

function formOf(before: Policy | undefined): Form {
  const settings = before?.settings ?? {};
  return {
    name: before?.name ?? '',
    pattern: before?.pattern ?? '',
    priority: String(before?.priority ?? 0),
    overflow: settings.overflow ?? '',
    dead: settings.dead_letter_exchange === '' ? (settings.dead_letter_key ?? '') : '',
    numbers: Object.fromEntries(NUMBERS.flatMap(([key]) => (settings[key] == null ? [] : [[key, String(settings[key])]]))),
  };
}

function SetPolicy({ before, operator }: { before?: Policy; operator: boolean }) {
  const [form, setForm] = useState(() => formOf(before));
  const set = (name: 'name' | 'pattern' | 'priority' | 'overflow' | 'dead') => (event: { target: { value: string } }) => setForm({ ...form, [name]: event.target.value });
  const settings: PolicySettings = { ...(before?.settings ?? {}) };
  for (const [key] of NUMBERS) {
    const text = form.numbers[key];
    if (text) settings[key] = Number(text);
    else delete settings[key];
  }
  if (form.overflow) settings.overflow = form.overflow as PolicySettings['overflow'];
  else delete settings.overflow;
  if (form.dead) Object.assign(settings, { dead_letter_exchange: '', dead_letter_key: form.dead });
  const json: NewPolicy = { pattern: form.pattern, priority: Number(form.priority), queues: before?.queues ?? 'all', settings };
  return (
    <Action
      label={before ? 'Change' : 'Set a policy'}
      className={before ? undefined : 'main'}
      title={before ? `Change the policy ${visible(before.name)}` : operator ? 'Set a bound of the operator' : 'Set a policy'}
      confirm="Set the policy"
      wide
      incomplete={form.name === '' || Object.keys(settings).length === 0}
      onOpen={() => setForm(formOf(before))}
      call={() => ({ method: 'PUT', path: pathOf(form.name, before?.namespace ?? '/', operator), body: { json } })}
      result={() => 'Set. It holds for queues that are there at once, and for messages that wait.'}
    >
      <div className="form two">
        <Field label="Name">
          <input value={form.name} onChange={set('name')} readOnly={before !== undefined} autoFocus data-focus required spellCheck={false} />
        </Field>
        <Field label="Pattern" help="A regular expression that finds a place in a queue's name; empty: all">
          <input value={form.pattern} onChange={set('pattern')} spellCheck={false} placeholder="^work\." />
        </Field>
        <Field label="Priority" help="Of several policies, the highest holds">
          <input type="number" value={form.priority} onChange={set('priority')} required />
        </Field>
        {NUMBERS.map(([key, label, help]) => (
          <Field key={key} label={label} help={help}>
            <input type="number" min={key === 'delivery_limit' ? -1 : 0} placeholder="not set" value={form.numbers[key] ?? ''} onChange={(event) => setForm({ ...form, numbers: { ...form.numbers, [key]: event.target.value } })} />
          </Field>
        ))}
        <Field label="When a queue is full">
          <select value={form.overflow} onChange={set('overflow')}>
            <option value="">not set</option>
            {['drop-head', 'reject', 'reject-dead-letter'].map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </Field>
        <Field label="Dead letters to the queue">
          <input value={form.dead} onChange={set('dead')} spellCheck={false} placeholder="not set" />
        </Field>
      </div>
    </Action>
  );
}
