// Runs that wait, in their order, and their conditions.
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { request, seg } from '../api/http';
import { visible } from '../ui/format';
import { Badge, Failure, Head, Time } from '../ui/parts';
import { Link, to } from '../ui/route';
import { Table, type Column } from '../ui/Table';
import { lab, usePolled, type Waiting } from './api';
import { iso } from './Runs';

const PATH = lab('queue');

export function QueuePage() {
  const found = usePolled<{ items: Waiting[] }>(PATH);
  const client = useQueryClient();
  const [refused, setRefused] = useState<unknown>();
  const items = found.data?.items ?? [];
  const ids = items.map(({ id }) => id);
  const order = (next: string[]) => {
    setRefused(undefined);
    request<{ items: Waiting[] }>('PUT', PATH, { json: { ids: next } }).then((answer) => client.setQueryData([PATH], answer), setRefused);
  };
  const drop = (id: string) => {
    setRefused(undefined);
    request('DELETE', lab(`runs/${seg(id)}`)).then(() => client.invalidateQueries(), setRefused);
  };
  const moved = (id: string, by: number): string[] => {
    const rest = ids.filter((it) => it !== id);
    rest.splice(ids.indexOf(id) + by, 0, id);
    return rest;
  };
  const columns: Column<Waiting>[] = [
    { head: 'Place', num: true, cell: ({ id }) => ids.indexOf(id) + 1 },
    { head: 'Run', phone: 'full', cell: ({ id }) => <Link href={to(['runs', id])}>{id}</Link> },
    { head: 'Experiment', cell: ({ experiment }) => <Link href={to(['experiments', experiment])}>{visible(experiment)}</Link> },
    { head: 'Waits for', phone: 'full', cell: (item) => <Conditions item={item} ids={ids} /> },
    { head: 'Asked', cell: ({ asked_at: at }) => <Time at={iso(at)} /> },
    {
      head: 'Does',
      phone: 'full',
      cell: ({ id }) => (
        <span className="row">
          <button type="button" disabled={ids[0] === id} aria-label={`Earlier: ${id}`} onClick={() => order(moved(id, -1))}>
            ↑
          </button>
          <button type="button" disabled={ids.at(-1) === id} aria-label={`Later: ${id}`} onClick={() => order(moved(id, 1))}>
            ↓
          </button>
          <button type="button" className="destroy" aria-label={`Do not run ${id}`} onClick={() => drop(id)}>
            Do not run
          </button>
        </span>
      ),
    },
  ];
  return (
    <>
      <Head title="Queue">
        <Link className="button" href={to(['experiments'])}>
          Choose an experiment
        </Link>
      </Head>
      <Failure error={found.error ?? refused} />
      {items.length > 0 && <Table caption="Runs that wait" columns={columns} rows={items} keyOf={({ id }) => id} />}
      {found.data && items.length === 0 && <div className="empty">No run waits. One run is under way at a time; others wait here, for their turn, a time, or the end of another run.</div>}
    </>
  );
}

function Conditions({ item: { not_before: time, after }, ids }: { item: Waiting; ids: string[] }) {
  const isLate = time !== null && time > Date.now();
  return (
    <span className="badges">
      {isLate && (
        <Badge kind="note">
          not before <Time at={iso(time)} />
        </Badge>
      )}
      {after && <Badge kind={ids.includes(after) ? 'note' : ''}>after {after}</Badge>}
      {!isLate && !after && <span className="quiet">its turn</span>}
    </span>
  );
}
