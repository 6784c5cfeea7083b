import { useState } from 'react';
import { useLive } from '../api/live';
import { api } from '../api/http';
import type { Draining, Listener, LogLevel, Memory, Node as State, Reloaded, Setting, Thread, Threads } from '../api/types';
import { Action } from '../ui/Action';
import { Charts, Ranges, type Drawn, type Series } from '../ui/Chart';
import { byteRate, bytes, count, counted, duration, share, visible } from '../ui/format';
import { List, type Column } from '../ui/List';
import { Badge, Facts, Failure, Field, Figures, Head, Tabs, Time, useTab } from '../ui/parts';
import { Scroll, Table } from '../ui/Table';
import { brokerNow } from '../api/reach';
import { Cluster } from './Cluster';

const CPU: Series[] = [
  { name: 'cpu_user', label: 'Programs' },
  { name: 'cpu_system', label: 'System' },
  { name: 'cpu_wait', label: 'Waiting for disks' },
];
const DISK: Series[] = [
  { name: 'disk_written_rate', label: 'Written' },
  { name: 'disk_read_rate', label: 'Read' },
];
const NETWORK: Series[] = [
  { name: 'network_received_rate', label: 'Received' },
  { name: 'network_sent_rate', label: 'Sent' },
];
const MEMORY: Series[] = [{ name: 'resident_bytes', label: 'The broker' }];

const CHARTS: Drawn[] = [
  { title: 'Processors', series: CPU, format: share },
  { title: 'Memory', series: MEMORY, format: bytes },
  { title: 'Disk', series: DISK, format: byteRate },
  { title: 'Network', series: NETWORK, format: byteRate },
];

export function Node() {
  const { data, error } = useLive<State>('/v1/node', 3000);
  const tab = useTab('overview');
  return (
    <>
      <Head
        title="Node"
        badges={
          data && (
            <>
              <Badge kind={data.state === 'ok' || data.state === 'ready' ? 'good' : 'note'}>{data.state}</Badge>
              <Badge>version {data.version}</Badge>
              <Badge>up {duration(brokerNow() - Date.parse(data.started_at))}</Badge>
            </>
          )
        }
      >
        <Actions />
      </Head>
      <Failure error={error} />
      <Tabs
        of={[
          ['overview', 'Overview'],
          ['cluster', 'Cluster'],
          ['threads', 'Threads'],
          ['memory', 'Memory'],
          ['settings', 'Settings'],
        ]}
      />
      {tab === 'overview' && data && <Inside node={data} />}
      {tab === 'cluster' && data && <Cluster isAlone={!data.settings_changed.includes('cluster.database')} />}
      {tab === 'threads' && <ThreadList />}
      {tab === 'memory' && <MemoryParts />}
      {tab === 'settings' && <Settings />}
    </>
  );
}

function Actions() {
  const [level, setLevel] = useState('info,stafett_net=debug');
  const [minutes, setMinutes] = useState('10');
  const [drain, setDrain] = useState('7');
  return (
    <>
      <Action<LogLevel>
        right="operate"
        label="Log level"
        title="Change the log level"
        confirm="Change"
        call={() => ({ method: 'PUT', path: api('node/log-level'), body: { json: { level, for_s: minutes === '' ? null : Number(minutes) * 60 } } })}
        result={({ level: now, for_s: seconds }) => `It is ${now}${seconds == null ? ' until the next start' : ` for ${duration(seconds * 1000)}`}.`}
      >
        <Field label="Filter" help="A level, and levels of parts behind commas">
          <input value={level} onChange={(event) => setLevel(event.target.value)} autoFocus data-focus spellCheck={false} required />
        </Field>
        <Field label="For minutes" help="Empty: until the next start">
          <input type="number" min="1" value={minutes} onChange={(event) => setMinutes(event.target.value)} />
        </Field>
      </Action>
      <Action<Reloaded>
        right="operate"
        label="Reload"
        title="Read the settings again"
        confirm="Reload"
        call={() => ({ method: 'POST', path: api('node/reload') })}
        result={({ changed, needs_restart: restart, failed }) =>
          `Changed: ${changed.join(', ') || 'nothing'}. Needs a restart: ${restart.join(', ') || 'nothing'}.${failed.map(({ key, why }) => ` ${key}: ${why}`).join('')}`
        }
      >
        <p>As SIGHUP does. Settings that need a restart are named, and stay as they are.</p>
      </Action>
      <Action<Draining>
        right="operate"
        label="Shut down"
        destroys
        title="Shut the node down"
        confirm="Shut down"
        typed="shut down"
        call={() => ({ method: 'POST', path: api('node/shutdown'), body: { json: { drain_s: Number(drain) } } })}
        result={({ connections }) => `Draining: ${counted(connections, 'connection')} left.`}
      >
        <p>
          Connections get this time to finish; then the broker ends, and <b>no client can use it until it is started again</b>, on its machine: this page cannot do that.
        </p>
        <Field label="Drain for seconds">
          <input type="number" min="0" max="600" value={drain} onChange={(event) => setDrain(event.target.value)} />
        </Field>
      </Action>
    </>
  );
}

