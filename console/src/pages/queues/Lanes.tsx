import { useQueries } from '@tanstack/react-query';
import { get } from '../../api/http';
import type { Messages, Queue } from '../../api/types';
import { age } from '../../ui/format';
import { queueAt } from '../../ui/pages';
import { Link } from '../../ui/route';
import { queueUrl } from './Queues';

const LANES_MAX = 16;

/** The front of each lane: the priority, and the age of its oldest message. */
export function Lanes({ queue }: { queue: Queue }) {
  const lanes = Array.from({ length: Math.min(queue.priority_max, LANES_MAX - 1) + 1 }, (_, priority) => priority).reverse();
  const fronts = useQueries({
    queries: lanes.map((priority) => ({
      queryKey: ['lane', queue.id, priority],
      queryFn: () => get<Messages>(queueUrl(queue, '/messages', { priority, count: 1, order: 'oldest' })),
      refetchInterval: 10_000,
    })),
  });
  const used = lanes.flatMap((priority, index) => {
    const first = fronts[index]?.data?.messages[0];
    return first ? [{ priority, at: first.sent_at }] : [];
  });
  return (
    <section className="card">
      <header>
        <h2>Lanes by priority</h2>
      </header>
      {used.length === 0 && <p className="quiet">Nothing waits.</p>}
      <ul className="bars">
        {used.map(({ priority, at }) => (
          <li key={priority}>
            <Link href={queueAt(queue.namespace, queue.name, { tab: 'messages', priority: String(priority) })}>Priority {priority}</Link>
            <span className="quiet">oldest {age(at)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
