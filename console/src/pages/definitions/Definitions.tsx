import { useState } from 'react';
import { useCaller } from '../../api/session';
import { count, counted, visible } from '../../ui/format';
import { Commands, Done, Failure, Field, Head, quoted, save } from '../../ui/parts';
import { collect, fileOf, itemsOf, KINDS, type Collected, type Fields, type Item, type Kind } from './collect';
import { Import } from './Import';
import { planOf, type Step } from './plan';
import { isRabbit, readRabbit } from './rabbitmq';

export function Definitions() {
  return (
    <>
      <Head title="Definitions" />
      <p className="quiet lead">
        All that is defined, as one file: namespaces, topics with their settings, exchanges, queues, bindings, clients, users and rules. No messages or records, no positions of groups, no apps, no passwords or tokens.
      </p>
      <div className="grid">
        <Export />
        <Choose />
      </div>
    </>
  );
}

const Refused = ({ of }: { of: Collected['refused'] }) => (
  <>
    {of.map(({ kind, why }) => (
      <p key={kind} className="error">
        {kind}: {why}
      </p>
    ))}
  </>
);

function Export() {
  const caller = useCaller();
  const [chosen, setChosen] = useState<readonly Kind[]>(KINDS);
  const [done, setDone] = useState<number>();
  const [isBusy, setBusy] = useState(false);
  const [refused, setRefused] = useState<Collected['refused']>([]);
  const run = async () => {
    setBusy(true);
    setDone(0);
    const kinds = KINDS.filter((kind) => chosen.includes(kind));
    const { items, refused: not } = await collect(kinds, setDone);
    save('definitions.json', fileOf(items), 'application/json');
    setRefused(not);
    setBusy(false);
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
            <input type="checkbox" checked={chosen.includes(kind)} onChange={(event) => setChosen(event.target.checked ? [...chosen, kind] : chosen.filter((other) => other !== kind))} /> {kind}
          </label>
        ))}
      </fieldset>
      <div className="row above">
        <button type="button" className="main" onClick={() => void run()} disabled={isBusy || chosen.length === 0}>
          Save the definitions
        </button>
        {done !== undefined && (
          <span className="quiet" role="status">
            {count(done)} {isBusy ? 'so far' : 'in the file'}
          </span>
        )}
      </div>
      <Refused of={refused} />
      <details>
        <summary>In RabbitMQ&apos;s form</summary>
        <Commands text={`curl -u ${quoted(`${caller?.how === 'user' ? caller.name : 'guest'}:PASSWORD`)} ${location.origin}/api/definitions`} />
      </details>
    </section>
  );
}

interface Found {
  name: string;
  steps: Step[];
  /** Entries that are passed over, and why. */
  left: string[];
  refused: Collected['refused'];
}

const isAdministrator = ({ kind, settings }: Item): boolean => kind === 'users' && ((settings.tags ?? []) as string[]).some((tag) => tag === 'superuser' || tag === 'administrator');

/** A file, compared with the definitions here before anything is done. */
function Choose() {
  const isOpen = useCaller()?.how === 'open';
  const [found, setFound] = useState<Found>();
  const [error, setError] = useState<unknown>();
  const [seen, setSeen] = useState<number>();
  const compare = async (name: string, text: string) => {
    setError(undefined);
    setFound(undefined);
    try {
      const file = JSON.parse(text) as Fields;
      const { items, left } = isRabbit(file) ? readRabbit(file) : { items: itemsOf(file), left: [] };
      const kinds = KINDS.filter((kind) => items.some((item) => item.kind === kind));
      const { items: here, refused } = await collect(kinds, setSeen);
      // Without a password, an administrator shuts the broker for everyone, itself included.
      const closing = isOpen ? items.filter((item) => isAdministrator(item) && !here.some(({ kind, name: known }) => kind === 'users' && known === item.name)) : [];
      const wanted = items.filter((item) => !closing.includes(item) && !refused.some(({ kind }) => kind === item.kind));
      const notes = closing.map((item) => `user ${item.name}: an administrator closes the broker, and has no password in the file; make it by hand`);
      setFound({ name, steps: planOf(wanted, here), left: [...left, ...notes], refused });
    } catch (failure) {
      setError(failure instanceof SyntaxError ? new Error(`The file is no JSON: ${failure.message}`) : failure);
    } finally {
      setSeen(undefined);
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
      {seen !== undefined && <Done>Comparing with {counted(seen, 'thing')} here</Done>}
      <Failure error={error} />
      {found && (
        <>
          <Refused of={found.refused} />
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
          <Import key={found.name + found.steps.length} name={found.name} steps={found.steps} onDone={() => setFound(undefined)} />
        </>
      )}
    </section>
  );
}
