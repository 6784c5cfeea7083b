import { useState } from 'react';
import type { Changes, Queue } from '../../api/types';
import { Action } from '../../ui/Action';
import { Facts, Field } from '../../ui/parts';
import { number } from './CreateQueue';
import { queueUrl } from './Queues';

type Key = 'ttl_ms' | 'expires_ms' | 'length_max' | 'bytes_max' | 'delivery_limit';

const NUMBERS: [Key, string, string][] = [
  ['ttl_ms', 'Time to live in ms', 'A message that waits longer expires'],
  ['length_max', 'Messages at most', 'Beyond it, see: when it is full'],
  ['bytes_max', 'Bytes at most', ''],
  ['delivery_limit', 'Deliveries at most', 'Then a message is a dead letter'],
  ['expires_ms', 'Deleted without use after ms', ''],
];

export function Settings({ queue }: { queue: Queue }) {
  const [texts, setTexts] = useState<Record<Key, string>>(() => {
    const text = (key: Key) => (queue[key] === null ? '' : String(queue[key]));
    return Object.fromEntries(NUMBERS.map(([key]) => [key, text(key)])) as Record<Key, string>;
  });
  const [overflow, setOverflow] = useState<string>(queue.overflow);
  const [durability, setDurability] = useState(queue.durability ?? '');
  const [dead, setDead] = useState(queue.dead_letter?.routing_key ?? '');
  const changes = (): Changes => {
    const body: Changes = {};
    for (const [key] of NUMBERS) {
      const value = number(texts[key]) ?? null;
      if (value !== queue[key]) body[key] = value;
    }
    if (overflow !== queue.overflow) body.overflow = overflow as Changes['overflow'];
    if (durability !== queue.durability) body.durability = durability;
    if (dead !== (queue.dead_letter?.routing_key ?? '')) body.dead_letter = dead === '' ? null : { exchange: queue.dead_letter?.exchange ?? '', routing_key: dead };
    return body;
  };
  const changed = Object.entries(changes());
  return (
    <section className="card">
      <div className="form two">
        {NUMBERS.map(([key, label, help]) => (
          <Field key={key} label={label} help={help}>
            <input type="number" min="0" placeholder="unlimited" value={texts[key]} onChange={(event) => setTexts({ ...texts, [key]: event.target.value })} />
          </Field>
        ))}
        <Field label="When it is full">
          <select value={overflow} onChange={(event) => setOverflow(event.target.value)}>
            {['drop-head', 'reject', 'reject-dead-letter'].map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </Field>
        <Field label="Durability">
          <select value={durability} onChange={(event) => setDurability(event.target.value)}>
            {[...new Set([queue.durability ?? '', 'sync', 'interval', 'os', 'memory'])].map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </Field>
        <Field label="Dead letters to the queue" help={queue.dead_letter?.exchange ? `by the exchange ${queue.dead_letter.exchange}` : ''}>
          <input value={dead} onChange={(event) => setDead(event.target.value)} spellCheck={false} placeholder="dropped" />
        </Field>
        <div className="row wide">
          <Action<Queue>
            label="Change"
            className="main"
            disabled={changed.length === 0}
            title="Change settings"
            confirm="Change"
            call={() => ({ method: 'PATCH', path: queueUrl(queue), body: { json: changes() } })}
            result={() => 'Changed. It holds for messages that wait, too.'}
          >
            <p>It holds for messages that wait at once: those beyond a limit are dropped or dead-lettered, those that waited too long expire.</p>
            <Facts rows={changed.map(([key, value]) => [key, value === null ? 'unlimited' : JSON.stringify(value)])} />
          </Action>
          <span className="quiet small">Priorities, kind and name of a queue do not change.</span>
        </div>
      </div>
    </section>
  );
}
