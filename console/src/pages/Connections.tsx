import { useState } from 'react';
import { useLive, useOnce, useRefresh } from '../api/live';
import { api, request, seg } from '../api/http';
import type { Channel, Connection as Row, ConnectionDetails, Node } from '../api/types';
import { Action } from '../ui/Action';
import { Course } from '../ui/Course';
import { age, byteRate, bytes, count, short, visible } from '../ui/format';
import { List, type Column } from '../ui/List';
import { Many } from '../ui/Many';
import { Badge, Facts, Failure, Field, Figures, Head, Time } from '../ui/parts';
import { go, Link, to } from '../ui/route';
import { Consumers } from './Consumers';

const WAITS: Record<string, string> = {
  memory: 'memory for its next request',
  journal: 'the journal',
  space: 'space on the disk',
  outbox: 'its client, which does not read',
  group: 'the other members of its group',
};

const State = ({ of }: { of: Row | ConnectionDetails }) => (
  <>
    <Badge kind={of.state === 'running' ? '' : 'note'}>{of.state}</Badge> {of.waits_for && <Badge kind="note">waits for {WAITS[of.waits_for] ?? of.waits_for}</Badge>}
  </>
);

const COLUMNS: Column<Row>[] = [
  {
    head: 'Client',
    cell: (row) => (
      <>
        <Link className="name" href={to(['connections', row.id])}>
          {visible(row.client.name ?? row.client.product ?? row.peer)}
        </Link>{' '}
        <span className="quiet small">
          {visible(row.client.product ?? '')} {visible(row.client.version ?? '')}
        </span>
      </>
    ),
    text: (row) => row.client.name ?? row.client.product,
  },
  { head: 'Protocol', cell: ({ protocol, listener }) => protocol ?? listener, text: ({ protocol }) => protocol },
  { head: 'Peer', cell: ({ peer }) => peer, text: ({ peer }) => peer },
  { head: 'User', phone: 'less', cell: ({ user }) => visible(user ?? '–'), text: ({ user }) => user },
  { head: 'Since', sort: 'since', cell: ({ since }) => <span title={since}>{age(since)}</span>, text: ({ since }) => since },
  { head: 'Channels', phone: 'less', sort: 'channels', num: true, cell: ({ channels }) => count(channels), text: ({ channels }) => channels },
  { head: 'Received', sort: 'received_bytes', num: true, cell: ({ received_bytes: n }) => bytes(n), text: ({ received_bytes: n }) => n },
  { head: 'Sent', sort: 'sent_bytes', num: true, cell: ({ sent_bytes: n }) => bytes(n), text: ({ sent_bytes: n }) => n },
  { head: 'State', cell: (row) => <State of={row} />, text: ({ state }) => state },
];

export function Connections() {
  const refresh = useRefresh();
  const listeners = useOnce<Node>('/v1/node').data?.listeners ?? [];
  return (
    <>
      <Head title="Connections" />
      <List<Row>
        path="connections"
        columns={COLUMNS}
        keyOf={({ id }) => id}
        noun="connections"
        filters={listeners.map(({ protocol }) => ({ name: 'listener', label: protocol, value: protocol }))}
        joint={(rows, clear) => (
          <Many
            label={`Close ${rows.length}`}
            title={`Close ${rows.length} connections`}
            confirm={`Close ${rows.length} connections`}
            lines={rows.map((row) => `${row.client.name ?? row.client.product ?? 'client'} from ${row.peer}`)}
            names={rows.map(({ peer }) => peer)}
            each={(index) => request('DELETE', api(`connections/${seg(rows[index]!.id)}`, { reason: 'closed by an operator' }))}
            after={() => {
              clear();
              void refresh();
            }}
          />
        )}
        empty={<p>There is no connection, not even that of this page.</p>}
      />
    </>
  );
}

