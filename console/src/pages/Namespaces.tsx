import { useState } from 'react';
import { api, request, seg } from '../api/http';
import type { Namespace, NamespaceDeletion } from '../api/types';
import { Action } from '../ui/Action';
import { useDryRun } from '../ui/DryRun';
import { count, counted, visible } from '../ui/format';
import { List, type Column } from '../ui/List';
import { Commands, Facts, Failure, Field, Head } from '../ui/parts';
import { Link, to } from '../ui/route';

const COLUMNS: Column<Namespace>[] = [
  { head: 'Name', sort: 'name', cell: ({ name }) => <Link className="name" href={to(['queues'], { namespace: name })}>{visible(name)}</Link>, text: ({ name }) => name },
  { head: 'Queues', sort: 'queues', num: true, cell: ({ name, queues }) => <Link href={to(['queues'], { namespace: name })}>{count(queues)}</Link>, text: ({ queues }) => queues },
  { head: 'Ready', sort: 'ready', num: true, cell: ({ ready }) => count(ready), text: ({ ready }) => ready },
  { head: 'In flight', sort: 'in_flight', num: true, cell: ({ in_flight: taken }) => count(taken), text: ({ in_flight: taken }) => taken },
  { head: 'Exchanges', num: true, cell: ({ name, exchanges }) => <Link href={to(['exchanges'], { namespace: name })}>{count(exchanges)}</Link>, text: ({ exchanges }) => exchanges },
  { head: 'Does', phone: 'full', cell: ({ name }) => <Delete name={name} /> },
];

export function Namespaces() {
  const [name, setName] = useState('');
  return (
    <>
      <Head title="Namespaces">
        <Action<Namespace> label="Create a namespace" className="main" title="Create a namespace" confirm="Create" incomplete={name === ''} call={() => ({ method: 'PUT', path: api(`namespaces/${seg(name)}`) })} result={({ name: made }) => `${visible(made)} is there.`}>
          <p>Queues and exchanges of one namespace do not see those of another: names may be there twice. RabbitMQ calls it a virtual host. Topics lie in none.</p>
          <Field label="Name">
            <input value={name} onChange={(event) => setName(event.target.value)} autoFocus data-focus required spellCheck={false} />
          </Field>
        </Action>
      </Head>
      <List<Namespace>
        path="namespaces"
        columns={COLUMNS}
        keyOf={({ name: key }) => key}
        noun="namespaces"
        openAt={(known) => to(['queues'], { namespace: known })}
        empty={<Commands text={`curl -X PUT ${location.origin}/v1/namespaces/shop`} />}
      />
    </>
  );
}

function Delete({ name }: { name: string }) {
  const path = (query = {}) => api(`namespaces/${seg(name)}`, query);
  const dry = useDryRun(() => request<NamespaceDeletion>('DELETE', path({ dry_run: true })));
  const isDefault = name === '/';
  const gone = dry.found;
  return (
    <Action<NamespaceDeletion>
      label="Delete"
      destroys
      disabled={isDefault}
      why={isDefault ? 'The default namespace is always there' : undefined}
      title={`Delete the namespace ${visible(name)}`}
      confirm={gone ? `Delete ${counted(gone.queues, 'queue')} and ${counted(gone.messages, 'message')}` : 'Delete'}
      typed={name}
      incomplete={!gone}
      onOpen={dry.look}
      call={() => ({ method: 'DELETE', path: path({ wait: '0' }) })}
      result={(done) => `Deleted, with ${counted(done.queues, 'queue')} and ${counted(done.messages, 'message')}.`}
    >
      <p>Everything in it goes with it, and connections of clients in it are closed. This cannot be taken back.</p>
      <Failure error={dry.error} />
      {gone && (
        <Facts
          rows={[
            ['Queues', count(gone.queues)],
            ['Messages in them', count(gone.messages)],
            ['Exchanges', count(gone.exchanges)],
            ['Bindings', count(gone.bindings)],
          ]}
        />
      )}
    </Action>
  );
}
