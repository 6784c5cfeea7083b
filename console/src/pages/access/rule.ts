// A rule in words, and RabbitMQ's permissions as the rules that they are.
import type { AccessRule } from '../../api/types';

export const ACTIONS: [string, string][] = [
  ['read', 'read contents'],
  ['write', 'add contents'],
  ['create', 'create'],
  ['delete', 'delete'],
  ['alter', 'change definitions of'],
  ['describe', 'see'],
  ['describe_settings', 'see settings of'],
  ['alter_settings', 'change settings of'],
  ['operate', 'operate'],
  ['write_idempotent', 'number batches on'],
  ['create_tokens', 'make tokens of'],
  ['describe_tokens', 'see tokens of'],
  ['prepare', 'prepare transactions of'],
  ['all', 'do everything with'],
];

export const KINDS: [string, string][] = [
  ['topic', 'topics'],
  ['group', 'groups'],
  ['queue', 'queues'],
  ['exchange', 'exchanges'],
  ['transactional_id', 'transactional ids'],
  ['app', 'apps'],
  ['live_topic', 'live topics'],
  ['namespace', 'namespaces'],
  ['cluster', 'the cluster'],
  ['user', 'users'],
  ['token', 'tokens'],
];

/** Kinds of things that lie in a namespace. */
export const NAMESPACED = ['queue', 'exchange'];

const list = (words: string[]): string => (words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`);
const word = (words: [string, string][], name: string): string => words.find(([known]) => known === name)?.[1] ?? name.replaceAll('_', ' ');

/** Names of a rule, in words. */
export function namesOf({ name, prefix, pattern }: AccessRule): string {
  if (name != null) return `named "${name}"`;
  if (pattern != null) return `whose names match ${pattern}`;
  return prefix ? `whose names begin with "${prefix}"` : '';
}

export function subjectOf(who: string): string {
  if (who === 'everyone') return 'every user';
  const [kind, ...name] = who.split(':');
  return kind === 'role' ? `every user with the tag ${name.join(':')}` : `user ${name.join(':')}`;
}

/** A rule as a sentence. */
export function sentence(rule: AccessRule): string {
  const actions = list(rule.actions.map((name) => word(ACTIONS, name)));
  const onCluster = rule.on.length === 1 && rule.on[0] === 'cluster';
  const things = `${list(rule.on.map((name) => word(KINDS, name)))}${onCluster ? '' : ` ${namesOf(rule)}`}`.trim();
  const place = rule.namespace != null ? ` in the namespace ${rule.namespace}` : '';
  const from = rule.host != null ? `, from ${rule.host}` : '';
  return `${capital(subjectOf(rule.who))} ${rule.deny ? 'must not' : 'may'} ${actions} ${things}${place}${from}.`;
}

const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

/** Names of a rule by which it is told from others; its actions are no part of it. */
export const keyOf = ({ who, deny, on, name, prefix, pattern, namespace, host }: AccessRule): string =>
  JSON.stringify([who, deny ?? false, on, name ?? null, prefix ?? null, pattern ?? null, namespace ?? null, host ?? null]);

/** Actions of a permission's patterns. */
export const PERMISSION: Record<'configure' | 'write' | 'read', string[]> = {
  configure: ['create', 'delete', 'alter', 'alter_settings'],
  write: ['write'],
  read: ['read'],
};

export type Patterns = Record<keyof typeof PERMISSION, string>;

export interface Permission {
  namespace: string;
  patterns: Patterns;
  /** Rules that it is made of. */
  rules: AccessRule[];
}

const isOf = (rule: AccessRule): string | undefined => {
  if (rule.deny || rule.host != null) return undefined;
  const kinds = [...rule.on].sort().join(' ');
  if (kinds === 'namespace' && rule.name != null && rule.actions.join() === 'read') return rule.name;
  return kinds === 'exchange queue' && rule.pattern != null && rule.namespace != null ? rule.namespace : undefined;
};

/** The rules of a user that are permissions as RabbitMQ's clients see them, by namespace. */
export function permissionsOf(rules: AccessRule[]): Permission[] {
  const found = new Map<string, Permission>();
  for (const rule of rules) {
    const namespace = isOf(rule);
    if (namespace === undefined) continue;
    const permission = found.get(namespace) ?? { namespace, patterns: { configure: '', write: '', read: '' }, rules: [] };
    found.set(namespace, permission);
    permission.rules.push(rule);
    for (const [name, actions] of Object.entries(PERMISSION) as [keyof Patterns, string[]][]) {
      if (rule.pattern == null || !actions.every((action) => rule.actions.includes(action))) continue;
      const before = permission.patterns[name];
      permission.patterns[name] = before ? `(${before})|(${rule.pattern})` : rule.pattern;
    }
  }
  return [...found.values()].sort((one, other) => one.namespace.localeCompare(other.namespace));
}

/** The rules of a permission. An empty pattern permits nothing. */
export function rulesOf(who: string, namespace: string, patterns: Patterns): AccessRule[] {
  const rules: AccessRule[] = [{ who, actions: ['read'], on: ['namespace'], name: namespace }];
  for (const [name, actions] of Object.entries(PERMISSION) as [keyof Patterns, string[]][]) {
    const pattern = patterns[name];
    if (pattern === '') continue;
    const known = rules.find((rule) => rule.pattern === pattern);
    if (known) known.actions = [...known.actions, ...actions];
    else rules.push({ who, actions: [...actions], on: ['queue', 'exchange'], pattern, namespace });
  }
  return rules;
}