const LISTENERS: Column<Listener>[] = [
  { head: 'Protocol', cell: ({ protocol }) => protocol },
  { head: 'Address', cell: ({ address }) => <span className="mono">{address}</span> },
  { head: 'Connections', num: true, cell: ({ connections }) => count(connections) },
  { head: 'When overloaded', cell: ({ overload }) => overload },
];

const Inside = ({ node }: { node: State }) => (
  <>
    <div className="row between">
      <h2>The machine</h2>
      <Ranges />
    </div>
    <Charts of="node" charts={CHARTS} />
    <section className="card">
      <header>
        <h2>Listeners</h2>
      </header>
      <Scroll>
        <Table narrow caption="Listeners" columns={LISTENERS} rows={node.listeners} keyOf={({ protocol }) => protocol} />
      </Scroll>
    </section>
    <section className="card">
      <Facts
        rows={[
          ['Started', <Time key="t" at={node.started_at} />],
          ['Settings that are not the default', node.settings_changed.join(', ') || 'none'],
        ]}
      />
    </section>
  </>
);

const STATES: Record<string, string> = { R: 'runs', S: 'waits', D: 'waits for the disk', Z: 'ended', T: 'stopped' };

const THREADS: Column<Thread>[] = [
  { head: 'Thread', cell: ({ name }) => <span className="mono">{name}</span> },
  { head: 'State', cell: ({ state }) => STATES[state] ?? state },
  { head: 'Waits in', cell: ({ waits_in: where }) => <span className="mono">{where ?? '–'}</span> },
  { head: 'Processor time', num: true, cell: ({ cpu_s: seconds }) => duration(seconds * 1000) },
];

function ThreadList() {
  const { data, error } = useLive<Threads>('/v1/node/threads', 3000);
  return (
    <>
      <Failure error={error} />
      {data && (
        <>
          <p className="quiet small lead">Operations under way: {count(data.operations)}. A thread that waits names the function of the kernel in which it does.</p>
          <Scroll>
            <Table narrow caption="Threads" columns={THREADS} rows={data.threads} keyOf={({ name }, index) => `${name} ${index}`} />
          </Scroll>
        </>
      )}
    </>
  );
}

function MemoryParts() {
  const { data, error } = useLive<Memory>('/v1/node/memory', 3000);
  if (!data) return <Failure error={error} />;
  const { request_memory: requests } = data;
  return (
    <Figures
      of={[
        { name: 'The process', value: bytes(data.resident_bytes), exact: count(data.resident_bytes) },
        { name: 'Recent batches', value: bytes(data.tail_cache_bytes), exact: count(data.tail_cache_bytes) },
        { name: 'Requests', value: bytes(requests.used_bytes), more: `of ${bytes(requests.max_bytes)}` },
        { name: 'Queues', value: count(data.queues?.count), more: `${counted(data.queues?.in_flight, 'message')} in flight` },
        { name: 'Live topics', value: count(data.live?.topics), more: counted(data.live?.subscriptions, 'subscription') },
        { name: 'Groups', value: bytes(data.groups_bytes), exact: count(data.groups_bytes) },
        { name: 'Histories', value: bytes(data.history_bytes), exact: count(data.history_bytes) },
        { name: 'Other', value: bytes(data.other_bytes), exact: count(data.other_bytes) },
      ]}
    />
  );
}

const SETTINGS: Column<Setting>[] = [
  {
    head: 'Setting',
    cell: ({ key, about }) => (
      <>
        <code>{key}</code>
        <br />
        <span className="quiet small">{visible(about)}</span>
      </>
    ),
    text: ({ key }) => key,
  },
  {
    head: 'Value',
    cell: ({ value, default: usual }) => (
      <>
        <code className={value === usual ? '' : 'changed'}>{visible(value) || '(empty)'}</code>
        {value !== usual && (
          <>
            <br />
            <span className="quiet small">default {visible(usual) || '(empty)'}</span>
          </>
        )}
      </>
    ),
    text: ({ value }) => value,
  },
  { head: 'From', cell: ({ source }) => (source === 'default' ? <span className="quiet">default</span> : <Badge kind="note">{visible(source)}</Badge>), text: ({ source }) => source },
  { head: 'Takes effect', cell: ({ reloads }) => (reloads ? 'on reload' : 'on restart'), text: ({ reloads }) => String(reloads) },
];

const Settings = () => <List<Setting> path="node/settings" columns={SETTINGS} keyOf={({ key }) => key} noun="settings" perPage={200} empty={<p>There is no setting.</p>} />;
