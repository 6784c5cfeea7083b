import type { GroupEntry } from '../../api/types';
import { count, short, visible } from '../../ui/format';
import { List, type Column } from '../../ui/List';
import { Badge, Commands, Head } from '../../ui/parts';
import { Link, to } from '../../ui/route';
import type { Hours } from '../../ui/Spark';

const KINDS: Record<string, string> = {
  classic: 'Its members assign the partitions',
  assigned: 'The broker assigns the partitions',
  share: 'Members share the records of a partition',
};

const COLUMNS: Column<GroupEntry>[] = [
  { head: 'Name', sort: 'name', cell: ({ name }) => <Link className="name" href={to(['groups', name])}>{visible(name)}</Link>, text: ({ name }) => name },
  { head: 'Lag', sort: 'lag', num: true, cell: ({ lag }) => <span title={count(lag)}>{short(lag)}</span>, text: ({ lag }) => lag },
  { head: 'Members', sort: 'members', num: true, cell: ({ members }) => count(members), text: ({ members }) => members },
  { head: 'State', cell: ({ state }) => <Badge kind={state === 'stable' ? 'good' : state === 'empty' ? '' : 'note'}>{state}</Badge>, text: ({ state }) => state },
  { head: 'Kind', phone: 'less', cell: ({ kind }) => <span title={KINDS[kind]}>{kind}</span>, text: ({ kind }) => kind },
  { head: 'Partitions', phone: 'less', sort: 'partitions', num: true, cell: ({ partitions }) => count(partitions), text: ({ partitions }) => partitions },
  {
    head: 'Topics',
    phone: 'full',
    cell: ({ topics }) =>
      topics.slice(0, 5).map((name, index) => (
        <span key={name}>
          {index > 0 && ', '}
          <Link href={to(['topics', name])}>{visible(name)}</Link>
        </span>
      )),
    text: ({ topics }) => topics.join(' '),
  },
];

const HOURS: Hours<GroupEntry> = {
  of: ({ name }) => `group:${name}`,
  names: ['lag'],
  format: short,
  href: ({ name }) => to(['groups', name], { range: '60' }),
};

export const Groups = () => (
  <>
    <Head title="Groups" />
    <List<GroupEntry>
      path="groups"
      columns={COLUMNS}
      keyOf={({ name }) => name}
      noun="groups"
      openAt={(name) => to(['groups', name])}
      sortDefault="-lag"
      hours={HOURS}
      filters={[
        { name: 'state', label: 'Without members', value: 'empty' },
        { name: 'kind', label: 'Share groups', value: 'share' },
      ]}
      empty={
        <>
          <p>
            <strong>There is no group yet.</strong> A group of consumers reads topics together and keeps its place in each partition. Lag is how far that is behind the end. A consumer with a group makes one:
          </p>
          <Commands text="stafett consume clicks --group dashboards" />
        </>
      }
    />
  </>
);
