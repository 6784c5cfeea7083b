import { useOnce, useRefresh } from '../../api/live';
import { api, request, seg } from '../../api/http';
import type { NamespaceList, Queue } from '../../api/types';
import { bytes, count, counted, rate, short, visible } from '../../ui/format';
import { List, type Column } from '../../ui/List';
import { queueAt } from '../../ui/pages';
import { Badge, Commands, Durability, Head } from '../../ui/parts';
import { Link, useParam } from '../../ui/route';
import { Many } from '../../ui/Many';
import type { Hours } from '../../ui/Spark';
import { CreateQueue } from './CreateQueue';

export const queueUrl = ({ namespace, name }: { namespace: string; name: string }, more = '', query = {}): string =>
  api(`queues/${seg(name)}${more}`, { namespace: namespace === '/' ? undefined : namespace, ...query });

const COLUMNS: Column<Queue>[] = [
  {
    head: 'Name',
    sort: 'name',
    cell: (queue) => (
      <>
        <Link className="name" href={queueAt(queue.namespace, queue.name)}>
          {visible(queue.name)}
        </Link>{' '}
        <Marks queue={queue} />
      </>
    ),
    text: ({ name }) => name,
  },
  { head: 'Ready', sort: 'ready', num: true, cell: ({ ready }) => <span title={count(ready)}>{short(ready)}</span>, text: ({ ready }) => ready },
  { head: 'In flight', sort: 'in_flight', num: true, cell: ({ in_flight: n }) => short(n), text: ({ in_flight: n }) => n },
  { head: 'Consumers', sort: 'consumers', num: true, cell: ({ consumers }) => count(consumers), text: ({ consumers }) => consumers },
  { head: 'In', sort: 'published_rate', num: true, cell: ({ rates }) => rate(rates.published), text: ({ rates }) => rates.published },
  { head: 'Out', sort: 'delivered_rate', num: true, cell: ({ rates }) => rate(rates.delivered), text: ({ rates }) => rates.delivered },
  { head: 'Completed', num: true, phone: 'less', cell: ({ rates }) => rate(rates.completed), text: ({ rates }) => rates.completed },
  { head: 'Bytes', sort: 'bytes_ready', num: true, phone: 'less', cell: ({ bytes_ready: n }) => bytes(n), text: ({ bytes_ready: n }) => n },
  { head: 'Durability', phone: 'less', cell: ({ durability }) => <Durability level={durability} />, text: ({ durability }) => durability },
];

const HOURS: Hours<Queue> = {
  of: ({ name }) => `queue:${name}`,
  namespace: ({ namespace }) => namespace,
  names: ['published_rate', 'delivered_rate'],
  format: rate,
  href: ({ namespace, name }) => queueAt(namespace, name, { range: '60' }),
};

export function Marks({ queue, long }: { queue: Queue; long?: boolean }) {
  return (
    <>
      {queue.state !== 'running' && <Badge kind="note">{queue.state}</Badge>}
      {queue.namespace !== '/' && !long && <Badge>in {visible(queue.namespace)}</Badge>}
      {queue.priority_max > 0 && <Badge title={`priorities 0 to ${queue.priority_max}`}>priorities</Badge>}
      {queue.dead_letter && <Badge title="Rejected and expired messages go on">dead letters</Badge>}
      {(queue.length_max !== null || queue.bytes_max !== null) && <Badge>limit</Badge>}
      {queue.ttl_ms !== null && <Badge>expires</Badge>}
      {queue.exclusive && <Badge>exclusive</Badge>}
      {queue.personal && <Badge>personal</Badge>}
      {!queue.durable && <Badge title="Gone after a restart">transient</Badge>}
    </>
  );
}

export function Queues() {
  const [namespace, setNamespace] = useParam('namespace');
  const namespaces = useOnce<NamespaceList>('/v1/namespaces').data?.items ?? [];
  const refresh = useRefresh();
  return (
    <>
      <Head title="Queues">
        <CreateQueue namespaces={namespaces.map(({ name }) => name)} />
      </Head>
      <List<Queue>
        path="queues"
        query={{ namespace }}
        columns={COLUMNS}
        keyOf={({ namespace: space, name }) => `${space} ${name}`}
        noun="queues"
        openAt={(name) => queueAt(namespace ?? '/', name)}
        hours={HOURS}
        filters={[
          { name: 'ready', label: 'With messages', value: 'true' },
          { name: 'unconsumed', label: 'No consumer', value: 'true' },
          { name: 'growing', label: 'Growing', value: 'true' },
          { name: 'paused', label: 'Paused', value: 'true' },
          { name: 'personal', label: 'Personal', value: 'true' },
          { name: 'exclusive', label: 'Exclusive', value: 'true' },
        ]}
        tools={
          namespaces.length > 1 && (
            <select aria-label="Namespace" value={namespace ?? ''} onChange={(event) => setNamespace(event.target.value || undefined)}>
              <option value="">All namespaces</option>
              {namespaces.map(({ name }) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          )
        }
        joint={(rows, clear) => (
          <>
            <Many
              label={`Purge ${rows.length}`}
              title={`Purge ${rows.length} queues`}
              lines={rows.map((row) => `${row.name}: ${counted(row.ready, 'message')}`)}
              typed={rows.reduce((sum, { ready }) => sum + ready, 0) > 1000 ? 'purge' : undefined}
              confirm={`Purge ${count(rows.reduce((sum, { ready }) => sum + ready, 0))} messages`}
              names={rows.map(({ name }) => name)}
              each={(index) => request('POST', queueUrl(rows[index]!, '/purge', conditions(rows[index]!)))}
              after={() => (void refresh(), clear())}
            />
            <Many
              label={`Delete ${rows.length}`}
              title={`Delete ${rows.length} queues`}
              lines={rows.map((row) => `${row.name}: ${counted(row.ready, 'message')}, ${counted(row.consumers, 'consumer')}`)}
              typed="delete"
              confirm={`Delete ${rows.length} queues`}
              names={rows.map(({ name }) => name)}
              each={(index) => request('DELETE', queueUrl(rows[index]!, '', conditions(rows[index]!)))}
              after={() => (void refresh(), clear())}
            />
          </>
        )}
        empty={
          <>
            <p>
              <strong>There is no queue yet.</strong> A queue keeps messages until a consumer has completed them: each goes to one consumer. Make one above, or by a program:
            </p>
            <Commands text={`curl -X PUT ${location.origin}/v1/queues/orders -d '{"priority_max": 10}'`} />
          </>
        }
      />
    </>
  );
}

/** Conditions of a purge or deletion: the queue that was seen, and at most twice as many messages. */
export const conditions = (queue: Queue) => ({ if_id: queue.id, if_ready_max: queue.ready * 2 + 100 });
