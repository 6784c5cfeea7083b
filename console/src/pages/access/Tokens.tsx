import { useState } from 'react';
import { api, seg } from '../../api/http';
import type { MadeToken, Token, WantedToken } from '../../api/types';
import { Action } from '../../ui/Action';
import { visible } from '../../ui/format';
import { List, type Column } from '../../ui/List';
import { Commands, Field, Time } from '../../ui/parts';
import { Link, to } from '../../ui/route';

const DAY_MS = 86_400_000;

const COLUMNS: Column<Token>[] = [
  { head: 'Token', cell: ({ id }) => <span className="mono">{id}</span>, text: ({ id }) => id },
  { head: 'User', cell: ({ user }) => <Link href={to(['users', user])}>{visible(user)}</Link>, text: ({ user }) => user },
  { head: 'For', cell: ({ description }) => visible(description) || '–', text: ({ description }) => description },
  { head: 'Until', cell: ({ expires }) => (expires === null ? 'it is revoked' : <Time at={expires} />), text: ({ expires }) => expires },
  { head: 'Does', phone: 'full', cell: (token) => <Revoke token={token} /> },
];

export const Tokens = ({ user }: { user?: string }) => (
  <List<Token>
    path="tokens"
    query={{ q: user }}
    prefix={user === undefined ? '' : 'tk.'}
    columns={COLUMNS}
    keyOf={({ id }) => id}
    noun="tokens"
    empty={
      <p>
        <strong>There is no token.</strong> A token stands for its user in a program: <code>Authorization: Bearer …</code> over HTTP. It can be revoked without a change of the password.
      </p>
    }
  />
);

function Revoke({ token }: { token: Token }) {
  return (
    <Action<Token> right="administer" label="Revoke" destroys title={`Revoke a token of ${visible(token.user)}`} confirm="Revoke the token" call={() => ({ method: 'DELETE', path: api(`tokens/${seg(token.id)}`) })}>
      <p>
        Programs that use it{token.description && ` (${visible(token.description)})`} are refused from then on, and their streams and web sockets end at once. This cannot be taken back; a new token has another text.
      </p>
    </Action>
  );
}

/** A new token; its text is shown once. */
export function MakeToken({ user: known }: { user?: string }) {
  const [user, setUser] = useState(known ?? '');
  const [description, setDescription] = useState('');
  const [days, setDays] = useState('90');
  const call = () => {
    const json: WantedToken = { user, description };
    if (days) json.ttl_ms = Number(days) * DAY_MS;
    return { method: 'POST', path: api('tokens'), body: { json } };
  };
  return (
    <Action<MadeToken>
      right="administer"
      label="Make a token"
      className={known === undefined ? 'main' : ''}
      title={known === undefined ? 'Make a token' : `Make a token of ${visible(known)}`}
      confirm="Make the token"
      incomplete={user === ''}
      call={call}
      result={({ token }) => (
        <>
          <p>
            <b>This is shown once.</b> The broker keeps a hash of it.
          </p>
          <Commands text={token} />
        </>
      )}
    >
      {known === undefined && (
        <Field label="User">
          <input value={user} onChange={(event) => setUser(event.target.value)} required autoFocus data-focus autoComplete="off" spellCheck={false} />
        </Field>
      )}
      <Field label="For" help="The program that will use it">
        <input value={description} onChange={(event) => setDescription(event.target.value)} autoFocus={known !== undefined} />
      </Field>
      <Field label="Days" help="Empty: until it is revoked">
        <input type="number" min="1" value={days} onChange={(event) => setDays(event.target.value)} />
      </Field>
    </Action>
  );
}
