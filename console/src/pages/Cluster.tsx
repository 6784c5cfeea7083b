// Nodes and cells of a cluster, side by side, and what they keep in the database and in the object store.
import { useState } from 'react';
import { useLive } from '../api/live';
import { api, get, Refusal } from '../api/http';
import type { Cluster as State, ClusterCell, ClusterMove, ClusterNode, ClusterObjects } from '../api/types';
import { Action } from '../ui/Action';
import { bytes, count, counted, visible } from '../ui/format';
import { Badge, Commands, Facts, Failure, Field, Figures } from '../ui/parts';
import { Scroll, Table, type Column } from '../ui/Table';

const KINDS: Record<string, ['' | 'good' | 'bad', string]> = { owner: ['good', '● owner'], standby: ['', '○ standby'], silent: ['bad', '▲ silent'] };

const nodeColumns = (cluster: State): Column<ClusterNode>[] => [
  {
    head: 'Node',
    cell: ({ number, name }) => (
      <>
        <b>{number}</b> <span className="mono">{visible(name)}</span> {number === cluster.this && <Badge>this page</Badge>}
      </>
    ),
  },
  { head: 'State', cell: ({ state }) => <Badge kind={KINDS[state]?.[0] ?? ''}>{KINDS[state]?.[1] ?? state}</Badge> },
  { head: 'Cells', cell: ({ number }) => cells(cluster).filter(({ owner }) => owner === number).map(({ cell }) => cell).join(', ') || 'none' },
  { head: 'Last beat', num: true, cell: ({ silent_ms: silent }) => `${count(silent)} ms ago` },
  { head: 'Version', cell: ({ version }) => version },
  {
    head: 'Addresses',
    phone: 'full',
    cell: ({ addresses }) => (
      <span className="mono">
        {Object.entries(addresses)
          .map(([protocol, address]) => `${protocol} ${String(address)}`)
          .join(', ')}
      </span>
    ),
  },
];

/** The cells; a cluster of one cell lists none. */
const cells = ({ cells: all = [], epoch, owner }: State): ClusterCell[] => (all.length > 0 ? all : [{ cell: 0, epoch, owner }]);

const cellColumns = (cluster: State): Column<ClusterCell>[] => [
  { head: 'Cell', cell: ({ cell }) => <b>{cell}</b> },
  { head: 'Owner', cell: ({ owner }) => (owner === null ? <Badge kind="bad">▲ none</Badge> : `node ${owner}`) },
  { head: 'Owners so far', num: true, cell: ({ epoch }) => count(epoch) },
  { head: 'Holds', phone: 'full', cell: ({ cell }) => (cell === 0 ? 'topics, groups, live topics, users, and virtual hosts that fall to it' : 'virtual hosts that fall to it') },
  { head: 'Does', phone: 'full', cell: (cell) => <Move cluster={cluster} cell={cell} /> },
];

function Move({ cluster, cell: { cell, owner } }: { cluster: State; cell: ClusterCell }) {
  const [target, setTarget] = useState('');
  const others = cluster.nodes.filter(({ number, state }) => number !== owner && state !== 'silent');
  return (
    <Action<ClusterMove>
      right="operate"
      label="Move"
      title={`Have another node own cell ${cell}`}
      confirm="Move the cell"
      disabled={others.length === 0}
      why={others.length === 0 ? 'No other node stands by' : undefined}
      call={() => ({ method: 'POST', path: api('cluster/move'), body: { json: { ...(cell === 0 ? {} : { cell }), ...(target ? { to: Number(target) } : {}) } } })}
      result={({ to }) => `${to == null ? 'Another node' : `Node ${to}`} takes the place of the owner.`}
    >
      <p>Connections to what the cell holds end, and clients connect again, which takes them about a second. Nothing that was acknowledged at sync is lost.</p>
      <Field label="To">
        <select value={target} onChange={(event) => setTarget(event.target.value)} data-focus>
          <option value="">any node that stands by</option>
          {others.map(({ number, name }) => (
            <option key={number} value={number}>
              {number} {name}
            </option>
          ))}
        </select>
      </Field>
    </Action>
  );
}

