import { useState } from 'react';
import { api } from '../../api/http';
import type { Message, Outgoing, Queue, Sent } from '../../api/types';
import { Action } from '../../ui/Action';
import { visible } from '../../ui/format';
import { Field } from '../../ui/parts';
import { number } from './CreateQueue';

/** JSON where the text is, else the text. */
export function contentOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Lines of `name: value`. */
export function headersOf(text: string): Record<string, string> | undefined {
  const lines = text.split('\n').map((line) => line.split(/:\s*/, 2)).filter(([name]) => name?.trim());
  return lines.length === 0 ? undefined : Object.fromEntries(lines.map(([name = '', value = '']) => [name.trim(), value]));
}

export function Send({ queue, like, label = 'Send' }: { queue: Queue; like?: Message; label?: string }) {
  const [content, setContent] = useState('');
  const [priority, setPriority] = useState('');
  const [headers, setHeaders] = useState('');
  const fill = () => {
    const value = like?.content;
    setContent(value == null ? '' : typeof value === 'string' ? value : JSON.stringify(value, null, 2));
    setPriority(like && like.priority > 0 ? String(like.priority) : '');
    setHeaders(Object.entries(like?.headers ?? {}).flatMap(([name, text]) => (typeof text === 'string' ? [`${name}: ${text}`] : [])).join('\n'));
  };
  const call = () => {
    const body: Outgoing = { to: { queues: [queue.name] }, content: contentOf(content), priority: number(priority), headers: headersOf(headers) };
    return { method: 'POST', path: api('messages', { namespace: queue.namespace === '/' ? undefined : queue.namespace }), body: { json: body } };
  };
  return (
    <Action<Sent>
      label={label}
      title={`Send to ${visible(queue.name)}`}
      confirm="Send"
      onOpen={fill}
      call={call}
      result={({ message_id: id, durability }) => `Stored as ${id}; it survives as ${durability} does.`}
    >
      <Field label="Content" help="JSON is sent as JSON, anything else as text">
        <textarea value={content} onChange={(event) => setContent(event.target.value)} autoFocus data-focus spellCheck={false} />
      </Field>
      {queue.priority_max > 0 && (
        <Field label={`Priority, 0 to ${queue.priority_max}`}>
          <input type="number" min="0" max={queue.priority_max} placeholder="0" value={priority} onChange={(event) => setPriority(event.target.value)} />
        </Field>
      )}
      <Field label="Headers" help="One a line, as name: value">
        <textarea className="low" value={headers} onChange={(event) => setHeaders(event.target.value)} spellCheck={false} />
      </Field>
    </Action>
  );
}
