// One message: its content, its place, the reason for it, and the record that it is.
import { useLive } from '../../api/live';
import type { Message, QueueDetails } from '../../api/types';
import { Content, Headers } from '../../ui/Content';
import { Dialog } from '../../ui/Dialog';
import { count, visible } from '../../ui/format';
import { Copy, Facts, Failure, Time } from '../../ui/parts';
import { Link, to } from '../../ui/route';
import { Discard, messageUrl } from './Messages';
import { Send } from './Send';
import { Why } from './Why';

interface Place {
  topic: string;
  partition: number;
  offset: number;
}

/** The record of a message; undefined if no topic shows its queue. */
export function recordOf(queue: QueueDetails, id: string): Place | undefined {
  const [, partition, offset] = id.split('-').map(Number);
  return queue.topic == null || partition === undefined || offset === undefined ? undefined : { topic: queue.topic, partition, offset };
}

export const recordAt = ({ topic, partition, offset }: Place): string =>
  to(['topics', topic], { tab: 'records', partition: String(partition), from: String(offset), open: `${partition}-${offset}` });

export function OneMessage({ queue, id, known, onClose }: { queue: QueueDetails; id: string; known?: Message; onClose: () => void }) {
  const found = useLive<Message>(messageUrl(queue, id), 2000);
  const message = found.data ?? known;
  if (!message) {
    return (
      <Dialog title={`Message ${id}`} onClose={onClose}>
        <Failure error={found.error} />
        <button type="button" data-focus onClick={onClose}>
          Close
        </button>
      </Dialog>
    );
  }
  const text = (value: unknown) => (value == null ? '–' : visible(typeof value === 'string' ? value : JSON.stringify(value)));
  const record = recordOf(queue, id);
  return (
    <Dialog title={`Message ${id}`} onClose={onClose} wide>
      <Failure error={found.error} />
      <section>
        <h3>Why it is here</h3>
        <Why queue={queue} message={message} />
      </section>
      <section>
        <h3>The record that it is</h3>
        {record ? (
          <p>
            <Link href={recordAt(record)}>
              Offset {count(record.offset)} of partition {record.partition}
            </Link>{' '}
            in the topic {visible(record.topic)}
            {queue.over === null ? ', which shows this queue: each partition is a priority.' : ', over which this queue lies. The record stays when the message is done.'}
          </p>
        ) : (
          <p className="quiet">No topic shows this queue: it does not outlive a restart, or a topic of its name was there before.</p>
        )}
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
          ['Message id', message.message_id === null ? '–' : <span key="m">{text(message.message_id)} <Copy text={message.message_id} /></span>],
        ]}
      />
      <div className="row end">
        {message.state === 'ready' && <Discard queue={queue} ids={[id]} after={onClose} />}
        <Send queue={queue} like={message} label="Send a copy" />
        <Copy label="Copy as JSON" text={JSON.stringify(message, null, 2)} />
        <button type="button" autoFocus data-focus onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
