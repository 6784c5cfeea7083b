// An import before it is done: for each item, whether it is new, the same, or differs, and the request that it takes.
import { api, seg } from '../../api/http';
import type { AccessRule } from '../../api/types';
import type { Call } from '../../ui/Action';
import { keyOf } from '../access/rule';
import { canonical, type Fields, type Item } from './collect';

export type State = 'new' | 'same' | 'differs';

export interface Step {
  item: Item;
  state: State;
  /** Settings that differ: name, value here, value of the file. */
  differences: [string, unknown, unknown][];
  /** Request that makes it, or changes it. None for a thing that cannot change. */
  call?: Call;
}

export const idOf = ({ kind, namespace = '', name, settings }: Item): string =>
  kind === 'rules' ? `rules ${keyOf(settings as unknown as AccessRule)}` : `${kind} ${namespace} ${name}`;

export function planOf(wanted: Item[], here: Item[]): Step[] {
  const known = new Map(here.map((item) => [idOf(item), item]));
  const steps = wanted.map((item) => stepOf(item, known.get(idOf(item))));
  // A list may name the same thing twice.
  return [...new Map(steps.map((step) => [idOf(step.item) + canonical(step.item.settings), step])).values()];
}

function stepOf(item: Item, here: Item | undefined): Step {
  if (here === undefined) return { item, state: 'new', differences: [], call: make(item) };
  const differences = Object.entries(item.settings)
    .map(([name, value]): [string, unknown, unknown] => [name, here.settings[name], value])
    .filter(([name, one, other]) => !isSame(item, name, one, other));
  if (differences.length === 0) return { item, state: 'same', differences };
  return { item, state: 'differs', differences, call: change(item, differences) };
}

/** Values that the file does not give, or gives as they are by default, are the same as absent ones. */
function isSame({ kind }: Item, name: string, here: unknown, wanted: unknown): boolean {
  if (kind === 'rules' && name === 'actions') {
    const has = expanded(here as string[]);
    return expanded(wanted as string[]).every((action) => has.includes(action));
  }
  if (kind === 'users' && name === 'tags') return canonical([...(here as string[])].sort()) === canonical([...(wanted as string[])].sort());
  if (kind === 'topics' && name === 'settings') return Object.entries(wanted as Fields).every(([key, value]) => canonical((here as Fields | undefined)?.[key]) === canonical(value));
  return canonical(here ?? null) === canonical(wanted ?? null) || (here == null && (wanted === false || wanted === 0));
}

const DEFINE = ['create', 'delete', 'alter', 'alter_settings'];
const expanded = (actions: string[]): string[] => actions.flatMap((action) => (action === 'define' ? DEFINE : action));

const inNamespace = (path: string, { namespace }: Item): string => api(path, { namespace: namespace === '/' ? undefined : namespace });

function make(item: Item): Call {
  const { kind, name, settings: json } = item;
  switch (kind) {
    case 'namespaces':
    case 'clients':
      return { method: 'PUT', path: api(`${kind}/${seg(name)}`) };
    case 'topics':
    case 'users':
      return { method: 'PUT', path: api(`${kind}/${seg(name)}`), body: { json } };
    case 'exchanges':
    case 'queues':
      return { method: 'PUT', path: inNamespace(`${kind}/${seg(name)}`, item), body: { json } };
    case 'bindings':
      return { method: 'POST', path: inNamespace('bindings', item), body: { json } };
    case 'rules':
      return { method: 'POST', path: api('rules'), body: { json } };
  }
}

const CHANGEABLE = ['bytes_max', 'dead_letter', 'delivery_limit', 'durability', 'expires_ms', 'length_max', 'overflow', 'retain', 'ttl_ms'];

function change(item: Item, differences: Step['differences']): Call | undefined {
  const { kind, name } = item;
  const json = Object.fromEntries(differences.map(([key, , value]) => [key, value]));
  const names = Object.keys(json);
  if (kind === 'queues' && names.every((key) => CHANGEABLE.includes(key))) return { method: 'PATCH', path: inNamespace(`queues/${seg(name)}`, item), body: { json } };
  if (kind === 'topics') return { method: 'PATCH', path: api(`topics/${seg(name)}`), body: { json } };
  return kind === 'users' || kind === 'rules' ? make(item) : undefined;
}
