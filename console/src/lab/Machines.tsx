// Other machines: agents that carry load, prepared over ssh or by hand, and programs of other revisions.
import { useState } from 'react';
import { seg } from '../api/http';
import { Action } from '../ui/Action';
import { byteRate, duration, visible } from '../ui/format';
import { Badge, Commands, Failure, Field, Head } from '../ui/parts';
import { Table, type Column } from '../ui/Table';
import { lab, usePolled, type Agent, type Agents, type Builds, type Job } from './api';

const PATH = lab('agents');
const STATES: Record<Agent['state'], ['' | 'good' | 'bad', string]> = { ready: ['good', '● ready'], absent: ['bad', '✕ not there'], not_asked: ['', 'not asked while a run is under way'] };
const JOBS: Record<Job['state'], ['' | 'good' | 'bad' | 'note', string]> = { running: ['note', '… under way'], done: ['good', '● done'], failed: ['bad', '✕ failed'], cut: ['bad', '✕ cut off: the page ended'] };

export const useAgents = () => usePolled<Agents>(PATH, 15_000);
export const useBuilds = () => usePolled<Builds>(lab('builds'), 5000);

const COLUMNS: Column<Agent>[] = [
  { head: 'Agent', cell: ({ name }) => <b>{visible(name)}</b> },
  {
    head: 'Address',
    cell: ({ address, ssh, broker }) => (
      <span className="mono">
        {visible(address)}
        {ssh && <span className="quiet"> by ssh {visible(ssh)}</span>}
        {broker && <span className="quiet">, a broker at {visible(broker)}</span>}
      </span>
    ),
  },
  { head: 'State', cell: ({ state, reason }) => <><Badge kind={STATES[state][0]}>{STATES[state][1]}</Badge> {reason && <span className="small">{visible(reason)}</span>}</>, phone: 'full' },
  { head: 'Machine', cell: ({ machine }) => (machine ? visible(machine) : '–'), phone: 'full' },
  { head: 'There and back', num: true, cell: ({ round_trip_us: us }) => (us === null ? '–' : us < 1000 ? `${us} µs` : duration(us / 1000)) },
  { head: 'Way', num: true, cell: ({ bytes_per_second: n }) => byteRate(n) },
  { head: 'Does', phone: 'full', cell: (agent) => <Does agent={agent} /> },
];

function Does({ agent }: { agent: Agent }) {
  const { name, ssh, job } = agent;
  const path = `${PATH}/${seg(name)}`;
  const [build, setBuild] = useState('');
  const [isRemoved, setRemoved] = useState(false);
  const builds = useBuilds().data?.items.filter(({ ready }) => ready) ?? [];
  const isBusy = job?.state === 'running';
  return (
    <span className="row">
      {ssh && (
        <>
          <Action label="Prepare" title={`Prepare the machine of ${visible(name)}`} confirm="Prepare it" disabled={isBusy} call={() => ({ method: 'POST', path: `${path}/deploy`, body: { json: build ? { build } : {} } })}>
            <p>
              The page looks at the machine by <code>ssh {visible(ssh)}</code>, copies programs that differ and the secret into the folder <code>stafett-lab-{visible(name)}</code> there, and starts the agent. Each step is shown with its output.
            </p>
            {agent.before && (
              <p className="small">
                First, here: <code>{visible(agent.before)}</code>
              </p>
            )}
            <Field label="Programs">
              <select value={build} onChange={(event) => setBuild(event.target.value)} data-focus>
                <option value="">those of this page</option>
                {builds.map(({ revision }) => (
                  <option key={revision}>{revision}</option>
                ))}
              </select>
            </Field>
          </Action>
          <Action label="Start" title={`Start the agent ${visible(name)}`} confirm="Start" disabled={isBusy} call={() => ({ method: 'POST', path: `${path}/start` })}>
            <p>With the programs that are there since the machine was prepared.</p>
          </Action>
          <Action label="Stop" title={`Stop the agent ${visible(name)}`} confirm="Stop" disabled={isBusy} call={() => ({ method: 'POST', path: `${path}/stop`, body: { json: { remove: isRemoved } } })}>
            <p>The agent ends, and its log comes back.</p>
            {agent.after && (
              <p className="small">
                Last, here: <code>{visible(agent.after)}</code>
              </p>
            )}
            <label className="check">
              <input type="checkbox" checked={isRemoved} onChange={(event) => setRemoved(event.target.checked)} /> remove what was copied, too
            </label>
          </Action>
          <Action label="Bring the log" title={`Bring the log of ${visible(name)}`} confirm="Bring it" disabled={isBusy} call={() => ({ method: 'POST', path: `${path}/collect` })} />
        </>
      )}
      <Action label="Remove" title={`Remove the agent ${visible(name)}`} confirm="Remove it" call={() => ({ method: 'DELETE', path })}>
        <p>It is only taken off this list. Its program goes on until it is stopped.</p>
      </Action>
    </span>
  );
}

