// One client of live topics with its subscriptions, and one topic with its clients and the patterns that match it.
import { useOnce, useLive } from '../api/live';
import { api, seg } from '../api/http';
import type { LiveClient as Client, LiveSubscriptions, LiveTopicShown } from '../api/types';
import { Action } from '../ui/Action';
import { count, counted, visible } from '../ui/format';
import { Badge, Failure, Figures, Head } from '../ui/parts';
import { go, Link, to, useParam } from '../ui/route';

export const liveClientAt = ({ client, number }: Pick<Client, 'client' | 'number'>): string => to(['live', 'clients', client], { number: number ? 'true' : undefined });
export const liveTopicAt = (name: string): string => to(['live', 'topics', name]);

const TRAIL: [string, string] = ['Live topics', to(['live'])];

export function LiveClient({ id }: { id: string }) {
  const [number] = useParam('number');
  const path = `live/clients/${seg(id)}`;
  const { data, error } = useLive<Client>(api(path, { number }), 3000);
  const found = useOnce<LiveSubscriptions>(data ? api(`${path}/subscriptions`, { number, count: 500 }) : null);
  if (!data || error) {
    return (
      <>
        <Head title={visible(id)} trail={TRAIL} />
        <Failure error={error} />
      </>
    );
  }
  const subscriptions = [...(found.data?.topics ?? []).map((name) => ({ name, isPattern: false })), ...(found.data?.patterns ?? []).map((name) => ({ name, isPattern: true }))];
  return (
    <>
      <Head title={visible(id)} trail={TRAIL} badges={data.listening ? <Badge kind="good">● listening</Badge> : <Badge>not listening</Badge>}>
        <Action<Client> label="End" destroys title={`End the client ${visible(id)}`} confirm="End its listening and subscriptions" call={() => ({ method: 'DELETE', path: api(path, { number }) })} after={() => go(to(['live']))}>
          <p>
            Its connection for live topics ends, and <b>{counted(data.subscriptions, 'subscription')}</b> are forgotten. It can listen and subscribe again.
          </p>
        </Action>
      </Head>
      <Figures of={[{ name: 'Subscriptions', value: count(data.subscriptions) }]} />
      <Failure error={found.error} />
      <section className="card">
        <header>
          <h2>Subscriptions</h2>
        </header>
        {found.data && subscriptions.length === 0 && <p className="quiet">None: it listens, and hears nothing.</p>}
        <ul className="plain-list">
          {subscriptions.map(({ name, isPattern }) => (
            <li key={`${isPattern} ${name}`}>{isPattern ? <>{visible(name)} <Badge>pattern</Badge></> : <Link href={liveTopicAt(name)}>{visible(name)}</Link>}</li>
          ))}
        </ul>
        {found.data?.next && <p className="quiet">The first {count(subscriptions.length)} are shown.</p>}
      </section>
    </>
  );
}

export function LiveTopic({ name }: { name: string }) {
  const { data, error } = useLive<LiveTopicShown>(api(`live/topics/${seg(name)}`, { count: 200 }), 3000);
  return (
    <>
      <Head title={visible(name)} trail={TRAIL}>
        <Link className="button" href={to(['live'], { topic: name })}>
          Try it
        </Link>
      </Head>
      <Failure error={error} />
      {data && (
        <>
          <Figures
            of={[
              { name: 'Subscribers', value: count(data.subscribers), more: 'by its name' },
              { name: 'Listening', value: count(data.listening), more: 'of them' },
              { name: 'Patterns', value: count(data.patterns.length), more: 'that match' },
            ]}
          />
          <div className="grid">
            <section className="card">
              <header>
                <h2>Subscribers</h2>
              </header>
              {data.clients.length === 0 && <p className="quiet">None by this name. Publishing reaches those whose patterns match.</p>}
              <ul className="bars">
                {data.clients.map((client) => (
                  <li key={client.client}>
                    <Link className="name" href={liveClientAt(client)}>
                      {visible(client.client)}
                    </Link>
                    <span className="quiet small">{client.listening ? 'listening' : ''}</span>
                  </li>
                ))}
              </ul>
              {data.next && <p className="quiet">The first {count(data.clients.length)} are shown.</p>}
            </section>
            <section className="card">
              <header>
                <h2>Patterns that match</h2>
              </header>
              {data.patterns.length === 0 && <p className="quiet">None.</p>}
              <ul className="bars">
                {data.patterns.map(({ pattern, subscribers }) => (
                  <li key={pattern}>
                    <span className="name">{visible(pattern)}</span>
                    <span className="num">{count(subscribers)}</span>
                  </li>
                ))}
              </ul>
            </section>
          </div>
        </>
      )}
    </>
  );
}
