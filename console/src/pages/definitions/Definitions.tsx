import { useState } from 'react';
import { api, request, requestText } from '../../api/http';
import { useCaller } from '../../api/session';
import type { Imported, LeftOutDefinition } from '../../api/types';
import { counted, visible } from '../../ui/format';
import { Commands, Failure, Field, Head, quoted, save } from '../../ui/parts';
import { documentOf, KINDS, type Fields, type Kind } from './document';
import { Import } from './Import';
import { isRabbit, readRabbit } from './rabbitmq';

export function Definitions() {
  return (
    <>
      <Head title="Definitions" />
      <p className="quiet lead">
        All that is defined, as one file: namespaces, topics with their settings, exchanges, queues, policies, bindings, clients, apps, sinks, users, rules, limits and quotas. No messages or records, no
        positions, no tokens. Passwords are in it as verifiers, for an administrator.
      </p>
      <div className="grid">
        <Export />
        <Choose />
      </div>
    </>
  );
}

function Export() {
  const caller = useCaller();
  const [chosen, setChosen] = useState<readonly Kind[]>(KINDS);
  const [isBusy, setBusy] = useState(false);
  const [left, setLeft] = useState<LeftOutDefinition[]>([]);
  const [error, setError] = useState<unknown>();
  const run = async () => {
    setBusy(true);
    setError(undefined);
    try {
      const text = await requestText('GET', api('definitions', { kinds: KINDS.filter((kind) => chosen.includes(kind)).join(',') }));
      setLeft((JSON.parse(text) as { left_out?: LeftOutDefinition[] }).left_out ?? []);
      save('definitions.json', text, 'application/json');
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(false);
    }
  };
  return (
    <section className="card" aria-label="Export">
      <header>
        <h2>Export</h2>
      </header>
      <fieldset className="boxes">
        <legend>With</legend>
        {KINDS.map((kind) => (
          <label key={kind} className="check">
            <input type="checkbox" checked={chosen.includes(kind)} onChange={(event) => setChosen(event.target.checked ? [...chosen, kind] : chosen.filter((other) => other !== kind))} />{' '}
            {kind.replaceAll('_', ' ')}
          </label>
        ))}
      </fieldset>
      <div className="row above">
        <button type="button" className="main" onClick={() => void run()} disabled={isBusy || chosen.length === 0}>
          Save the definitions
        </button>
      </div>
      <Failure error={error} />
      {left.map(({ kind, name, why }, index) => (
        <p key={index} className="error">
          {kind} {visible(name ?? '')}: {visible(why)}
        </p>
      ))}
      <details>
        <summary>In RabbitMQ&apos;s form</summary>
        <Commands text={`curl -u ${quoted(`${caller?.how === 'user' ? caller.name : 'guest'}:PASSWORD`)} ${location.origin}/api/definitions`} />
      </details>
    </section>
  );
}

interface Found {
  name: string;
  /** Text of the document. */
  document: string;
  /** What would be done. */
  plan: Imported;
  /** Entries of a file of RabbitMQ that are passed over, and why. */
  left: string[];
}

/** A file, compared with the definitions here before anything is done. */
function Choose() {
  const [found, setFound] = useState<Found>();
  const [error, setError] = useState<unknown>();
  const compare = async (name: string, text: string) => {
    setError(undefined);
    setFound(undefined);
    try {
      const file = JSON.parse(text) as Fields;
      const { items, left } = isRabbit(file) ? readRabbit(file) : { items: undefined, left: [] };
      // A file of this broker goes as it is: numbers are not read and written anew.
      const document = items ? JSON.stringify(documentOf(items)) : text;
      const plan = await request<Imported>('POST', api('definitions', { dry_run: true, change: true }), { text: document, type: 'application/json' });
      setFound({ name, document, plan, left });
    } catch (failure) {
      setError(failure instanceof SyntaxError ? new Error(`The file is no JSON: ${failure.message}`) : failure);
    }
  };
  return (
    <section className="card" aria-label="Import">
      <header>
        <h2>Import</h2>
        <span className="quiet small">Nothing is deleted.</span>
      </header>
      <Field label="File" help="An export of this page, or one of RabbitMQ. It is compared first; nothing changes yet">
        <input
          type="file"
          accept=".json,application/json"
          onChange={(event) => {
            const file = event.target.files?.[0];
            event.target.value = '';
            if (file) void file.text().then((text) => compare(file.name, text));
          }}
        />
      </Field>
      <Failure error={error} />
      {found && (
        <>
          {found.left.length > 0 && (
            <details className="hint above">
              <summary>{counted(found.left.length, 'entry', 'entries')} of the file without a meaning here</summary>
              <ul className="plain-list">
                {found.left.map((text) => (
                  <li key={text}>{visible(text)}</li>
                ))}
              </ul>
            </details>
          )}
          <Import key={found.name + found.plan.items.length} name={found.name} document={found.document} plan={found.plan} onDone={() => setFound(undefined)} />
        </>
      )}
    </section>
  );
}
