// A question about a user: the decision of the rules for an action on a name, with nothing done.
import { useState } from 'react';
import { api, get, seg } from '../../api/http';
import { useDryRun } from '../../ui/DryRun';
import { visible } from '../../ui/format';
import { Badge, Failure, Field } from '../../ui/parts';
import { ACTIONS, KINDS } from './rule';

export function May({ user }: { user: string }) {
  const [action, setAction] = useState('read');
  const [on, setOn] = useState('topic');
  const [name, setName] = useState('');
  const [namespace, setNamespace] = useState('/');
  const isNamespaced = on === 'queue' || on === 'exchange';
  const path = api(`users/${seg(user)}/may`, { action, on, name: on === 'cluster' ? '' : name, namespace: isNamespaced ? namespace : '' });
  const asked = useDryRun(() => get<{ may: boolean }>(path));
  const set = (change: (value: string) => void) => (event: { target: { value: string } }) => {
    asked.forget();
    change(event.target.value);
  };
  return (
    <section className="card" aria-label="Try the rules">
      <header>
        <h2>May it?</h2>
        <span className="quiet small">Nothing is done.</span>
      </header>
      <form
        className="form two"
        onSubmit={(event) => {
          event.preventDefault();
          asked.look();
        }}
      >
        <Field label="Action">
          <select value={action} onChange={set(setAction)}>
            {ACTIONS.filter(([word]) => word !== 'all').map(([word]) => (
              <option key={word} value={word}>
                {word.replaceAll('_', ' ')}
              </option>
            ))}
          </select>
        </Field>
        <Field label="On">
          <select value={on} onChange={set(setOn)}>
            {KINDS.map(([word]) => (
              <option key={word} value={word}>
                {word.replaceAll('_', ' ')}
              </option>
            ))}
          </select>
        </Field>
        {on !== 'cluster' && (
          <Field label="Name">
            <input value={name} onChange={set(setName)} required spellCheck={false} />
          </Field>
        )}
        {isNamespaced && (
          <Field label="Namespace">
            <input value={namespace} onChange={set(setNamespace)} required spellCheck={false} />
          </Field>
        )}
        <div className="row wide">
          <button type="submit">Ask</button>
          <span role="status">
            {asked.found && <Badge kind={asked.found.may ? 'good' : 'bad'}>{asked.found.may ? `✓ ${visible(user)} may` : `✕ ${visible(user)} may not`}</Badge>}
          </span>
        </div>
      </form>
      <Failure error={asked.error} />
    </section>
  );
}
