// Agents on other machines: whether they are there, and the lines that start one.
import { useState } from 'react';
import { seg } from '../api/http';
import { Action } from '../ui/Action';
import { byteRate, duration, visible } from '../ui/format';
import { Badge, Commands, Failure, Field, Head } from '../ui/parts';
import { Table, type Column } from '../ui/Table';
import { lab, usePolled, type Agent, type Agents } from './api';

const PATH = lab('agents');
const STATES: Record<Agent['state'], ['' | 'good' | 'bad', string]> = { ready: ['good', '● ready'], absent: ['bad', '✕ not there'], not_asked: ['', 'not asked while a run is under way'] };

export const useAgents = () => usePolled<Agents>(PATH, 15_000);

const COLUMNS: Column<Agent>[] = [
  { head: 'Agent', cell: ({ name }) => <b>{visible(name)}</b> },
  { head: 'Address', cell: ({ address }) => <span className="mono">{visible(address)}</span> },
  { head: 'State', cell: ({ state, reason }) => <><Badge kind={STATES[state][0]}>{STATES[state][1]}</Badge> {reason && <span className="small">{visible(reason)}</span>}</>, phone: 'full' },
  { head: 'Machine', cell: ({ machine }) => (machine ? visible(machine) : '–'), phone: 'full' },
  { head: 'There and back', num: true, cell: ({ round_trip_us: us }) => (us === null ? '–' : us < 1000 ? `${us} µs` : duration(us / 1000)) },
  { head: 'Way', num: true, cell: ({ bytes_per_second: n }) => byteRate(n) },
  {
    head: 'Does',
    phone: 'full',
    cell: ({ name }) => (
      <Action label="Remove" title={`Remove the agent ${visible(name)}`} confirm="Remove it" call={() => ({ method: 'DELETE', path: `${PATH}/${seg(name)}` })}>
        <p>It is only taken off this list. Its program goes on until it is ended there.</p>
      </Action>
    ),
  },
];

export function MachinesPage() {
  const found = useAgents();
  const items = found.data?.items ?? [];
  const [name, setName] = useState('');
  const [address, setAddress] = useState('');
  return (
    <>
      <Head title="Machines">
        <Action
          label="Add an agent"
          className="main"
          title="Add an agent"
          confirm="Add"
          incomplete={!name || !address}
          call={() => ({ method: 'POST', path: PATH, body: { json: { name, address } } })}
          after={() => {
            setName('');
            setAddress('');
          }}
        >
          <Field label="Name" help="By which roles of an experiment name it (on)">
            <input value={name} onChange={(event) => setName(event.target.value)} autoFocus data-focus required spellCheck={false} />
          </Field>
          <Field label="Address" help="HOST:PORT at which it listens">
            <input value={address} placeholder="10.0.0.2:7071" onChange={(event) => setAddress(event.target.value)} required spellCheck={false} />
          </Field>
        </Action>
      </Head>
      <p className="question">Agents carry the load of a run from other machines. Systems run where this page does, or where a run names their addresses.</p>
      <Failure error={found.error} />
      {items.length > 0 && <Table caption="Agents" columns={COLUMNS} rows={items} keyOf={(agent) => agent.name} />}
      {found.data && items.length === 0 && <div className="empty">No agent is known: runs carry their load themselves.</div>}
      {found.data && <Start hasSecret={found.data.has_secret} items={items} />}
    </>
  );
}

function Start({ hasSecret, items }: { hasSecret: boolean; items: Agent[] }) {
  const address = items.find(({ state }) => state === 'absent')?.address ?? '10.0.0.2:7071';
  const at = address.lastIndexOf(':');
  const host = address.slice(0, at);
  const secret = 'head -c 24 /dev/urandom | base64 > secret; chmod 600 secret';
  return (
    <section className="card" aria-label="Start an agent">
      <h2>Start an agent on another machine</h2>
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
