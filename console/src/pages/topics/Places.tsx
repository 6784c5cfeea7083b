// Where a record is besides its log: as a message of queues with its state there, and before or behind groups.
import { useLive, useOnce } from '../../api/live';
import { api, Refusal, seg } from '../../api/http';
import type { Group, GroupEntryList, Message, QueueName, Record as Entry, Topic } from '../../api/types';
import { count, counted, visible } from '../../ui/format';
import { queueAt } from '../../ui/pages';
import { Badge, Failure } from '../../ui/parts';
import { Link, to } from '../../ui/route';
import { HeldBy } from '../queues/Why';
import { queueUrl } from '../queues/Queues';
import type { QueueDetails } from '../../api/types';

/** Queues and groups that are asked. */
const SHOWN = 20;

export function Places({ topic, record }: { topic: Topic; record: Entry }) {
  const queues = topic.shows ? [topic.shows] : topic.queues_over;
  const groups = useOnce<GroupEntryList>(api(`topics/${seg(topic.name)}/groups`, { count: SHOWN })).data;
  return (
    <section>
      <h3>Where it waits</h3>
      <ul className="plain-list">
        {queues.slice(0, SHOWN).map((queue) => (
          <OfQueue key={queue.id} queue={queue} record={record} />
        ))}
        {queues.length > SHOWN && <li className="quiet">and {counted(queues.length - SHOWN, 'more queue')}</li>}
        {groups?.items.map(({ name }) => <OfGroup key={name} name={name} topic={topic.name} record={record} />)}
        {groups?.next && <li className="quiet">and more groups</li>}
        {queues.length === 0 && groups?.items.length === 0 && <li className="quiet">No queue lies over this topic, and no group has read it.</li>}
      </ul>
    </section>
  );
}

const KINDS: { [state: string]: '' | 'good' | 'note' } = { ready: 'note', in_flight: '', settled: 'good' };

function OfQueue({ queue, record }: { queue: QueueName; record: Entry }) {
  const id = `${queue.id}-${record.partition}-${record.offset}`;
  const { data, error } = useLive<Message>(queueUrl(queue, `/messages/${seg(id)}`), 2000);
  const details = useOnce<QueueDetails>(data?.state === 'in_flight' ? queueUrl(queue) : null).data;
  const isAbsent = error instanceof Refusal && error.code === 'no_such_message';
  return (
    <li>
      Queue{' '}
      {isAbsent ? (
        <Link href={queueAt(queue.namespace, queue.name)}>{visible(queue.name)}</Link>
      ) : (
        <Link href={queueAt(queue.namespace, queue.name, { tab: 'messages', message: id })}>{visible(queue.name)}</Link>
      )}
      : {isAbsent ? 'not a message of it: it was there before the queue began, or is done and freed.' : data && <Badge kind={KINDS[data.state] ?? ''}>{data.state.replaceAll('_', ' ')}</Badge>}{' '}
      {data?.state === 'ready' && 'it waits to be handed out.'}
      {data?.state === 'settled' && 'it is done there.'}
      {data?.state === 'in_flight' && details && <HeldBy queue={details} message={data} />}
      {!isAbsent && <Failure error={error} />}
    </li>
  );
}

function OfGroup({ name, topic, record }: { name: string; topic: string; record: Entry }) {
  const { data } = useLive<Group>(api(`groups/${seg(name)}`, { topic }), 5000);
  const committed = data?.commits.find(({ partition }) => partition === record.partition)?.committed;
  if (!data) return null;
  const isRead = committed !== undefined && committed > record.offset;
  return (
    <li>
      Group <Link href={to(['groups', name])}>{visible(name)}</Link>: {committed === undefined ? 'has no place in this partition.' : isRead ? <Badge kind="good">read</Badge> : <Badge kind="note">not read yet</Badge>}{' '}
      {committed !== undefined && !isRead && `${counted(record.offset - committed, 'record')} lie before it.`}
      {committed !== undefined && isRead && `its place is ${count(committed)}.`}
    </li>
  );
}
