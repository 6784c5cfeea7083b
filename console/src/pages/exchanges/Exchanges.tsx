import { useState } from 'react';
import { useLive } from '../../api/live';
import { api, request, seg } from '../../api/http';
import type { Exchange as State, ExchangeDeletion, NewExchange, Publication, Routed } from '../../api/types';
import { Action } from '../../ui/Action';
import { Charts, Ranges, type Drawn, type Series } from '../../ui/Chart';
import { count, counted, rate, short, visible } from '../../ui/format';
import { List, type Column } from '../../ui/List';
import { exchangeAt, queueAt } from '../../ui/pages';
import { Badge, Failure, Field, Figures, Head } from '../../ui/parts';
import { go, Link, to } from '../../ui/route';
import type { Hours } from '../../ui/Spark';
import { contentOf, headersOf } from '../queues/Send';
import { Bindings } from './Bindings';

const DEFAULT = '(default)';
const shownName = (name: string): string => (name === '' ? DEFAULT : visible(name));
const space = (namespace: string) => ({ namespace: namespace === '/' ? undefined : namespace });

const COLUMNS: Column<State>[] = [
  {
    head: 'Name',
    sort: 'name',
    cell: (exchange) => (
      <>
        <Link className="name" href={exchangeAt(exchange.namespace, exchange.name)}>
          {shownName(exchange.name)}
        </Link>{' '}
        {exchange.namespace !== '/' && <Badge>in {visible(exchange.namespace)}</Badge>}
        {exchange.internal && <Badge>internal</Badge>}
        {exchange.delays && <Badge>delays</Badge>}
      </>
    ),
    text: ({ name }) => name,
  },
  { head: 'Kind', cell: ({ kind }) => kind, text: ({ kind }) => kind },
  { head: 'Bindings', sort: 'bindings', num: true, cell: ({ bindings }) => count(bindings), text: ({ bindings }) => bindings },
  { head: 'In', num: true, cell: ({ rates }) => rate(rates.published), text: ({ rates }) => rates.published },
  { head: 'Routed', num: true, cell: ({ rates }) => rate(rates.routed), text: ({ rates }) => rates.routed },
  { head: 'Nowhere', num: true, cell: ({ rates, counters }) => <span title={`${count(counters.unroutable)} since the start`}>{rate(rates.unroutable)}</span>, text: ({ rates }) => rates.unroutable },
];

const HOURS: Hours<State> = {
  of: ({ name }) => `exchange:${name}`,
  namespace: ({ namespace }) => namespace,
  names: ['published_rate', 'unroutable_rate'],
  format: rate,
  href: ({ namespace, name }) => `${exchangeAt(namespace, name)}?range=60`,
};

export const Exchanges = () => (
  <>
    <Head title="Exchanges">
      <Create />
    </Head>
    <List<State>
      path="exchanges"
      columns={COLUMNS}
      keyOf={({ namespace, name }) => `${namespace} ${name}`}
      noun="exchanges"
      openAt={(name) => exchangeAt('/', name)}
      hours={HOURS}
      empty={<p>There is no exchange.</p>}
    />
  </>
);

function Create() {
  const [name, setName] = useState('');
  const [kind, setKind] = useState('topic');
  const [alternate, setAlternate] = useState('');
  const call = () => {
    const json = { kind, ...(alternate ? { alternate } : {}) } as NewExchange;
    return { method: 'PUT', path: api(`exchanges/${seg(name)}`), body: { json } };
  };
  return (
    <Action<State> label="Create an exchange" className="main" title="Create an exchange" confirm="Create" incomplete={name === ''} call={call} after={({ namespace }) => go(exchangeAt(namespace, name))}>
      <Field label="Name">
        <input value={name} onChange={(event) => setName(event.target.value)} autoFocus data-focus required maxLength={255} spellCheck={false} />
      </Field>
      <Field label="Kind">
        <select value={kind} onChange={(event) => setKind(event.target.value)}>
          <option value="topic">topic: keys by patterns with * and #</option>
          <option value="direct">direct: keys that are equal</option>
          <option value="fan-out">fan-out: every binding</option>
          <option value="headers">headers: by headers of the message</option>
        </select>
      </Field>
      <Field label="Alternate exchange" help="Gets what no binding takes">
        <input value={alternate} onChange={(event) => setAlternate(event.target.value)} spellCheck={false} />
      </Field>
    </Action>
  );
}

const RATES: Series[] = [
  { name: 'published_rate', label: 'Published' },
  { name: 'routed_rate', label: 'Routed' },
  { name: 'unroutable_rate', label: 'Nowhere' },
];

const CHARTS: Drawn[] = [{ title: 'Messages per second', series: RATES, format: rate }];

