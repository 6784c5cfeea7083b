import type { AccessRule } from '../../api/types';
import { api } from '../../api/http';
import { Action } from '../../ui/Action';
import { visible } from '../../ui/format';
import { List, type Column } from '../../ui/List';
import { Badge } from '../../ui/parts';
import { Link, to } from '../../ui/route';
import { ChangeRule } from './RuleForm';
import { keyOf, NAMESPACED, sentence } from './rule';

export const RULES = api('rules');

const Who = ({ who }: { who: string }) =>
  who.startsWith('user:') ? (
    <Link className="name" href={to(['users', who.slice(5)])}>
      {visible(who.slice(5))}
    </Link>
  ) : (
    <b>{who === 'everyone' ? 'everyone' : `tag ${visible(who.slice(5))}`}</b>
  );

const words = (all: string[]) => all.map((word) => word.replaceAll('_', ' ')).join(', ');

const WHO: Column<AccessRule> = { head: 'For', cell: ({ who }) => <Who who={who} />, text: ({ who }) => who };

const COLUMNS: Column<AccessRule>[] = [
  { head: 'Effect', cell: ({ deny }) => <Badge kind={deny ? 'bad' : 'good'}>{deny ? '✕ forbids' : '✓ permits'}</Badge>, text: ({ deny }) => (deny ? 'deny' : 'allow') },
  { head: 'Actions', cell: ({ actions }) => words(actions), text: ({ actions }) => actions.join(' ') },
  { head: 'On', cell: ({ on }) => words(on), text: ({ on }) => on.join(' ') },
  { head: 'Names', cell: (rule) => <Names of={rule} />, text: ({ name, prefix, pattern }) => name ?? prefix ?? pattern ?? '' },
  { head: 'Namespace', cell: ({ namespace, on }) => (namespace == null ? <span className="quiet">{on.some((kind) => NAMESPACED.includes(kind)) ? 'all' : '–'}</span> : visible(namespace)), text: ({ namespace }) => namespace ?? '' },
  { head: 'From', phone: 'less', cell: ({ host }) => host ?? <span className="quiet">anywhere</span>, text: ({ host }) => host ?? '' },
  {
    head: 'Does',
    phone: 'full',
    cell: (rule) => (
      <span className="row">
        <ChangeRule rule={rule} />
        <Remove rule={rule} />
      </span>
    ),
  },
];

function Names({ of: { name, prefix, pattern } }: { of: AccessRule }) {
  if (name != null) return <span className="mono">{visible(name)}</span>;
  if (pattern != null) return <span className="mono">/{visible(pattern)}/</span>;
  return prefix ? <span className="mono">{visible(prefix)}…</span> : <span className="quiet">all</span>;
}

function Remove({ rule }: { rule: AccessRule }) {
  return (
    <Action<AccessRule> right="administer" label="Remove" destroys title="Remove a rule" confirm="Remove the rule" call={() => ({ method: 'DELETE', path: RULES, body: { json: rule } })}>
      <p>
        <b>{visible(sentence(rule))}</b>
      </p>
      <p>{rule.deny ? 'Without it, what other rules permit is permitted again.' : 'Without it, that is refused unless another rule permits it. It holds at once, on open connections too: consumers that need it end.'}</p>
    </Action>
  );
}

/** Rules, all or of one subject. */
export function Rules({ who, prefix }: { who?: string; prefix?: string }) {
  return (
    <List<AccessRule>
      path="rules"
      query={{ who }}
      prefix={prefix}
      search={who === undefined}
      columns={who === undefined ? [WHO, ...COLUMNS] : COLUMNS}
      keyOf={keyOf}
      noun="rules"
      empty={
        who === undefined ? (
          <p>
            <strong>There is no rule.</strong> While no user is an administrator, everything is permitted. From then on, a user may do what a rule permits, and nothing else; a rule that forbids goes before all that permit.
          </p>
        ) : (
          <p>There is no rule for {who === 'everyone' ? 'everyone' : visible(who.replace('role:', 'the tag ').replace('user:', ''))}.</p>
        )
      }
    />
  );
}
