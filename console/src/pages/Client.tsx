// A registered client: its queue, what waits for it, and its live subscriptions.
import { useState } from 'react';
import { useLive } from '../api/live';
import { api, seg } from '../api/http';
import type { Client as State, Message, MessageCount, Outgoing, QueueDetails } from '../api/types';
import { Action } from '../ui/Action';
import { Content } from '../ui/Content';
import { age, count, counted, visible } from '../ui/format';
import { queueAt } from '../ui/pages';
import { Badge, Failure, Field, Figures, Head, Time } from '../ui/parts';
import { go, to } from '../ui/route';
import { Ask } from './Clients';
import { liveClientAt } from './LiveClient';
import { Messages } from './queues/Messages';
import { queueUrl } from './queues/Queues';
import { contentOf } from './queues/Send';

export function Client({ name }: { name: string }) {
  const { data, error } = useLive<State>(api(`clients/${seg(name)}`), 3000);
  const queue = useLive<QueueDetails>(data ? queueUrl({ namespace: '/', name: data.queue.name }) : null).data;
  if (!data || error) {
    return (
      <>
        <Head title={visible(name)} trail={['Clients', to(['clients'])]} />
        <Failure error={error} />
      </>
    );
  }
  return (
    <>
      <Head title={visible(name)} trail={['Clients', to(['clients'])]} badges={data.listening ? <Badge kind="good">● listening</Badge> : <Badge>not listening</Badge>}>
        <Ask client={data} />
        <Request client={data} />
        <Action<MessageCount> label="Delete" destroys title={`Delete ${visible(name)}`} confirm="Delete the client" call={() => ({ method: 'DELETE', path: api(`clients/${seg(name)}`) })} after={() => go(to(['clients']))}>
          <p>
            It goes with its queue and <b>{counted(data.queue.ready, 'message')}</b> waiting for it. This cannot be taken back.
          </p>
        </Action>
      </Head>
      <Figures
        of={[
          { name: 'Waiting for it', value: count(data.queue.ready), href: queueAt('/', data.queue.name) },
          { name: 'In flight', value: count(queue?.in_flight) },
          { name: 'Subscriptions', value: count(data.subscriptions), href: data.subscriptions > 0 || data.listening ? liveClientAt({ client: name, number: false }) : undefined, more: 'of live topics' },
          { name: 'Registered', value: data.registered_at ? <Time at={data.registered_at} /> : '–' },
          { name: 'Oldest', value: queue?.oldest ? age(queue.oldest) : '–' },
        ]}
      />
      {queue && <Messages queue={queue} />}
    </>
  );
}

/** Asks the client, and waits for its answer. */
function Request({ client }: { client: State }) {
  const [content, setContent] = useState('');
  const [wait, setWait] = useState('10');
  const json: Outgoing = { content: contentOf(content) };
  return (
    <Action<Message>
      label="Ask"
      title={`Ask ${visible(client.name)}`}
      confirm="Ask and wait"
      call={() => ({ method: 'POST', path: api(`clients/${seg(client.name)}/call`, { wait: `${wait}s` }), body: { json } })}
      result={(answer) => <Content raw={{ value: answer.content, base64: answer.content_base64 }} size={answer.bytes} />}
    >
      <p>The request waits in its queue until it answers. Without an answer in this time the request stays there.</p>
      <Field label="Content" help="JSON is sent as JSON, anything else as text">
        <textarea value={content} onChange={(event) => setContent(event.target.value)} autoFocus data-focus spellCheck={false} />
      </Field>
      <Field label="Wait, in seconds">
        <input type="number" min="1" max="60" value={wait} onChange={(event) => setWait(event.target.value)} />
      </Field>
    </Action>
  );
}