export function Exchange({ namespace, name: shown }: { namespace: string; name: string }) {
  const name = shown === DEFAULT ? '' : shown;
  // The default exchange has no name that a path can have: the list has it.
  const path = name === '' ? api('exchanges', { ...space(namespace), count: 1 }) : api(`exchanges/${seg(name)}`, space(namespace));
  const found = useLive<State | { items: State[] }>(path);
  const exchange = found.data && 'items' in found.data ? found.data.items[0] : found.data;
  if (!exchange || found.error) {
    return (
      <>
        <Head title={shownName(name)} trail={['Exchanges', to(['exchanges'])]} />
        <Failure error={found.error} />
      </>
    );
  }
  const isOwn = name === '' || name.startsWith('amq.');
  return (
    <>
      <Head
        title={shownName(name)}
        trail={['Exchanges', to(['exchanges'])]}
        badges={
          <>
            <Badge>{exchange.kind}</Badge>
            {exchange.durable && <Badge>durable</Badge>}
            {exchange.internal && <Badge>internal</Badge>}
            {exchange.auto_delete && <Badge>auto-delete</Badge>}
            {exchange.alternate && <Badge>else to {visible(exchange.alternate)}</Badge>}
          </>
        }
      >
        <Action<ExchangeDeletion>
          label="Delete"
          destroys
          disabled={isOwn}
          why={isOwn ? 'It is always there' : undefined}
          title={`Delete ${shownName(name)}`}
          confirm="Delete the exchange"
          call={() => ({ method: 'DELETE', path: api(`exchanges/${seg(name)}`, space(namespace)) })}
          after={() => go(to(['exchanges']))}
        >
          <p>
            It goes with <b>{counted(exchange.bindings, 'binding')}</b> from it, and those to it. Queues and their messages stay; what is published to it is refused from then on.
          </p>
        </Action>
      </Head>
      <Figures
        of={[
          { name: 'Bindings', value: count(exchange.bindings) },
          { name: 'Published', value: rate(exchange.rates.published), more: `${short(exchange.counters.published)} in all` },
          { name: 'Routed', value: rate(exchange.rates.routed), more: `${short(exchange.counters.routed)} in all` },
          { name: 'Nowhere', value: rate(exchange.rates.unroutable), more: `${short(exchange.counters.unroutable)} in all` },
        ]}
      />
      {name !== '' && <TryOut exchange={exchange} />}
      {name === '' ? (
        <div className="empty">Every queue is bound to it by its name: a message with the key "orders" goes to the queue orders.</div>
      ) : (
        <>
          <h2 className="above">Bindings from it</h2>
          <Bindings namespace={namespace} source={name} />
          <h2 className="above">Bindings to it</h2>
          <Bindings namespace={namespace} exchange={name} />
        </>
      )}
      <div className="row between above">
        <h2>History</h2>
        <Ranges />
      </div>
      <Charts of={`exchange:${name}`} namespace={namespace} charts={CHARTS} />
    </>
  );
}

/** Where a message would go, with nothing stored; and the same, published. */
function TryOut({ exchange }: { exchange: State }) {
  const [key, setKey] = useState('');
  const [headers, setHeaders] = useState('');
  const [content, setContent] = useState('');
  const [routed, setRouted] = useState<Routed>();
  const [error, setError] = useState<unknown>();
  const path = (verb: string) => api(`exchanges/${seg(exchange.name)}/${verb}`, space(exchange.namespace));
  const body = (): Publication => {
    const json: Publication = { routing_key: key };
    const given = headersOf(headers);
    if (given) json.headers = given;
    return json;
  };
  const ask = () => {
    setError(undefined);
    setRouted(undefined);
    request<Routed>('POST', path('route'), { json: body() }).then(setRouted, setError);
  };
  return (
    <section className="card" aria-label="Try a route">
      <header>
        <h2>Where would it go?</h2>
        <span className="quiet small">Nothing is stored.</span>
      </header>
      <form
        className="form two"
        onSubmit={(event) => {
          event.preventDefault();
          ask();
        }}
      >
        <Field label="Routing key">
          <input value={key} onChange={(event) => setKey(event.target.value)} placeholder="order.created" spellCheck={false} />
        </Field>
        {exchange.kind === 'headers' && (
          <Field label="Headers" help="One a line, as name: value">
            <textarea className="low" value={headers} onChange={(event) => setHeaders(event.target.value)} spellCheck={false} />
          </Field>
        )}
        <div className="row wide">
          <button type="submit" className="main">
            Show the targets
          </button>
          <Action<Routed>
            label="Publish a message"
            title={`Publish to ${shownName(exchange.name)}`}
            confirm="Publish"
            call={() => ({ method: 'POST', path: path('publish'), body: { json: { ...body(), content: contentOf(content) } } })}
            result={({ routed: queues, topics }) => `Stored in: ${[...queues, ...topics].map(visible).join(', ')}.`}
          >
            <p>
              With the key <code>{visible(key) || '(empty)'}</code>.
            </p>
            <Field label="Content" help="JSON is sent as JSON, anything else as text">
              <textarea value={content} onChange={(event) => setContent(event.target.value)} autoFocus data-focus spellCheck={false} />
            </Field>
          </Action>
        </div>
      </form>
      <Failure error={error} />
      {routed && (
        <div role="status">
          {routed.routed.length + routed.topics.length + routed.delayed_at.length === 0 ? (
            <p className="hint">It would go nowhere: no binding takes it{exchange.alternate ? '' : ', and there is no alternate exchange'}.</p>
          ) : (
            <ul className="plain-list targets">
              {routed.routed.map((queue) => (
                <li key={queue}>
                  → queue <Link href={queueAt(exchange.namespace, queue)}>{visible(queue)}</Link>
                </li>
              ))}
              {routed.topics.map((topic) => (
                <li key={topic}>
                  → topic <Link href={to(['topics', topic])}>{visible(topic)}</Link>
                </li>
              ))}
              {routed.delayed_at.map((at) => (
                <li key={at}>→ waits at {visible(at)} for its time</li>
              ))}
            </ul>
          )}
        </div>
      )}
    </section>
  );
}

