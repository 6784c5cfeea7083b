// The form of an experiment. It and the text are two views of one document: each change is made in the text, which keeps
// its comments and order; parts without a field in the form stay as they are.
import { useRef, useState, type ReactNode } from 'react';
import { request } from '../api/http';
import { Failure, Field } from '../ui/parts';
import { lab } from './api';

type Tree = Record<string, unknown>;
interface Edited {
  toml: string;
  tree: Tree;
}

export interface Change {
  path: string;
  value: unknown;
}

export const edit = (toml: string, changes: Change[] = []): Promise<Edited> => request<Edited>('POST', lab('edit'), { json: { toml, changes } });

const SYSTEMS = ['stafett', 'kafka', 'rabbitmq'];
const DOES = ['produce', 'consume', 'relay', 'request', 'respond', 'assemble', 'idle'];
const KINDS = ['bars', 'lines', 'latency', 'time', 'effects', 'shares'];
const RUN: [string, string, string][] = [
  ['duration', 'Duration of a point', '20s'],
  ['warmup', 'Warm-up before it', '2s'],
  ['repetitions', 'Repetitions', '3'],
  ['seed', 'Seed of the order', '1'],
];
const ROLE: [string, string, string][] = [
  ['clients', 'Clients', '1'],
  ['rate', 'Messages per second', 'as fast as answers come'],
  ['window', 'Unanswered per client', '100'],
  ['size', 'Bytes of a message', '100'],
  ['batch', 'Batch', '64KiB'],
  ['linger', 'Linger', '5ms'],
];

const table = (value: unknown): Tree => (value && typeof value === 'object' && !Array.isArray(value) ? (value as Tree) : {});
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);

/** A value as it is typed: numbers and texts are themselves, all else is JSON. */
const shown = (value: unknown): string => (value === undefined ? '' : typeof value === 'string' || typeof value === 'number' ? String(value) : JSON.stringify(value));

function typed(text: string): unknown {
  const trimmed = text.trim();
  if (trimmed === '') return null;
  try {
    return JSON.parse(trimmed) as unknown;
  } catch {
    return trimmed;
  }
}

