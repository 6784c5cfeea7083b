import type { QueueDetails } from '../../api/types';
import { age, count } from '../../ui/format';
import { queueAt } from '../../ui/pages';
import { Meter } from '../../ui/parts';
import { Link } from '../../ui/route';

/** Messages that wait, by priority, as bars. */
export function Lanes({ queue }: { queue: QueueDetails }) {
  const lanes = Object.entries(queue.by_priority).sort(([one], [other]) => Number(other) - Number(one));
  const most = Math.max(1, ...lanes.map(([, ready]) => ready));
  return (
    <section className="card">
      <header>
        <h2>Lanes by priority</h2>
      </header>
      {lanes.length === 0 ? <p className="quiet">Nothing waits.</p> : queue.oldest && <p className="quiet small">The oldest message came {age(queue.oldest)}.</p>}
      <ul className="bars">
        {lanes.map(([priority, ready]) => (
          <li key={priority}>
            <Link href={queueAt(queue.namespace, queue.name, { tab: 'messages', priority })}>Priority {priority}</Link>
            <span className="quiet">{count(ready)}</span>
            <Meter share={ready / most} label={`Priority ${priority}: ${ready} wait`} />
          </li>
        ))}
      </ul>
    </section>
  );
}
