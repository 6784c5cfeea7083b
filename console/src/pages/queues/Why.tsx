// Why a message is where it is: how it came, what it waits for, and who has it.
import type { ReactNode } from 'react';
import { useOnce } from '../../api/live';
import type { Binding, BindingList, Message, QueueDetails } from '../../api/types';
import { count, counted, time, visible } from '../../ui/format';
import { exchangeAt, queueAt } from '../../ui/pages';
import { Link } from '../../ui/route';
import { queueUrl } from './Queues';

const STATES: Record<string, string> = {
  ready: 'It waits to be handed out.',
  in_flight: 'It was handed out, and is not settled.',
  settled: 'It is done: completed, discarded, expired or moved.',
};

export function Why({ queue, message }: { queue: QueueDetails; message: Message }) {
  const bindings = useOnce<BindingList>(message.exchange === '' ? null : queueUrl(queue, '/bindings', { count: 200 })).data?.items;
  const isReady = message.state === 'ready';
  return (
    <ul className="plain-list">
      <li>{came(message, bindings)}</li>
      {message.deaths.map((death) => (
        <li key={death.queue + death.reason}>
          It {reason(death.reason)} in <Link href={queueAt(message.namespace, death.queue)}>{visible(death.queue)}</Link>
          {death.count > 1 && ` ${counted(death.count, 'time')}`}, first at {time(death.first_at)}.
        </li>
      ))}
      <li>
        <b>{message.state.replaceAll('_', ' ')}</b>: {STATES[message.state] ?? ''} {message.delivery_count > 0 && `It came back ${counted(message.delivery_count, 'time')}.`}
      </li>
      {message.state === 'in_flight' && message.holder && (
        <li>
          <HeldBy queue={queue} message={message} />
        </li>
      )}
      {message.expires_at && message.state !== 'settled' && <li>It expires at {time(message.expires_at)}.</li>}
      {isReady && <Before queue={queue} priority={message.priority} />}
      {isReady && queue.state === 'paused' && <li>The queue is paused: nothing is handed out.</li>}
      {isReady && queue.consumers === 0 && <li>The queue has no consumer.</li>}
      {isReady && queue.consumers > 0 && queue.state !== 'paused' && (
        <li>
          The queue has <Link href={queueAt(queue.namespace, queue.name, { tab: 'consumers' })}>{counted(queue.consumers, 'consumer')}</Link>; one that has as many as its prefetch gets no more.
        </li>
      )}
    </ul>
  );
}

/** Messages that are handed out before one of this priority. */
function Before({ queue, priority }: { queue: QueueDetails; priority: number }) {
  const before = Object.entries(queue.by_priority).reduce((sum, [lane, ready]) => sum + (Number(lane) > priority ? ready : 0), 0);
  return before > 0 && <li>{counted(before, 'message')} of higher priority are handed out before it.</li>;
}

export function HeldBy({ queue, message: { holder } }: { queue: QueueDetails; message: Message }): ReactNode {
  if (!holder) return null;
  if ('lease_until' in holder) return `A request has it, by a lease until ${time(holder.lease_until)}.`;
  if ('by' in holder) return `It is with a ${holder.by}.`;
  return (
    <>
      It is with <Link href={queueAt(queue.namespace, queue.name, { tab: 'consumers' })}>consumer {holder.consumer}</Link>, which has not settled it.
    </>
  );
}

/** True if a routing key is one of a pattern with * for a word and # for any number of them. */
export function fits(pattern: string, key: string): boolean {
  const [words, parts] = [key === '' ? [] : key.split('.'), pattern === '' ? [] : pattern.split('.')];
  const rest = (at: number, word: number): boolean => {
    if (at === parts.length) return word === words.length;
    if (parts[at] === '#') return rest(at + 1, word) || (word < words.length && rest(at, word + 1));
    return word < words.length && (parts[at] === '*' || parts[at] === words[word]) && rest(at + 1, word + 1);
  };
  return rest(0, 0);
}

function came(message: Message, bindings: Binding[] | undefined): ReactNode {
  const { exchange, routing_key: key, sender, namespace } = message;
  const by = sender ? ` by ${visible(sender)}` : '';
  if (exchange === '') return `It was sent to this queue${by}.`;
  const from = bindings?.filter(({ source }) => source === exchange) ?? [];
  const led = from.filter((binding) => binding.key !== null && (binding.key === key || fits(binding.key, key)));
  return (
    <>
      It was published{by} to the exchange <Link href={exchangeAt(namespace, exchange)}>{visible(exchange)}</Link> with the key "{visible(key)}".{' '}
      {led.length > 0 ? (
        <>
          The binding {led.map((binding) => <code key={binding.id}>{visible(binding.key ?? '')}</code>)} leads here.
        </>
      ) : from.length > 0 ? (
        `${count(from.length)} of its bindings lead here.`
      ) : (
        bindings && 'The binding that led here is gone, or another exchange lies between.'
      )}
    </>
  );
}

function reason(word: string): string {
  const texts: Record<string, string> = {
    expired: 'expired',
    rejected: 'was rejected',
    length: 'was dropped, as the queue was full,',
    maxlen: 'was dropped, as the queue was full,',
    delivery_limit: 'was delivered too often',
  };
  return texts[word] ?? `died (${word})`;
}