/** Values of a factor: `1, 2, 4` or `1 to 64 by 2`, `1 to 64 times 2`. */
function valuesOf(text: string): unknown {
  const range = /^(\S+)\s+to\s+(\S+)\s+(by|times)\s+(\S+)$/.exec(text.trim());
  if (range) return { from: typed(range[1] ?? ''), to: typed(range[2] ?? ''), [range[3] === 'by' ? 'step' : 'factor']: typed(range[4] ?? '') };
  if (/^[[{]/.test(text.trim())) return typed(text);
  const values = text.split(',').map(typed).filter((value) => value !== null);
  return values.length === 0 ? null : values;
}

function textOf(value: unknown): string {
  if (Array.isArray(value) && value.every((it) => typeof it !== 'object')) return value.map(shown).join(', ');
  const { from, to, step, factor, ...rest } = table(value);
  if (Object.keys(rest).length === 0 && from !== undefined && to !== undefined) return `${shown(from)} to ${shown(to)} ${step === undefined ? 'times' : 'by'} ${shown(step ?? factor)}`;
  return shown(value);
}

const quoted = (path: string): string => (/[."]/.test(path) ? `"${path}"` : path);

interface Props {
  tree: Tree;
  isFixed: boolean;
  set: (changes: Change[]) => void;
}

/** A field whose change is made when it is left, or by Enter. */
function Setting({ label, help, value, example, isFixed, onSet, options }: { label: string; help?: string; value: string; example?: string; isFixed: boolean; onSet: (text: string) => void; options?: string[] }) {
  const [text, setText] = useState<string>();
  const send = () => {
    if (text !== undefined && text !== value) onSet(text);
    setText(undefined);
  };
  return (
    <Field label={label} help={help}>
      {options ? (
        <select value={value} disabled={isFixed} onChange={(event) => onSet(event.target.value)}>
          {!options.includes(value) && <option value={value}>{value || 'choose'}</option>}
          {options.map((option) => (
            <option key={option}>{option}</option>
          ))}
        </select>
      ) : (
        <input
          value={text ?? value}
          placeholder={example}
          disabled={isFixed}
          spellCheck={false}
          onChange={(event) => setText(event.target.value)}
          onBlur={send}
          onKeyDown={(event) => {
            if (event.key === 'Enter') send();
          }}
        />
      )}
    </Field>
  );
}

export function Form({ tree, isFixed, set }: Props) {
  const props = { tree, isFixed, set };
  return (
    <div className="stack">
      <section className="card">
        <h2>Question</h2>
        <div className="form">
          <Setting label="Question" value={shown(tree.question)} isFixed={isFixed} onSet={(text) => set([{ path: 'question', value: text }])} />
          <fieldset>
            <legend>Systems</legend>
            {SYSTEMS.map((system) => {
              const systems = list(tree.systems);
              return (
                <label key={system} className="check">
                  <input
                    type="checkbox"
                    disabled={isFixed}
                    checked={systems.includes(system)}
                    onChange={(event) => set([{ path: 'systems', value: event.target.checked ? [...systems, system] : systems.filter((it) => it !== system) }])}
                  />{' '}
                  {system}
                </label>
              );
            })}
          </fieldset>
        </div>
      </section>
      <Run {...props} />
      <Roles {...props} />
      <Factors {...props} />
      <Figures {...props} />
    </div>
  );
}

function Run({ tree, isFixed, set }: Props) {
  const run = table(tree.run);
  const design = shown(run.design) || 'grid';
  const durability = shown(table(tree.system).durability);
  return (
    <section className="card">
      <h2>Run</h2>
      <div className="form two">
        {RUN.map(([name, label, example]) => (
          <Setting key={name} label={label} value={shown(run[name])} example={example} isFixed={isFixed} onSet={(text) => set([{ path: `run.${name}`, value: typed(text) }])} />
        ))}
        <Setting label="Durability" help="memory, os, interval:N,T or sync" value={durability} example="os" isFixed={isFixed} onSet={(text) => set([{ path: 'system.durability', value: text || null }])} />
        <Setting label="Design" value={design} options={['grid', 'factorial']} isFixed={isFixed} onSet={(text) => set([{ path: 'run.design', value: text }, ...(text === 'grid' ? [{ path: 'run.fraction', value: null }] : [])])} />
        {design === 'factorial' && (
          <Setting label="Fraction" help="Generators such as d = abc; empty: all combinations" value={shown(run.fraction)} isFixed={isFixed} onSet={(text) => set([{ path: 'run.fraction', value: text || null }])} />
        )}
      </div>
    </section>
  );
}

/** A button that adds a thing under a name. */
function Add({ label, hint, isFixed, onAdd }: { label: string; hint: string; isFixed: boolean; onAdd: (name: string) => void }) {
  const [name, setName] = useState('');
  if (isFixed) return null;
  return (
    <form
      className="row"
      onSubmit={(event) => {
        event.preventDefault();
        if (name.trim()) onAdd(name.trim());
        setName('');
      }}
    >
      <input value={name} aria-label={hint} placeholder={hint} spellCheck={false} onChange={(event) => setName(event.target.value)} />
      <button type="submit" disabled={!name.trim()}>
        {label}
      </button>
    </form>
  );
}

const Part = ({ name, isFixed, onRemove, children }: { name: string; isFixed: boolean; onRemove: () => void; children: ReactNode }) => (
  <fieldset className="part">
    <legend>{name}</legend>
    {children}
    {!isFixed && (
      <button type="button" className="plain small" aria-label={`Remove ${name}`} onClick={onRemove}>
        Remove
      </button>
    )}
  </fieldset>
);

function Roles({ tree, isFixed, set }: Props) {
  return (
    <section className="card">
      <h2>Roles</h2>
      {Object.entries(table(tree.roles)).map(([name, value]) => {
        const role = table(value);
        const path = `roles.${quoted(name)}`;
        const settings = ROLE.filter(([setting]) => role.does !== 'consume' || setting === 'clients' || role[setting] !== undefined);
        return (
          <Part key={name} name={name} isFixed={isFixed} onRemove={() => set([{ path, value: null }])}>
            <div className="form two grow">
              <Setting label="Does" value={shown(role.does)} options={DOES} isFixed={isFixed} onSet={(text) => set([{ path: `${path}.does`, value: text }])} />
              {settings.map(([setting, label, example]) => {
                const isRate = setting === 'rate';
                const value = isRate ? shown(table(role.rate).fixed ?? role.rate) : shown(role[setting]);
                const changed = (text: string) => (isRate && /^\s*\d+\s*$/.test(text) ? { fixed: Number(text) } : typed(text));
                return <Setting key={setting} label={label} value={value} example={example} isFixed={isFixed} onSet={(text) => set([{ path: `${path}.${setting}`, value: changed(text) }])} />;
              })}
            </div>
          </Part>
        );
      })}
      <Add label="Add a role" hint="Name of a role" isFixed={isFixed} onAdd={(name) => set([{ path: `roles.${quoted(name)}.does`, value: 'produce' }])} />
    </section>
  );
}

function Factors({ tree, isFixed, set }: Props) {
  return (
    <section className="card">
      <h2>Factors</h2>
      <p className="small quiet">Settings that are varied, by their paths, such as roles.producers.size or system.durability. Values with commas, or a range: 1 to 64 by 9, 1 to 64 times 2.</p>
      {Object.entries(table(tree.grid)).map(([path, value]) => (
        <Part key={path} name={path} isFixed={isFixed} onRemove={() => set([{ path: `grid."${path}"`, value: null }])}>
          <div className="grow">
            <Setting label="Values" value={textOf(value)} isFixed={isFixed} onSet={(text) => set([{ path: `grid."${path}"`, value: valuesOf(text) }])} />
          </div>
        </Part>
      ))}
      <Add label="Add a factor" hint="Path of a setting" isFixed={isFixed} onAdd={(path) => set([{ path: `grid."${path}"`, value: [1, 2] }])} />
    </section>
  );
}

function Figures({ tree, isFixed, set }: Props) {
  const figures = list(tree.figures).map(table);
  return (
    <section className="card">
      <h2>Figures</h2>
      {figures.map((figure, place) => {
        const path = `figures.${place}`;
        return (
          <Part key={place} name={shown(figure.title)} isFixed={isFixed} onRemove={() => set([{ path, value: null }])}>
            <div className="form two grow">
              <Setting label="Title" value={shown(figure.title)} isFixed={isFixed} onSet={(text) => set([{ path: `${path}.title`, value: text }])} />
              <Setting label="Kind" value={shown(figure.kind)} options={KINDS} isFixed={isFixed} onSet={(text) => set([{ path: `${path}.kind`, value: text }])} />
              <Setting label="Along x" value={shown(figure.x)} isFixed={isFixed} onSet={(text) => set([{ path: `${path}.x`, value: text || null }])} />
              <Setting label="Values" help="Names of figures, with commas" value={textOf(figure.y)} isFixed={isFixed} onSet={(text) => set([{ path: `${path}.y`, value: text.split(',').map((it) => it.trim()).filter(Boolean) }])} />
            </div>
          </Part>
        );
      })}
      <Add
        label="Add a figure"
        hint="Title of a figure"
        isFixed={isFixed}
        onAdd={(title) => {
          const path = `figures.${figures.length}`;
          set([
            { path: `${path}.title`, value: title },
            { path: `${path}.kind`, value: 'bars' },
            { path: `${path}.x`, value: 'system' },
            { path: `${path}.y`, value: ['produce_rate'] },
          ]);
        }}
      />
    </section>
  );
}

/** The form over a text; a text that is no TOML has none. */
export function FormOf({ text, tree, error, isFixed, onText }: { text: string; tree: Tree | undefined; error: unknown; isFixed: boolean; onText: (text: string) => void }) {
  const [refused, setRefused] = useState<unknown>();
  // Each change is made to the text that the one before has left.
  const shown = useRef(text);
  const newest = useRef(text);
  const last = useRef(Promise.resolve());
  if (shown.current !== text) {
    shown.current = text;
    newest.current = text;
  }
  const set = (changes: Change[]) => {
    setRefused(undefined);
    last.current = last.current.then(async () => {
      const edited = await edit(newest.current, changes);
      newest.current = edited.toml;
      onText(edited.toml);
    }).catch(setRefused);
  };
  return (
    <>
      <Failure error={error ?? refused} />
      {tree && !error && <Form tree={tree} isFixed={isFixed} set={set} />}
    </>
  );
}
