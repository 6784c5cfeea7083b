import type { Consumer } from '../api/types';
import type { Query } from '../api/http';
import { api, seg } from '../api/http';
import { Action } from '../ui/Action';
import { count, visible } from '../ui/format';
import { List, type Column } from '../ui/List';
import { queueAt } from '../ui/pages';
import { Badge, Head } from '../ui/parts';
import { Link, to } from '../ui/route';

const COLUMNS: Column<Consumer>[] = [
  { head: 'Name', cell: ({ name }) => <span className="mono">{visible(name) || '(no name)'}</span>, text: ({ name }) => name },
  {
    head: 'Reads',
    cell: ({ queue, topic, namespace }) =>
      queue !== null ? <Link href={queueAt(namespace, queue)}>{visible(queue)}</Link> : topic !== null ? <Link href={to(['topics', topic])}>{visible(topic)}</Link> : '–',
    text: ({ queue, topic }) => queue ?? topic,
  },
  { head: 'In flight', sort: 'in_flight', num: true, cell: ({ in_flight: n }) => count(n), text: ({ in_flight: n }) => n },
  { head: 'Prefetch', num: true, phone: 'less', cell: ({ prefetch }) => (prefetch === 0 || prefetch === null ? 'unlimited' : count(prefetch)), text: ({ prefetch }) => prefetch },
  {
    head: 'Connection',
    cell: ({ connection, channel }) => (
      <Link href={to(['connections', connection])}>
        {connection}
        {channel > 0 && `, channel ${channel}`}
      </Link>
    ),
    text: ({ connection }) => connection,
  },
  {
    head: 'Marks',
    phone: 'full',
    cell: ({ active, exclusive, settles, priority }) => (
      <>
        {!active && <Badge kind="note">waits for its turn</Badge>} {exclusive && <Badge>exclusive</Badge>} {!settles && <Badge title="Messages are done when they are sent">no acknowledgements</Badge>}{' '}
        {priority !== 0 && <Badge>priority {priority}</Badge>}
      </>
    ),
  },
  {
    head: 'Does',
    phone: 'full',
    cell: (consumer) => (
      <Action<Consumer>
        label="Cancel"
        destroys
        title={`Cancel the consumer ${visible(consumer.name)}`}
        confirm="Cancel the consumer"
        call={() => ({ method: 'DELETE', path: api(`consumers/${seg(consumer.id)}`) })}
        result={() => 'Cancelled; its client is told.'}
      >
        <p>It gets no more messages. {count(consumer.in_flight)} in flight stay with it until it settles them or its channel ends.</p>
      </Action>
    ),
  },
];

export const Consumers = ({ path = 'consumers', query, of }: { path?: string; query?: Query; of?: string }) => (
  <List<Consumer>
    path={path}
    query={query}
    columns={COLUMNS}
    keyOf={({ id }) => id}
    noun="consumers"
    empty={
      <p>
        <strong>{of ? `${of} has no consumer.` : 'There is no consumer.'}</strong> A consumer is a client that is given messages of a queue as they come. Messages wait until there is one.
      </p>
    }
  />
);

export const ConsumersPage = () => (
  <>
    <Head title="Consumers" />
    <Consumers />
  </>
);
