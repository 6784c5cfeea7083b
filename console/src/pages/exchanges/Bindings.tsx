import { api, seg } from '../../api/http';
import type { Binding } from '../../api/types';
import { Action } from '../../ui/Action';
import { visible } from '../../ui/format';
import { List, type Column } from '../../ui/List';
import { exchangeAt, queueAt } from '../../ui/pages';
import { Link, to } from '../../ui/route';
import { Bind } from './Bind';

export function Target({ binding }: { binding: Binding }) {
  const target = binding.to as { queue?: string; topic?: string; exchange?: string };
  if (target.queue !== undefined) return <Link href={queueAt(binding.namespace, target.queue)}>{visible(target.queue)}</Link>;
  if (target.topic !== undefined) return <Link href={to(['topics', target.topic])}>{visible(target.topic)}</Link>;
  return <Link href={exchangeAt(binding.namespace, target.exchange ?? '')}>{visible(target.exchange ?? '')}</Link>;
}

const kindOf = (binding: Binding): string => Object.keys(binding.to)[0] ?? '';

const columns: Column<Binding>[] = [
  {
    head: 'From the exchange',
    cell: (binding) => (binding.source === '' ? <span className="quiet">(default)</span> : <Link href={exchangeAt(binding.namespace, binding.source)}>{visible(binding.source)}</Link>),
    text: ({ source }) => source,
  },
  { head: 'Key', cell: ({ key, key_base64: bytes }) => <code>{visible(key ?? bytes ?? '')}</code>, text: ({ key }) => key },
  {
    head: 'Headers',
    phone: 'less',
    cell: ({ headers, match }) =>
      Object.keys(headers).length === 0 ? '' : (
        <code>
          {match}: {visible(JSON.stringify(headers))}
        </code>
      ),
    text: ({ headers }) => JSON.stringify(headers),
  },
  { head: 'To', cell: (binding) => <Target binding={binding} />, text: (binding) => JSON.stringify(binding.to) },
  { head: 'Kind', phone: 'less', cell: kindOf, text: kindOf },
  {
    head: 'Does',
    phone: 'full',
    cell: (binding) =>
      binding.source !== '' && (
        <Action<Binding>
          label="Unbind"
          destroys
          title="Unbind"
          confirm="Unbind"
          call={() => ({ method: 'DELETE', path: api(`bindings/${seg(binding.id)}`, { namespace: binding.namespace === '/' ? undefined : binding.namespace }) })}
          result={() => 'The binding is gone.'}
        >
          <p>
            Messages for the key <code>{visible(binding.key ?? '')}</code> of {visible(binding.source)} no longer go to the {kindOf(binding)}. Those that are there stay.
          </p>
        </Action>
      ),
  },
];

export const Bindings = ({ namespace, source, queue, exchange }: { namespace: string; source?: string; queue?: string; exchange?: string }) => (
  <List<Binding>
    path="bindings"
    query={{ namespace, source, queue, exchange }}
    columns={columns}
    keyOf={({ id }) => id}
    noun="bindings"
    search={false}
    prefix={exchange !== undefined ? 'to.' : ''}
    tools={exchange === undefined && <Bind namespace={namespace} source={source} queue={queue} />}
    empty={
      <>
        <p>
          <strong>There is no binding.</strong> A binding leads messages of an exchange to a queue, a topic or another exchange. Every queue has one by its name from the default exchange.
        </p>
        {exchange === undefined && (
          <div className="row">
            <Bind namespace={namespace} source={source} queue={queue} />
          </div>
        )}
      </>
    }
  />
);