interface New {
  name: string;
  address: string;
  ssh: string;
  broker: string;
  before: string;
  after: string;
}

const EMPTY: New = { name: '', address: '', ssh: '', broker: '', before: '', after: '' };

function Add() {
  const [form, setForm] = useState(EMPTY);
  const set = (key: keyof New) => (event: { target: { value: string } }) => setForm({ ...form, [key]: event.target.value });
  const json = Object.fromEntries(Object.entries(form).filter(([, text]) => text !== ''));
  return (
    <Action label="Add an agent" className="main" title="Add an agent" confirm="Add" incomplete={!form.name || !form.address} call={() => ({ method: 'POST', path: PATH, body: { json } })} after={() => setForm(EMPTY)}>
      <Field label="Name" help="By which roles of an experiment name it (on)">
        <input value={form.name} onChange={set('name')} autoFocus data-focus required spellCheck={false} />
      </Field>
      <Field label="Address" help="HOST:PORT at which it listens">
        <input value={form.address} placeholder="10.0.0.2:7071" onChange={set('address')} required spellCheck={false} />
      </Field>
      <Field label="ssh" help="USER@HOST or a host of your ssh settings, with a key that asks for nothing: then this page prepares the machine. Empty: it is started by hand.">
        <input value={form.ssh} onChange={set('ssh')} spellCheck={false} />
      </Field>
      {form.ssh !== '' && (
        <>
          <Field label="Broker" help="HOST:PORT at which a Stafett is started there for Kafka's clients, as a system for runs; empty: none">
            <input value={form.broker} placeholder="none" onChange={set('broker')} spellCheck={false} />
          </Field>
          <Field label="Before" help="A command here that starts the machine, such as one of your cloud; it ends when ssh reaches it">
            <input value={form.before} onChange={set('before')} spellCheck={false} />
          </Field>
          <Field label="After" help="A command here that ends the machine">
            <input value={form.after} onChange={set('after')} spellCheck={false} />
          </Field>
        </>
      )}
    </Action>
  );
}

export function MachinesPage() {
  const isWorking = usePolled<Agents>(PATH, 15_000).data?.items.some(({ job }) => job?.state === 'running') ?? false;
  const found = usePolled<Agents>(PATH, isWorking ? 1000 : 15_000);
  const items = found.data?.items ?? [];
  return (
    <>
      <Head title="Machines">
        <Add />
      </Head>
      <p className="question">Agents carry the load of a run from other machines. Systems run where this page does, or where a run names their addresses.</p>
      <Failure error={found.error} />
      {items.length > 0 && <Table caption="Agents" columns={COLUMNS} rows={items} keyOf={(agent) => agent.name} />}
      {found.data && items.length === 0 && <div className="empty">No agent is known: runs carry their load themselves.</div>}
      {items.map(({ name, job }) => job && <Steps key={name} title={`${visible(name)}: ${job.what}`} job={job} log={`${PATH}/${seg(name)}/log`} />)}
      <BuildList />
      {found.data && <Start hasSecret={found.data.has_secret} items={items} />}
    </>
  );
}

