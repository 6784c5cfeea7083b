import { useState } from 'react';
import { Field } from '../../ui/parts';
import { setParams, useRoute } from '../../ui/route';

const FIELDS: [string, string, string][] = [
  ['priority', 'Priority', '7'],
  ['sender', 'Sender', 'ann'],
  ['context', 'Context', '4711'],
  ['header', 'Header', 'name=value'],
  ['died_in', 'Died in', 'queue'],
];

export function Filters() {
  const { query } = useRoute();
  const isUsed = [...FIELDS.map(([name]) => name), 'order', 'died_of'].some((name) => query.get(name));
  const [texts, setTexts] = useState<Record<string, string>>(() => Object.fromEntries(FIELDS.map(([name]) => [name, query.get(name) ?? ''])));
  return (
    <details className="filters" open={isUsed}>
      <summary>Choose messages</summary>
      <form
        className="form two"
        onSubmit={(event) => {
          event.preventDefault();
          setParams({ ...texts, after: undefined });
        }}
      >
        {FIELDS.map(([name, label, example]) => (
          <Field key={name} label={label}>
            <input value={texts[name] ?? ''} placeholder={example} spellCheck={false} onChange={(event) => setTexts({ ...texts, [name]: event.target.value })} />
          </Field>
        ))}
        <Field label="Order">
          <select value={query.get('order') ?? ''} onChange={(event) => setParams({ order: event.target.value || undefined, after: undefined })}>
            <option value="">as they are handed out</option>
            <option value="oldest">oldest first</option>
          </select>
        </Field>
        <Field label="Died of">
          <select value={query.get('died_of') ?? ''} onChange={(event) => setParams({ died_of: event.target.value || undefined, after: undefined })}>
            <option value="">anything, or nothing</option>
            {['expired', 'length', 'rejected', 'delivery_limit'].map((reason) => (
              <option key={reason}>{reason}</option>
            ))}
          </select>
        </Field>
        <div className="row wide">
          <button type="submit" className="main">
            Look
          </button>
          <button
            type="button"
            onClick={() => {
              setTexts({});
              setParams(Object.fromEntries([...FIELDS.map(([name]) => name), 'order', 'died_of', 'after'].map((name) => [name, undefined])));
            }}
          >
            Clear
          </button>
        </div>
      </form>
    </details>
  );
}
