import { useLive, useOnce } from '../api/live';
import type { EventList, Journal, Node, NodeMemberList, Overview as State, QueueBacklog } from '../api/types';
import { Charts, Ranges, type Drawn, type Series } from '../ui/Chart';
import { byteRate, bytes, count, duration, rate, share, short, time, visible } from '../ui/format';
import { queueAt } from '../ui/pages';
import { Badge, Commands, Durability, Failure, Figures, Head, Meter } from '../ui/parts';
import { Link, to } from '../ui/route';
import { useHours, type Hours } from '../ui/Spark';
import { EventLine } from './Events';

const IN: Series[] = [
  { name: 'published_rate', label: 'Messages to queues' },
  { name: 'records_in_rate', label: 'Records to topics' },
];
const OUT: Series[] = [
  { name: 'delivered_rate', label: 'Messages delivered' },
  { name: 'completed_rate', label: 'Completed' },
  { name: 'records_out_rate', label: 'Records read' },
];
const WAITING: Series[] = [
  { name: 'ready', label: 'Ready' },
  { name: 'in_flight', label: 'In flight' },
  { name: 'lag', label: 'Lag of groups' },
];
const BYTES: Series[] = [
  { name: 'bytes_in_rate', label: 'Into topics' },
  { name: 'bytes_out_rate', label: 'Out of topics' },
  { name: 'disk_written_rate', label: 'Written to disks' },
];
const CHURN: Series[] = [
  { name: 'connections_opened_rate', label: 'Connections opened' },
  { name: 'queues_created_rate', label: 'Queues made' },
  { name: 'queues_deleted_rate', label: 'Queues deleted' },
  { name: 'redelivered_rate', label: 'Messages given again' },
];
const CPU: Series[] = [
  { name: 'cpu_user', label: 'Programs' },
  { name: 'cpu_system', label: 'System' },
  { name: 'cpu_wait', label: 'Waiting for disks' },
];
const CHARTS: Drawn[] = [
  { title: 'In', series: IN, format: rate },
  { title: 'Out', series: OUT, format: rate },
  { title: 'Waiting', series: WAITING, format: short },
  { title: 'Processors of the machine', series: CPU, format: share },
  { title: 'Bytes', series: BYTES, format: byteRate },
  { title: 'Made and gone', series: CHURN, format: rate },
];

export function Overview() {
  const { data, error } = useLive<State>('/v1/overview');
  const events = useLive<EventList>('/v1/events?count=12', 5000).data?.items ?? [];
  const durability = useOnce<Journal>('/v1/journal').data?.durability;
  const node = useOnce<Node>('/v1/node').data;
  if (!data) return <Failure error={error} />;
  const { totals, rates, machine, process } = data;
  const isNew = totals.queues === 0 && totals.topics === 0;
  return (
    <>
      <Head
        title="Overview"
        badges={
          <>
            <Badge kind={data.state === 'ok' ? 'good' : 'bad'}>{data.state === 'ok' ? '● running' : `▲ ${data.state}`}</Badge>
            <Badge>version {data.version}</Badge>
            <Badge title={node?.started_at}>up {duration(data.uptime_s * 1000)}</Badge>
            {durability && <Durability level={durability} />}
          </>
        }
      >
        <Ranges />
      </Head>
      {isNew && <Welcome />}
      <Figures
        of={[
          { name: 'Messages ready', value: short(totals.ready), exact: count(totals.ready), href: to(['queues'], { sort: '-ready' }) },
          { name: 'In flight', value: short(totals.in_flight), exact: count(totals.in_flight), href: to(['queues'], { sort: '-in_flight' }) },
          { name: 'Lag of groups', value: short(totals.lag), exact: count(totals.lag), href: to(['groups'], { sort: '-lag' }) },
          { name: 'Messages in', value: rate(rates.published), more: 'last 5 s' },
          { name: 'Delivered', value: rate(rates.delivered), more: `${rate(rates.redelivered)} again` },
          { name: 'Records in', value: rate(rates.records_in), more: byteRate(rates.bytes_in) },
          { name: 'Records out', value: rate(rates.records_out), more: byteRate(rates.bytes_out) },
          { name: 'Queues', value: short(totals.queues), exact: count(totals.queues), href: to(['queues']) },
          { name: 'Topics', value: short(totals.topics), exact: count(totals.topics), href: to(['topics']) },
          { name: 'Groups', value: short(totals.groups), exact: count(totals.groups), href: to(['groups']) },
          { name: 'Connections', value: short(totals.connections), exact: count(totals.connections), href: to(['connections']), more: `${rate(rates.connections_opened)} new` },
          { name: 'Consumers', value: short(totals.consumers), exact: count(totals.consumers), href: to(['consumers']) },
          { name: 'Live topics', value: short(totals.live_topics), exact: count(totals.live_topics), href: to(['live']), more: `${short(totals.live_listening)} listening` },
          { name: 'Memory', value: bytes(process.resident_bytes), more: `of ${bytes(machine.memory_bytes)}` },
          { name: 'Processors', value: share(process.cpu_user + process.cpu_system), more: `of one; ${machine.cores} there` },
          { name: 'Disk free', value: bytes(machine.disk_free_bytes), more: `${byteRate(process.disk_written_rate)} written` },
        ]}
      />
      <Charts of="node" charts={CHARTS} />
      <div className="grid">
        <Backlog queues={data.top.queues} />
        <section className="card">
          <header>
            <h2>Groups furthest behind</h2>
            <Link href={to(['groups'], { sort: '-lag' })}>All</Link>
          </header>
          {data.top.groups.length === 0 && <p className="quiet">No group is behind.</p>}
          <Bars hours={GROUP_HOURS} rows={data.top.groups.map(({ name, lag }) => ({ key: name, of: `group:${name}`, text: name, href: to(['groups', name]), value: lag }))} />
        </section>
        <section className="card">
          <header>
            <h2>Last events</h2>
            <Link href={to(['events'])}>All</Link>
          </header>
          {events.length === 0 && <p className="quiet">Nothing happened since {time(node?.started_at)}.</p>}
          {events.slice(0, 8).map((event) => (
            <EventLine key={event.id} event={event} />
          ))}
        </section>
      </div>
    </>
  );
}

