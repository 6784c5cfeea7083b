// One message: its content, its place, and the reason for it.
import { useLive } from '../../api/live';
import type { Message, Queue } from '../../api/types';
import { Content, Headers } from '../../ui/Content';
import { Dialog } from '../../ui/Dialog';
import { count, counted, time, visible } from '../../ui/format';
import { queueAt } from '../../ui/pages';
import { Facts, Failure, Time } from '../../ui/parts';
import { Link } from '../../ui/route';
import { Discard, messageUrl } from './Messages';
import { Send } from './Send';

const STATES: Record<string, string> = {
  ready: 'It waits to be handed out.',
  in_flight: 'A consumer or a lease has it, and has not settled it.',
  settled: 'It is done.',
  completed: 'It is done: a consumer completed it.',
  delayed: 'It waits for its time.',
};

export function OneMessage({ queue, id, known, onClose }: { queue: Queue; id: string; known?: Message; onClose: () => void }) {
  const found = useLive<Message>(messageUrl(queue, id), 2000);
  const message = found.data ?? known;
  if (!message) {
    return (
      <Dialog title={`Message ${id}`} onClose={onClose}>
        <Failure error={found.error} />
        <button type="button" onClick={onClose}>
          Close
        </button>
      </Dialog>
    );
  }
  const text = (value: unknown) => (value == null ? '–' : visible(typeof value === 'string' ? value : JSON.stringify(value)));
  return (
    <Dialog title={`Message ${id}`} onClose={onClose} wide>
      <Failure error={found.error} />
      <section>
        <h3>Why it is here</h3>
        <ul className="plain-list">
          <li>{came(message)}</li>
          {message.deaths.map((death) => (
            <li key={death.queue + death.reason}>
              It {reason(death.reason)} in <Link href={queueAt(message.namespace, death.queue)}>{visible(death.queue)}</Link>
              {death.count > 1 && ` ${counted(death.count, 'time')}`}, first at {time(death.first_at)}.
            </li>
          ))}
          <li>
            <b>{message.state.replaceAll('_', ' ')}</b>: {STATES[message.state] ?? ''} {message.delivery_count > 0 && `It was handed out ${counted(message.delivery_count, 'time')}.`}
          </li>
          {message.expires_at && <li>It expires at {time(message.expires_at)}.</li>}
          {queue.state === 'paused' && message.state === 'ready' && <li>The queue is paused: nothing is handed out.</li>}
          {queue.consumers === 0 && message.state === 'ready' && <li>The queue has no consumer.</li>}
        </ul>
      </section>
      <section>
        <h3>Content</h3>
        <Content raw={{ value: message.content, base64: message.content_base64 }} cut={message.cut} size={message.bytes} />
      </section>
      <Headers of={message.headers} />
      <Facts
        rows={[
          ['Sent', <Time key="t" at={message.sent_at} />],
          ['Priority', count(message.priority)],
          ['Sender', text(message.sender)],
          ['Context', text(message.context)],
          ['Reply to', text(message.reply_to)],
          ['Type', text(message.content_type)],
          ['Key', text(message.key)],
          ['Exchange and key', `${text(message.exchange) || '(default)'} ${text(message.routing_key)}`],
          ['Message id', text(message.message_id)],
        ]}
      />
      <div className="row end">
        {message.state === 'ready' && <Discard queue={queue} ids={[id]} after={onClose} />}
        <Send queue={queue} like={message} label="Send a copy" />
        <button type="button" autoFocus data-focus onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

function came({ exchange, routing_key: key, sender }: Message): string {
  const who = sender ? ` by ${visible(sender)}` : '';
  if (exchange === '') return `It was sent to this queue${who}.`;
  return `It was published${who} to the exchange ${visible(exchange)} with the key "${visible(key)}", and a binding led it here.`;
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
