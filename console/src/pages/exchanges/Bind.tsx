import { useState } from 'react';
import { api } from '../../api/http';
import type { Binding, NewBinding } from '../../api/types';
import { Action } from '../../ui/Action';
import { Field } from '../../ui/parts';
import { headersOf } from '../queues/Send';

type Kind = 'queue' | 'topic' | 'exchange';

export function Bind({ namespace, source, queue }: { namespace: string; source?: string; queue?: string }) {
  const [from, setFrom] = useState(source ?? '');
  const [kind, setKind] = useState<Kind>('queue');
  const [target, setTarget] = useState(queue ?? '');
  const [key, setKey] = useState('');
  const [headers, setHeaders] = useState('');
  const call = () => {
    const given = headersOf(headers);
    const json: NewBinding = { source: from, to: { [kind]: target } as NewBinding['to'], key };
    if (given) json.headers = given;
    return { method: 'POST', path: api('bindings', { namespace: namespace === '/' ? undefined : namespace }), body: { json } };
  };
  return (
    <Action<Binding> label="Bind" title="Bind" confirm="Bind" incomplete={from === '' || target === ''} call={call}>
      {source === undefined && (
        <Field label="From the exchange">
          <input value={from} onChange={(event) => setFrom(event.target.value)} required spellCheck={false} autoFocus data-focus />
        </Field>
      )}
      {queue === undefined && (
        <div className="form two">
          <Field label="To a">
            <select value={kind} onChange={(event) => setKind(event.target.value as Kind)}>
              <option>queue</option>
              <option>topic</option>
              <option>exchange</option>
            </select>
          </Field>
          <Field label="Named">
            <input value={target} onChange={(event) => setTarget(event.target.value)} required spellCheck={false} />
          </Field>
        </div>
      )}
      <Field label="Key" help="Of a topic exchange: * is one word, # any number">
        <input value={key} onChange={(event) => setKey(event.target.value)} spellCheck={false} />
      </Field>
      <Field label="Headers" help="Of a headers exchange, one a line, as name: value">
        <textarea className="low" value={headers} onChange={(event) => setHeaders(event.target.value)} spellCheck={false} />
      </Field>
    </Action>
  );
}