const Backlog = ({ queues }: { queues: QueueBacklog[] }) => (
  <section className="card">
    <header>
      <h2>Longest queues</h2>
      <Link href={to(['queues'], { sort: '-ready' })}>All</Link>
    </header>
    {queues.length === 0 && <p className="quiet">No message waits.</p>}
    <Bars hours={QUEUE_HOURS} rows={queues.map(({ namespace, name, ready }) => ({ key: namespace + name, of: `queue:${name}`, namespace, text: name, href: queueAt(namespace, name), value: ready }))} />
  </section>
);

interface Bar {
  key: string;
  of: string;
  namespace?: string;
  text: string;
  href: string;
  value: number;
}

const hoursOf = (series: string): Hours<Bar> => ({
  of: ({ of }) => of,
  namespace: ({ namespace }) => namespace ?? '/',
  names: [series],
  format: short,
  href: ({ href }) => `${href}?range=60`,
});
const QUEUE_HOURS = hoursOf('ready');
const GROUP_HOURS = hoursOf('lag');

function Bars({ rows, hours }: { rows: Bar[]; hours: Hours<Bar> }) {
  const hour = useHours(rows, hours);
  const most = Math.max(1, ...rows.map(({ value }) => value));
  return (
    <ul className="bars">
      {rows.map((row) => (
        <li key={row.key} className="with-hour">
          <Link className="name" href={row.href}>
            {visible(row.text)}
          </Link>
          {hour?.(row)}
          <span className="num" title={count(row.value)}>
            {short(row.value)}
          </span>
          <Meter share={row.value / most} />
        </li>
      ))}
    </ul>
  );
}

function Welcome() {
  const nodes = useOnce<NodeMemberList>('/v1/nodes').data?.items[0]?.addresses ?? {};
  const http = location.origin;
  const kafka = nodes.kafka ?? 'HOST:9092';
  return (
    <section className="card">
      <header>
        <h2>This broker is empty. Three ways to begin:</h2>
      </header>
      <div className="grid">
        <div>
          <h3>A queue over HTTP</h3>
          <Commands
            text={`curl -X PUT ${http}/v1/queues/orders -d '{}'\ncurl ${http}/v1/messages -d '{"to": {"queues": ["orders"]}, "content": {"amount": 12}}'`}
          />
        </div>
        <div>
          <h3>A topic by Kafka's protocol ({kafka})</h3>
          <Commands text={`echo hello | stafett produce demo --create --server ${kafka}\nstafett consume demo --server ${kafka}`} />
        </div>
        {nodes.amqp && (
          <div>
            <h3>A queue by RabbitMQ's protocol</h3>
            <Commands text={`# any client of AMQP 0-9-1:\namqp://guest:guest@${nodes.amqp}/`} />
          </div>
        )}
      </div>
    </section>
  );
}
