import { useState } from 'react';
import type { App, AppChange, AppDone } from '../../api/types';
import { Action } from '../../ui/Action';
import { bytes, duration, visible } from '../../ui/format';
import { Facts, Field } from '../../ui/parts';
import { appUrl } from './Apps';

type Value = string | number | null;

interface Setting {
  label: string;
  help: string;
  /** Choices; a setting without them is a number, or a text if `isText`. */
  words?: string[];
  isText?: boolean;
  read?: (value: number) => string;
}

const SETTINGS: Record<string, Setting> = {
  filter: { label: 'Filter', help: 'Condition on records, such as value.total > 100; others are passed over; empty: all', isText: true },
  balance: { label: 'Balance', help: 'How tasks are given to workers', words: ['count', 'weight', 'load', 'manual'] },
  rebalance: { label: 'Moves', help: 'Held tasks move by themselves, or only on request', words: ['auto', 'manual'] },
  worker_timeout_ms: { label: 'Worker is gone after', help: 'Milliseconds without a sign of life', read: duration },
  revoke_ms: { label: 'Time to release', help: 'Milliseconds for a task that goes to another worker', read: duration },
  'time.clock': { label: 'Time of a task', help: 'By the timestamps of records, or by the clock', words: ['record', 'wall'] },
  'time.grace_ms': { label: 'Records out of order by', help: 'Milliseconds', read: duration },
  'time.idle_ms': { label: 'Clock goes on after', help: 'Milliseconds without records', read: duration },
  state_bytes_max: { label: 'State at most', help: 'Bytes of a task', read: bytes },
  on_gap: { label: 'At a gap', help: 'When retention has overtaken a task', words: ['stop', 'skip'] },
  attempts_max: { label: 'Attempts at most', help: 'At a record that fails' },
  dead_letter: { label: 'Dead letters', help: 'Topic of records that keep failing; empty: their task stops', isText: true },
};

/** Settings by names with dots. */
function flat(app: App): Record<string, Value> {
  const { time, ...rest } = app.settings;
  return { ...rest, ...Object.fromEntries(Object.entries(time).map(([name, value]) => [`time.${name}`, value])) };
}

export function Settings({ app }: { app: App }) {
  const now = flat(app);
  const [texts, setTexts] = useState<Record<string, string>>({});
  const changed = Object.entries(texts).filter(([name, text]) => text !== String(now[name] ?? ''));
  const body = (): AppChange => {
    const json: Record<string, Value | Record<string, Value>> = {};
    for (const [name, text] of changed) {
      const { words, isText } = SETTINGS[name]!;
      const value = words ? text : isText ? text || null : Number(text);
      const [group, inner] = name.split('.', 2);
      if (inner === undefined) json[name] = value;
      else json[group!] = { ...(json[group!] as object | undefined), [inner]: value };
    }
    return json as AppChange;
  };
  return (
    <section className="card">
      <div className="form two">
        {Object.entries(SETTINGS).map(([name, { label, help, words, isText, read }]) => {
          const text = texts[name] ?? String(now[name] ?? '');
          const set = (event: { target: { value: string } }) => setTexts({ ...texts, [name]: event.target.value });
          return (
            <Field key={name} label={label} help={read && text !== '' ? `${help}: ${read(Number(text))}` : help}>
              {words ? (
                <select value={text} onChange={set}>
                  {words.map((word) => (
                    <option key={word}>{word}</option>
                  ))}
                </select>
              ) : (
                <input type={isText ? 'text' : 'number'} min={isText ? undefined : 0} value={text} onChange={set} spellCheck={false} />
              )}
            </Field>
          );
        })}
        <div className="row wide">
          <Action<AppDone>
            label="Change"
            className="main"
            title={`Change ${visible(app.name)}`}
            confirm="Change"
            disabled={changed.length === 0}
            call={() => ({ method: 'PATCH', path: appUrl(app.name), body: { json: body() } })}
            result={() => 'Changed. Workers go on.'}
            after={() => setTexts({})}
          >
            <Facts rows={changed.map(([name, text]) => [SETTINGS[name]?.label ?? name, `${now[name] ?? '(none)'} → ${visible(text) || '(none)'}`])} />
          </Action>
        </div>
      </div>
    </section>
  );
}