/** `isAlone` is true for a node without a cluster, which is not asked. */
export function Cluster({ isAlone }: { isAlone: boolean }) {
  const { data, error } = useLive<State>(isAlone ? null : '/v1/cluster', 3000);
  if (isAlone || (error instanceof Refusal && error.code === 'no_cluster')) return <Alone />;
  if (!data || error) return <Failure error={error} />;
  const { database, commits } = data;
  const silent = data.nodes.filter(({ state }) => state === 'silent').length;
  return (
    <>
      {data.problems.map((problem) => (
        <p key={problem} className="error" role="status">
          {visible(problem)}
        </p>
      ))}
      <Figures
        of={[
          { name: 'Nodes', value: count(data.nodes.length), more: silent > 0 ? `${count(silent)} silent` : 'all beat' },
          { name: 'Cells', value: count(cells(data).length) },
          { name: 'Lease', value: `${count(data.lease_ms)} ms`, more: 'without a beat, then another node owns' },
          { name: 'Commits', value: commits ? `${commits.p50_ms.toFixed(1)} ms` : '–', more: commits ? `99 of 100 within ${commits.p99_ms.toFixed(1)} ms` : 'none here yet' },
          { name: 'Stored', value: bytes(database?.stored_bytes), more: database ? `in PostgreSQL ${database.version}` : 'the database does not answer' },
        ]}
      />
      <section className="card">
        <header>
          <h2>Nodes</h2>
        </header>
        <Scroll>
          <Table caption="Nodes" columns={nodeColumns(data)} rows={data.nodes} keyOf={({ number }) => String(number)} />
        </Scroll>
      </section>
      <section className="card">
        <header>
          <h2>Cells</h2>
        </header>
        <Scroll>
          <Table caption="Cells" columns={cellColumns(data)} rows={cells(data)} keyOf={({ cell }) => String(cell)} />
        </Scroll>
      </section>
      <div className="grid">
        <section className="card">
          <header>
            <h2>Database</h2>
          </header>
          {database ? (
            <Facts
              rows={[
                ['A crash of its machine', database.is_crash_safe ? 'loses nothing' : <Badge key="c" kind="bad">▲ may lose commits</Badge>],
                ['Standbys that are waited for', visible(database.synchronous_standbys) || 'none: a fail-over may lose the last commits'],
                ...Object.entries(database.tables).map(([name, size]): [string, string] => [name, bytes(size)]),
              ]}
            />
          ) : (
            <p className="quiet">It does not answer.</p>
          )}
        </section>
        <Objects />
      </div>
    </>
  );
}

/** The object store against the database, on demand: it reads a list of all objects. */
function Objects() {
  const [found, setFound] = useState<ClusterObjects>();
  const [error, setError] = useState<unknown>();
  const [isAsked, setAsked] = useState(false);
  const look = () => {
    setAsked(true);
    setError(undefined);
    get<ClusterObjects>('/v1/cluster/objects')
      .then(setFound, setError)
      .finally(() => setAsked(false));
  };
  return (
    <section className="card">
      <header>
        <h2>Object store</h2>
        <button type="button" disabled={isAsked} onClick={look}>
          {isAsked ? 'Comparing…' : 'Compare with the database'}
        </button>
      </header>
      <Failure error={error} />
      {!found && !error && <p className="quiet">A comparison lists all objects; it is made on demand.</p>}
      {found && !found.is_set && <p>There is no object store: the database has everything.</p>}
      {found?.is_set && (
        <Facts
          rows={[
            ['There, and referred to', `${counted(found.objects, 'object')}, ${bytes(found.bytes)}`],
            ['Missing', found.missing === 0 ? 'none' : <Badge key="m" kind="bad">{`▲ ${counted(found.missing, 'object')}: ${found.missing_names.join(', ')}`}</Badge>],
            ['Wait for their deletion', `${count(found.garbage)}, ${bytes(found.garbage_bytes)}`],
            ['Not known to the database', `${count(found.unknown)}, ${bytes(found.unknown_bytes)}`],
          ]}
        />
      )}
    </section>
  );
}

const Alone = () => (
  <div className="empty">
    <p>
      <strong>This node is alone.</strong> Several nodes over one PostgreSQL stand by for each other: one owns the journal, and when it goes, another takes its place. The setting cluster.database makes one of them:
    </p>
    <Commands text={'export STAFETT_CLUSTER_DATABASE=postgres://postgres@127.0.0.1/stafett\nstafett serve --data-dir ./one\nstafett cluster status'} />
  </div>
);
