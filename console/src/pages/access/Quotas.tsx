// Rates of users and clients, and limits of the number of things of namespaces and users.
import { useState } from 'react';
import { api } from '../../api/http';
import type { RateQuota } from '../../api/types';
import { Action } from '../../ui/Action';
import { byteRate, bytes, bytesOf, visible } from '../../ui/format';
import { List, type Column } from '../../ui/List';
import { Commands, Field, Head, Tabs, useTab } from '../../ui/parts';
import { Link, to } from '../../ui/route';
import { Limits, SetLimits } from './Limits';

const PATH = api('quotas');
/** Name of those without a quota of their own. */
const OTHERS = '*';

const COLUMNS: Column<RateQuota>[] = [
  { head: 'User', cell: ({ user }) => <Who of={user} word="user" link />, text: ({ user }) => user ?? '' },
  { head: 'Client', cell: ({ client }) => <Who of={client} word="client" />, text: ({ client }) => client ?? '' },
  { head: 'Produces', num: true, cell: ({ produced_bytes_per_second: n }) => <Rate of={n} />, text: ({ produced_bytes_per_second: n }) => n ?? null },
  { head: 'Fetches', num: true, cell: ({ fetched_bytes_per_second: n }) => <Rate of={n} />, text: ({ fetched_bytes_per_second: n }) => n ?? null },
  { head: 'Requests', num: true, cell: ({ requests_per_second: n }) => (n == null ? '–' : `${n}/s`), text: ({ requests_per_second: n }) => n ?? null },
  {
    head: 'Does',
    phone: 'full',
    cell: (quota) => (
      <span className="row">
        <SetQuota before={quota} />
        <Remove quota={quota} />
      </span>
    ),
  },
];

function Who({ of: name, word, link }: { of: string | null | undefined; word: string; link?: boolean }) {
  if (name == null) return <span className="quiet">any</span>;
  if (name === OTHERS) return <b>every other {word}, each</b>;
  return link ? <Link className="name" href={to(['users', name])}>{visible(name)}</Link> : <b>{visible(name)}</b>;
}

const Rate = ({ of: rate }: { of: number | null | undefined }) => (rate == null ? <span className="quiet">unlimited</span> : byteRate(rate));

const nameOf = ({ user, client }: RateQuota): string => [user != null && `user ${visible(user)}`, client != null && `client ${visible(client)}`].filter(Boolean).join(', ');

export function Quotas() {
  const tab = useTab('quotas');
  return (
    <>
      <Head title="Quotas and limits">{tab === 'quotas' ? <SetQuota /> : <SetLimits />}</Head>
      <Tabs
        of={[
          ['quotas', 'Quotas'],
          ['limits', 'Limits'],
        ]}
      />
      {tab === 'quotas' ? (
        <List<RateQuota>
          path="quotas"
          columns={COLUMNS}
          keyOf={({ user, client }) => JSON.stringify([user, client])}
          noun="quotas"
          empty={
            <>
              <p>
                <strong>There is no quota.</strong> Users and clients produce and fetch as fast as the broker does it. A quota is a rate in bytes per second, over Kafka&apos;s protocol and HTTP, shared by all connections of a user. Set one above, or by a program:
              </p>
              <Commands text="stafett quota set --user ann --produced 1MiB --fetched 10MiB" />
            </>
          }
        />
      ) : (
        <Limits />
      )}
    </>
  );
}

interface Form {
  user: string;
  client: string;
  produced: string;
  fetched: string;
}

const textOf = (rate: number | null | undefined): string => (rate == null ? '' : bytes(rate).replace(/,/g, ''));
const formOf = (quota: RateQuota): Form => ({
  user: quota.user ?? '',
  client: quota.client ?? '',
  produced: textOf(quota.produced_bytes_per_second),
  fetched: textOf(quota.fetched_bytes_per_second),
});

function SetQuota({ before }: { before?: RateQuota }) {
  const [form, setForm] = useState<Form>(() => formOf(before ?? {}));
  const change = (name: keyof Form) => (event: { target: { value: string } }) => setForm({ ...form, [name]: event.target.value });
  /** A rate that was not touched stays exactly as it is: its text is rounded. */
  const rate = (name: 'produced' | 'fetched'): number | null => {
    const old = before?.[`${name}_bytes_per_second`];
    return form[name] === textOf(old) ? (old ?? null) : (bytesOf(form[name]) ?? null);
  };
  const json: RateQuota = { produced_bytes_per_second: rate('produced'), fetched_bytes_per_second: rate('fetched') };
  // Set by programs; it stays.
  if (before?.requests_per_second != null) json.requests_per_second = before.requests_per_second;
  if (form.user) json.user = form.user;
  if (form.client) json.client = form.client;
  const isRead = (text: string) => text === '' || (bytesOf(text) ?? 0) > 0;
  const incomplete = (!form.user && !form.client) || !isRead(form.produced) || !isRead(form.fetched) || (!form.produced && !form.fetched && json.requests_per_second == null);
  return (
    <Action<RateQuota>
      label={before ? 'Change' : 'Set a quota'}
      className={before ? '' : 'main'}
      title={before ? `Quota of ${nameOf(before)}` : 'Set a quota'}
      confirm="Set the quota"
      incomplete={incomplete}
      onOpen={() => setForm(formOf(before ?? {}))}
      call={() => ({ method: 'PUT', path: PATH, body: { json } })}
    >
      <p className="quiet">A quota of a user and a client counts before one of the user, and that before one of the client. The name * is every one without a quota of its own.</p>
      {!before && (
        <div className="form two">
          <Field label="User" help="Empty: any">
            <input value={form.user} onChange={change('user')} autoFocus data-focus autoComplete="off" autoCapitalize="none" spellCheck={false} />
          </Field>
          <Field label="Client" help="Client id of Kafka's clients, or Stafett-Client; empty: any">
            <input value={form.client} onChange={change('client')} autoComplete="off" autoCapitalize="none" spellCheck={false} />
          </Field>
        </div>
      )}
      <div className="form two">
        <Field label="Produces at most" help="Per second, such as 10 MiB; empty: unlimited">
          <input value={form.produced} onChange={change('produced')} aria-invalid={!isRead(form.produced)} spellCheck={false} />
        </Field>
        <Field label="Fetches at most" help="Per second; empty: unlimited">
          <input value={form.fetched} onChange={change('fetched')} aria-invalid={!isRead(form.fetched)} spellCheck={false} />
        </Field>
      </div>
    </Action>
  );
}

function Remove({ quota: { user, client } }: { quota: RateQuota }) {
  return (
    <Action<RateQuota> label="Remove" destroys title={`Remove the quota of ${nameOf({ user, client })}`} confirm="Remove the quota" call={() => ({ method: 'PUT', path: PATH, body: { json: { user: user ?? undefined, client: client ?? undefined } } })}>
      <p>The next quota in order counts instead, if there is one; otherwise the rates are unlimited. It holds at once.</p>
    </Action>
  );
}
