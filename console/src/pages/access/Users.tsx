import { useState } from 'react';
import { api, seg } from '../../api/http';
import { useCaller } from '../../api/session';
import type { User as State, UserSettings } from '../../api/types';
import { Action } from '../../ui/Action';
import { visible } from '../../ui/format';
import { List, type Column } from '../../ui/List';
import { Badge, Commands, Field, Head, Tabs, useTab } from '../../ui/parts';
import { go, Link, to } from '../../ui/route';
import { AddRule, Boxes } from './RuleForm';
import { Rules } from './Rules';
import { MakeToken, Tokens } from './Tokens';

export const userUrl = (name: string): string => api(`users/${seg(name)}`);

/** Tags with a meaning. */
export const TAGS: [string, string][] = [
  ['superuser', 'may do everything; no rule forbids it anything'],
  ['administrator', 'everything on the cluster, namespaces, users and tokens; sees all but contents'],
  ['monitoring', 'sees all but contents'],
  ['management', 'uses the management API within its permissions'],
  ['policymaker', 'uses the management API within its permissions'],
];

const isAdministrator = (tags: string[]): boolean => tags.includes('superuser') || tags.includes('administrator');

const VERIFIERS: Record<string, string> = { scram_sha256: 'SCRAM-SHA-256', scram_sha512: 'SCRAM-SHA-512', salted_hash: 'a hash of RabbitMQ' };
export const passwordOf = ({ verifiers }: State): string => verifiers.map((name) => VERIFIERS[name] ?? name).join(', ') || 'no password: a certificate or tokens only';

const COLUMNS: Column<State>[] = [
  { head: 'Name', sort: 'name', cell: ({ name }) => <Link className="name" href={to(['users', name])}>{visible(name)}</Link>, text: ({ name }) => name },
  { head: 'Tags', cell: ({ tags }) => (tags.length === 0 ? <span className="quiet">none</span> : tags.map((tag) => <Badge key={tag}>{visible(tag)}</Badge>)), text: ({ tags }) => tags.join(' ') },
  { head: 'Password', phone: 'full', cell: (user) => passwordOf(user), text: ({ verifiers }) => verifiers.join(' ') },
];

export function Users() {
  const tab = useTab('users');
  return (
    <>
      <Head title="Users and rules">
        {tab === 'users' && <CreateUser />}
        {tab === 'tokens' && <MakeToken />}
        {tab === 'rules' && <AddRule />}
      </Head>
      <Open />
      <Tabs
        of={[
          ['users', 'Users'],
          ['tokens', 'Tokens'],
          ['rules', 'Rules'],
        ]}
      />
      {tab === 'users' && (
        <List<State>
          path="users"
          columns={COLUMNS}
          keyOf={({ name }) => name}
          noun="users"
          empty={
            <>
              <p>
                <strong>There is no user.</strong> Every client of this machine may do everything, without a login. That ends with the first user that is an administrator; make it above, or by a program:
              </p>
              <Commands text="stafett user add root --tag superuser" />
            </>
          }
        />
      )}
      {tab === 'tokens' && <Tokens />}
      {tab === 'rules' && <Rules />}
    </>
  );
}

/** While the broker is open, rules and users have no effect yet. */
function Open() {
  if (useCaller()?.how !== 'open') return null;
  return (
    <p className="hint">
      No login is needed, and rules have no effect yet: there is no administrator. The first user with the tag <code>superuser</code> or <code>administrator</code> changes that at once.
    </p>
  );
}

/** The warning before the first administrator is made. */
export function Closes({ tags }: { tags: string[] }) {
  if (useCaller()?.how !== 'open' || !isAdministrator(tags)) return null;
  return (
    <p className="hint">
      <b>This closes the broker.</b> From then on all clients of all protocols have to log in, this page too, and users other than superusers may do only what a rule permits. Clients that are connected without a login are refused.
    </p>
  );
}

function CreateUser() {
  const [name, setName] = useState('');
  const [password, setPassword] = useState('');
  const [tags, setTags] = useState<string[]>([]);
  const call = () => {
    const json: UserSettings = { tags };
    if (password) json.password = password;
    return { method: 'PUT', path: userUrl(name), body: { json } };
  };
  return (
    <Action<State> right="administer" label="Create a user" className="main" title="Create a user" confirm="Create" incomplete={name === ''} call={call} after={() => go(to(['users', name]))}>
      <Field label="Name">
        <input value={name} onChange={(event) => setName(event.target.value)} required autoFocus data-focus autoComplete="off" autoCapitalize="none" spellCheck={false} />
      </Field>
      <Field label="Password" help="Empty: it logs in with a certificate or a token only. A verifier is kept, never the password">
        <input type="password" value={password} onChange={(event) => setPassword(event.target.value)} autoComplete="new-password" />
      </Field>
      <TagBoxes tags={tags} set={setTags} />
      <Closes tags={tags} />
      {!isAdministrator(tags) && <p className="quiet">It may log in, and nothing more until a rule permits it.</p>}
    </Action>
  );
}

export function TagBoxes({ tags, set }: { tags: string[]; set: (tags: string[]) => void }) {
  const known = TAGS.map(([tag]) => tag);
  const own = tags.filter((tag) => !known.includes(tag));
  const [text, setText] = useState(own.join(' '));
  return (
    <>
      <Boxes legend="Tags" words={TAGS} chosen={tags} set={set} />
      <Field label="Own tags" help="For rules of users with a tag; spaces between them">
        <input
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            set([...tags.filter((tag) => known.includes(tag)), ...event.target.value.split(/\s+/).filter(Boolean)]);
          }}
          spellCheck={false}
        />
      </Field>
    </>
  );
}