const CHANNELS: Column<Channel>[] = [
  { head: 'Channel', cell: ({ number }) => number },
  { head: 'State', cell: ({ state }) => state },
  { head: 'Consumers', num: true, cell: ({ consumers }) => count(consumers) },
  { head: 'Prefetch', num: true, cell: ({ prefetch }) => (prefetch === 0 ? 'unlimited' : count(prefetch)) },
  { head: 'Unsettled', sort: 'unsettled', num: true, cell: ({ unsettled }) => count(unsettled) },
  { head: 'Unconfirmed', sort: 'unconfirmed', num: true, cell: ({ unconfirmed, confirms }) => (confirms ? count(unconfirmed) : '–') },
  { head: 'Uncommitted', phone: 'less', sort: 'uncommitted', num: true, cell: ({ uncommitted, transacts }) => (transacts ? count(uncommitted) : '–') },
];

export function Connection({ id }: { id: string }) {
  const { data, error, dataUpdatedAt } = useLive<ConnectionDetails>(api(`connections/${seg(id)}`));
  const [reason, setReason] = useState('closed by an operator');
  if (!data || error) {
    return (
      <>
        <Head title={`Connection ${id}`} trail={['Connections', to(['connections'])]} />
        <Failure error={error} />
      </>
    );
  }
  return (
    <>
      <Head title={visible(data.client.name ?? data.client.product ?? data.peer)} trail={['Connections', to(['connections'])]} badges={<State of={data} />}>
        <Action<Row>
          right="operate"
          label="Close"
          destroys
          title="Close the connection"
          confirm="Close the connection"
          call={() => ({ method: 'DELETE', path: api(`connections/${seg(id)}`, { reason }) })}
          after={() => go(to(['connections']))}
        >
          <p>
            Its messages in flight (<b>{count(data.in_flight)}</b>) return to their queues, and its channels ({count(data.channels)}) end. Most clients connect again by themselves.
          </p>
          <Field label="Reason" help="The client hears it where its protocol has words for it">
            <input value={reason} onChange={(event) => setReason(event.target.value)} />
          </Field>
        </Action>
      </Head>
      <Figures
        of={[
          { name: 'Received', value: bytes(data.received_bytes), exact: count(data.received_bytes) },
          { name: 'Sent', value: bytes(data.sent_bytes), exact: count(data.sent_bytes) },
          { name: 'In flight', value: count(data.in_flight) },
          { name: 'Channels', value: count(data.channels) },
        ]}
      />
      <div className="grid">
        <Course
          title="Bytes per second"
          format={byteRate}
          stamp={dataUpdatedAt}
          of={[
            { name: 'received', label: 'Received', value: data.received_bytes, grows: true },
            { name: 'sent', label: 'Sent', value: data.sent_bytes, grows: true },
          ]}
        />
        <Course title="Messages in flight" format={short} stamp={dataUpdatedAt} of={[{ name: 'in_flight', label: 'In flight', value: data.in_flight }]} />
      </div>
      <div className="grid">
        <section className="card">
          <Facts
            rows={[
              ['Protocol', `${data.protocol ?? '–'} on ${data.listener}`],
              ['From', data.peer],
              ['To', data.local],
              ['Since', <Time key="s" at={data.since} />],
              ['User', visible(data.user ?? '–')],
              ['Namespace', visible(data.namespace ?? '–')],
              ['TLS', data.tls ? Object.values(data.tls).filter(Boolean).map((part) => visible(String(part))).join(', ') : 'no'],
              ['Client', visible(`${data.client.product ?? '–'} ${data.client.version ?? ''}`)],
            ]}
          />
        </section>
        {Object.keys(data.client.properties).length > 0 && (
          <section className="card">
            <header>
              <h2>What the client says of itself</h2>
            </header>
            <Facts rows={Object.entries(data.client.properties).map(([name, value]) => [visible(name), visible(value)])} />
          </section>
        )}
      </div>
      {data.open_channels.length > 0 && (
        <>
          <h2 className="above">Channels</h2>
          <List<Channel> path="channels" query={{ connection: id }} columns={CHANNELS} keyOf={({ number }) => String(number)} noun="channels" search={false} prefix="ch." empty={<p>There is no channel.</p>} />
        </>
      )}
      <h2 className="above">Consumers</h2>
      <Consumers query={{ connection: id }} of="This connection" />
    </>
  );
}