/** Work in steps, each with its time and its output. */
export function Steps({ title, job, log }: { title: string; job: Job; log?: string }) {
  return (
    <section className="card above" aria-label={title}>
      <header>
        <h2>
          {title} <Badge kind={JOBS[job.state][0]}>{JOBS[job.state][1]}</Badge>
        </h2>
        {log && (job.what === 'collect' || job.what === 'stop') && job.state === 'done' && (
          <a href={log} target="_blank" rel="noopener">
            Log of the agent
          </a>
        )}
      </header>
      <ol className="steps" aria-live="polite">
        {job.steps.map(({ name, state, seconds, output }) => (
          <li key={name}>
            <p className="row">
              <Badge kind={JOBS[state][0]}>{JOBS[state][1]}</Badge> {name} {state !== 'running' && <span className="quiet small">{duration(seconds * 1000)}</span>}
            </p>
            {output && (
              <details open={state === 'failed'}>
                <summary>Output of {name}</summary>
                <pre tabIndex={0}>{visible(output)}</pre>
              </details>
            )}
          </li>
        ))}
      </ol>
    </section>
  );
}

const BUILD_COLUMNS: Column<Builds['items'][number]>[] = [
  { head: 'Revision', cell: ({ revision }) => <code>{visible(revision)}</code> },
  { head: 'State', cell: ({ ready, job }) => (job && job.state !== 'done' ? <Badge kind={JOBS[job.state][0]}>{JOBS[job.state][1]}</Badge> : <Badge kind={ready ? 'good' : 'bad'}>{ready ? '● built' : '✕ its programs are gone'}</Badge>) },
  { head: 'Step', phone: 'full', cell: ({ job }) => job?.steps.at(-1)?.name ?? '–' },
];

function BuildList() {
  const found = useBuilds();
  const [revision, setRevision] = useState('');
  const items = found.data?.items ?? [];
  const failed = items.filter(({ job }) => job?.state === 'failed');
  return (
    <section className="card above" aria-label="Builds">
      <header>
        <h2>Programs of other revisions</h2>
        <Action label="Build a revision" title="Build a revision" confirm="Build" incomplete={!revision} call={() => ({ method: 'POST', path: lab('builds'), body: { json: { revision } } })} after={() => setRevision('')}>
          <p>In a work tree of its own, of the checkout {visible(found.data?.source ?? '')}. It takes some minutes; no run begins meanwhile.</p>
          <Field label="Revision" help="A commit, a branch or a tag">
            <input value={revision} onChange={(event) => setRevision(event.target.value)} autoFocus data-focus required spellCheck={false} />
          </Field>
        </Action>
      </header>
      <Failure error={found.error} />
      {items.length === 0 ? <p className="quiet">None was built. A run takes the broker of one, and so two revisions can be compared; machines take its agent.</p> : <Table narrow caption="Builds" columns={BUILD_COLUMNS} rows={items} keyOf={({ revision: name }) => name} />}
      {failed.map(({ revision: name, job }) => job && <Steps key={name} title={`Build of ${visible(name)}`} job={job} />)}
    </section>
  );
}

function Start({ hasSecret, items }: { hasSecret: boolean; items: Agent[] }) {
  const address = items.find(({ state }) => state === 'absent')?.address ?? '10.0.0.2:7071';
  const at = address.lastIndexOf(':');
  const host = address.slice(0, at);
  const secret = 'head -c 24 /dev/urandom | base64 > secret; chmod 600 secret';
  return (
    <section className="card" aria-label="Start an agent">
      <h2>Start an agent by hand</h2>
      {!hasSecret && (
        <>
          <p className="small">An address that other machines reach needs a secret, and this page has none. Make one, and start the page again with it:</p>
          <Commands text={`${secret}\nstafett lab serve --secret-file secret`} />
        </>
      )}
      <p className="small">The same program on both machines, and the same secret. What they say to each other is not encrypted: use it on networks that you trust.</p>
      <Commands text={`scp target/release/stafett-lab secret ${host}:\nssh ${host} ./stafett-lab agent --listen ${address} --secret-file secret`} />
    </section>
  );
}
