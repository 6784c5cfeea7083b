import { useState } from 'react';
import { api, seg } from '../api/http';
import type { Client, Message, MessageCount, Outgoing } from '../api/types';
import { Action } from '../ui/Action';
import { firstLine } from '../ui/Content';
import { count, counted, visible } from '../ui/format';
import { List, type Column } from '../ui/List';
import { queueAt } from '../ui/pages';
import { Badge, Commands, Field, Head, Time } from '../ui/parts';
import { Link, to } from '../ui/route';
import { contentOf } from './queues/Send';

const COLUMNS: Column<Client>[] = [
  { head: 'Name', sort: 'name', cell: ({ name }) => <Link className="name" href={to(['clients', name])}>{visible(name)}</Link>, text: ({ name }) => name },
  { head: 'Live', cell: ({ listening, subscriptions }) => <>{listening ? <Badge kind="good">● listening</Badge> : <span className="quiet">–</span>} {subscriptions > 0 && <span className="quiet small">{counted(subscriptions, 'subscription')}</span>}</> },
  { head: 'Waiting for it', sort: 'ready', num: true, cell: ({ queue }) => count(queue.ready), text: ({ queue }) => queue.ready },
  { head: 'Queue', cell: ({ queue }) => <Link href={queueAt('/', queue.name)}>{visible(queue.name)}</Link>, text: ({ queue }) => queue.name },
  { head: 'Registered', sort: 'registered_at', phone: 'less', cell: ({ registered_at: at }) => (at ? <Time at={at} /> : '–'), text: ({ registered_at: at }) => at ?? '' },
  {
    head: 'Does',
    phone: 'full',
    cell: (client) => (
      <span className="row">
        <Ask client={client} />
        <Action<MessageCount>
          label="Delete"
          destroys
          title={`Delete ${visible(client.name)}`}
          confirm="Delete the client"
          call={() => ({ method: 'DELETE', path: api(`clients/${seg(client.name)}`) })}
          result={({ messages }) => `Deleted, with ${counted(messages, 'message')}.`}
        >
          <p>
            It goes with its queue and <b>{counted(client.queue.ready, 'message')}</b> waiting for it. This cannot be taken back.
          </p>
        </Action>
      </span>
    ),
  },
];

export function Clients() {
  const [name, setName] = useState('');
  return (
    <>
      <Head title="Clients">
        <Action<Client> label="Register a client" className="main" title="Register a client" confirm="Register" incomplete={name === ''} call={() => ({ method: 'PUT', path: api(`clients/${seg(name)}`) })} result={({ queue }) => `Registered; its queue is ${queue.name}.`}>
          <Field label="Name">
            <input value={name} onChange={(event) => setName(event.target.value)} autoFocus data-focus required spellCheck={false} />
          </Field>
        </Action>
      </Head>
      <List<Client>
        path="clients"
        columns={COLUMNS}
        keyOf={({ name: client }) => client}
        noun="clients"
        empty={
          <>
            <p>
              <strong>No client is registered.</strong> A registered client has a queue of its own: messages are sent to it by name, and requests get their answers.
            </p>
            <Commands text={`curl -X PUT ${location.origin}/v1/clients/ann\ncurl -H 'Stafett-Client: bob' ${location.origin}/v1/messages -d '{"to": {"clients": ["ann"]}, "content": "hello"}'`} />
          </>
        }
      />
    </>
  );
}

/** A message to the client. */
export function Ask({ client }: { client: Client }) {
  const [content, setContent] = useState('');
  const call = () => {
    const json: Outgoing = { to: { clients: [client.name] }, content: contentOf(content) };
    return { method: 'POST', path: api('messages'), body: { json } };
  };
  return (
    <Action<Message> label="Send" title={`Send to ${visible(client.name)}`} confirm="Send" call={call} result={() => `Sent: ${firstLine({ value: contentOf(content) })}`}>
      <Field label="Content" help="JSON is sent as JSON, anything else as text">
        <textarea value={content} onChange={(event) => setContent(event.target.value)} autoFocus data-focus spellCheck={false} />
      </Field>
    </Action>
  );
}
