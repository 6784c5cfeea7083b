import { useState } from 'react';
import type { NewQueue, Queue } from '../../api/types';
import { Action } from '../../ui/Action';
import { queueAt } from '../../ui/pages';
import { Field } from '../../ui/parts';
import { go } from '../../ui/route';
import { queueUrl } from './Queues';

interface Form {
  name: string;
  namespace: string;
  priority_max: string;
  ttl_ms: string;
  length_max: string;
  overflow: string;
  dead: string;
  durability: string;
  bytes_max: string;
  delivery_limit: string;
  expires_ms: string;
  retain: string;
  over: string;
  from: string;
  single: boolean;
  transient: boolean;
}

const EMPTY: Form = { name: '', namespace: '/', priority_max: '', ttl_ms: '', length_max: '', overflow: '', dead: '', durability: '', bytes_max: '', delivery_limit: '', expires_ms: '', retain: '', over: '', from: 'earliest', single: false, transient: false };

export const number = (text: string): number | undefined => (text.trim() === '' ? undefined : Number(text));

function bodyOf(form: Form): NewQueue {
  const body: NewQueue = {};
  if (form.priority_max) body.priority_max = number(form.priority_max);
  if (form.ttl_ms) body.ttl_ms = number(form.ttl_ms);
  if (form.length_max) body.length_max = number(form.length_max);
  if (form.overflow) body.overflow = form.overflow as NewQueue['overflow'];
  if (form.dead) body.dead_letter = { exchange: '', routing_key: form.dead };
  if (form.durability) body.durability = form.durability;
  for (const key of ['bytes_max', 'delivery_limit', 'expires_ms', 'retain'] as const) {
    const value = number(form[key]);
    if (value !== undefined) body[key] = value;
  }
  if (form.single) body.single_active_consumer = true;
  if (form.transient) body.durable = false;
  if (form.over) body.over = { topic: form.over, from: form.from } as NewQueue['over'];
  return body;
}

export function CreateQueue({ namespaces }: { namespaces: string[] }) {
  const [form, setForm] = useState(EMPTY);
  const set = (name: Exclude<keyof Form, 'single' | 'transient'>) => (event: { target: { value: string } }) => setForm({ ...form, [name]: event.target.value });
  return (
    <Action<Queue>
      label="Create a queue"
      className="main"
      title="Create a queue"
      confirm="Create"
      wide
      incomplete={form.name === ''}
      onOpen={() => setForm(EMPTY)}
      call={() => ({ method: 'PUT', path: queueUrl(form), body: { json: bodyOf(form) } })}
      after={({ namespace, name }) => go(queueAt(namespace, name))}
    >
      <div className="form two">
        <Field label="Name" wide>
          <input value={form.name} onChange={set('name')} autoFocus data-focus required maxLength={255} spellCheck={false} />
        </Field>
        {namespaces.length > 1 && (
          <Field label="Namespace" help="Virtual host, for RabbitMQ's clients">
            <select value={form.namespace} onChange={set('namespace')}>
              {namespaces.map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </Field>
        )}
        <Field label="Highest priority" help="0: all are equal">
          <input type="number" min="0" max="255" placeholder="0" value={form.priority_max} onChange={set('priority_max')} />
        </Field>
        <Field label="Durability" help="What an acknowledged message survives">
          <select value={form.durability} onChange={set('durability')}>
            <option value="">the broker's default</option>
            <option value="sync">sync: a power loss</option>
            <option value="interval">interval: a power loss, but for moments</option>
            <option value="os">os: a killed process</option>
            <option value="memory">memory: nothing</option>
          </select>
        </Field>
        <Field label="Time to live in ms" help="A message that waits longer expires">
          <input type="number" min="0" placeholder="unlimited" value={form.ttl_ms} onChange={set('ttl_ms')} />
        </Field>
        <Field label="Messages at most">
          <input type="number" min="1" placeholder="unlimited" value={form.length_max} onChange={set('length_max')} />
        </Field>
        <Field label="When it is full">
          <select value={form.overflow} onChange={set('overflow')}>
            <option value="">as usual</option>
            <option value="drop-head">drop the oldest</option>
            <option value="reject">refuse the new one</option>
            <option value="reject-dead-letter">the new one is a dead letter</option>
          </select>
        </Field>
        <Field label="Dead letters to the queue" help="Expired, rejected and overflowing messages">
          <input value={form.dead} onChange={set('dead')} spellCheck={false} placeholder="dropped" />
        </Field>
        <details className="wide">
          <summary>More settings</summary>
          <div className="form two below-summary">
            <Field label="Bytes at most" help="Of the bodies that wait">
              <input type="number" min="1" placeholder="unlimited" value={form.bytes_max} onChange={set('bytes_max')} />
            </Field>
            <Field label="Returns at most" help="Then a message is a dead letter">
              <input type="number" min="0" placeholder="unlimited" value={form.delivery_limit} onChange={set('delivery_limit')} />
            </Field>
            <Field label="Deleted without use after ms" help="The queue with its messages">
              <input type="number" min="1" placeholder="never" value={form.expires_ms} onChange={set('expires_ms')} />
            </Field>
            <Field label="Settled messages that are kept" help="They can be read as records">
              <input type="number" min="0" placeholder="none" value={form.retain} onChange={set('retain')} />
            </Field>
            <Field label="Over the topic" help="Its messages are the records of a stored topic, which stay there">
              <input value={form.over} onChange={set('over')} spellCheck={false} placeholder="messages of its own" />
            </Field>
            {form.over !== '' && (
              <Field label="Begins at">
                <select value={form.from} onChange={set('from')}>
                  <option value="earliest">the oldest record</option>
                  <option value="latest">records to come</option>
                </select>
              </Field>
            )}
            <label className="check wide">
              <input type="checkbox" checked={form.single} onChange={(event) => setForm({ ...form, single: event.target.checked })} /> one consumer at a time gets messages
            </label>
            <label className="check wide">
              <input type="checkbox" checked={form.transient} onChange={(event) => setForm({ ...form, transient: event.target.checked })} /> transient: the queue goes with the next restart
            </label>
          </div>
        </details>
      </div>
    </Action>
  );
}
