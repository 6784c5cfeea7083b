import { useState } from 'react';
import type { AccessRule } from '../../api/types';
import { api } from '../../api/http';
import { Action, type Call } from '../../ui/Action';
import { visible } from '../../ui/format';
import { Field } from '../../ui/parts';
import { ACTIONS, keyOf, KINDS, NAMESPACED, sentence } from './rule';

type Form = 'all' | 'name' | 'prefix' | 'pattern';

interface Choice {
  subject: string;
  subjectName: string;
  deny: boolean;
  actions: string[];
  on: string[];
  form: Form;
  name: string;
  namespace: string;
  host: string;
}

const formOf = ({ name, prefix, pattern }: AccessRule): [Form, string] => {
  if (name != null) return ['name', name];
  if (pattern != null) return ['pattern', pattern];
  return prefix ? ['prefix', prefix] : ['all', ''];
};

function choiceOf(rule: AccessRule): Choice {
  const [form, name] = formOf(rule);
  const [subject = '', ...subjectName] = rule.who.split(':');
  return {
    subject,
    subjectName: subjectName.join(':'),
    deny: rule.deny ?? false,
    actions: rule.actions,
    on: rule.on,
    form,
    name,
    namespace: rule.namespace ?? '',
    host: rule.host ?? '',
  };
}

const mayHaveNamespace = (on: string[]): boolean => on.length > 0 && on.every((kind) => NAMESPACED.includes(kind));

function ruleOf(choice: Choice): AccessRule {
  const rule: AccessRule = { who: choice.subject === 'everyone' ? 'everyone' : `${choice.subject}:${choice.subjectName}`, actions: choice.actions, on: choice.on };
  if (choice.deny) rule.deny = true;
  if (choice.form === 'name') rule.name = choice.name;
  else if (choice.form === 'pattern') rule.pattern = choice.name;
  else rule.prefix = choice.form === 'all' ? '' : choice.name;
  if (choice.on.join() === 'cluster') {
    delete rule.prefix;
    delete rule.pattern;
    rule.name = 'cluster';
  }
  if (choice.namespace && mayHaveNamespace(choice.on)) rule.namespace = choice.namespace;
  if (choice.host) rule.host = choice.host;
  return rule;
}

const isWhole = ({ subject, subjectName, actions, on, form, name }: Choice): boolean =>
  (subject === 'everyone' || subjectName !== '') && actions.length > 0 && on.length > 0 && (form === 'all' || name !== '' || on.join() === 'cluster');

const EMPTY: AccessRule = { who: 'user:', actions: [], on: [], prefix: '' };

/** A new rule; `who` is given on the page of a user. */
export function AddRule({ who }: { who?: string }) {
  const [choice, setChoice] = useState(() => choiceOf({ ...EMPTY, who: who ?? EMPTY.who }));
  const rule = ruleOf(choice);
  return (
    <Action<AccessRule> right="administer" label="Add a rule" className={who ? '' : 'main'} wide title="Add a rule" confirm="Add the rule" incomplete={!isWhole(choice)} call={() => ({ method: 'POST', path: api('rules'), body: { json: rule } })} result={() => sentence(rule)}>
      <Fields choice={choice} set={setChoice} isFixed={who !== undefined} />
    </Action>
  );
}

export function ChangeRule({ rule: before }: { rule: AccessRule }) {
  const [choice, setChoice] = useState(() => choiceOf(before));
  const rule = ruleOf(choice);
  const calls = (): Call[] => {
    const add: Call = { method: 'POST', path: api('rules'), body: { json: rule } };
    const isSame = keyOf(rule) === keyOf(before);
    const gone = isSame ? before.actions.filter((action) => !rule.actions.includes(action)) : before.actions;
    // The new rule is there before the old one goes, so nothing that both permit is refused meanwhile.
    return gone.length === 0 ? [add] : [add, { method: 'DELETE', path: api('rules'), body: { json: { ...before, actions: gone } } }];
  };
  return (
    <Action<AccessRule> right="administer" label="Change" wide title="Change a rule" confirm="Change the rule" incomplete={!isWhole(choice)} onOpen={() => setChoice(choiceOf(before))} call={calls} result={() => sentence(rule)}>
      <p className="quiet">Now: {visible(sentence(before))}</p>
      <Fields choice={choice} set={setChoice} isFixed />
    </Action>
  );
}

function Fields({ choice, set, isFixed }: { choice: Choice; set: (choice: Choice) => void; isFixed: boolean }) {
  const change = (name: keyof Choice) => (event: { target: { value: string } }) => set({ ...choice, [name]: event.target.value });
  const onCluster = choice.on.join() === 'cluster';
  return (
    <>
      <div className="form two">
        {!isFixed && (
          <>
            <Field label="For">
              <select value={choice.subject} onChange={change('subject')} autoFocus data-focus>
                <option value="user">a user</option>
                <option value="role">users with a tag</option>
                <option value="everyone">everyone</option>
              </select>
            </Field>
            {choice.subject !== 'everyone' && (
              <Field label={choice.subject === 'user' ? 'User' : 'Tag'}>
                <input value={choice.subjectName} onChange={change('subjectName')} required spellCheck={false} />
              </Field>
            )}
          </>
        )}
        <Field label="Effect">
          <select value={choice.deny ? 'deny' : 'allow'} onChange={(event) => set({ ...choice, deny: event.target.value === 'deny' })}>
            <option value="allow">permits</option>
            <option value="deny">forbids, before all that permits</option>
          </select>
        </Field>
      </div>
      <Boxes legend="Actions" words={ACTIONS} chosen={choice.actions} set={(actions) => set({ ...choice, actions })} />
      <Boxes legend="On" words={KINDS} chosen={choice.on} set={(on) => set({ ...choice, on })} />
      <div className="form two">
        {!onCluster && (
          <Field label="Names">
            <select value={choice.form} onChange={change('form')}>
              <option value="all">all</option>
              <option value="name">one name</option>
              <option value="prefix">that begin with</option>
              <option value="pattern">that match a regular expression</option>
            </select>
          </Field>
        )}
        {!onCluster && choice.form !== 'all' && (
          <Field label={choice.form === 'pattern' ? 'Expression' : choice.form === 'prefix' ? 'Beginning' : 'Name'} help={choice.form === 'pattern' ? 'Without ^ and $ it matches anywhere in a name' : undefined}>
            <input value={choice.name} onChange={change('name')} required spellCheck={false} />
          </Field>
        )}
        {mayHaveNamespace(choice.on) && (
          <Field label="Namespace" help="Empty: all">
            <input value={choice.namespace} onChange={change('namespace')} spellCheck={false} />
          </Field>
        )}
        <Field label="From the address" help="Empty: anywhere">
          <input value={choice.host} onChange={change('host')} spellCheck={false} />
        </Field>
      </div>
      {isWhole(choice) && (
        <p className="hint" role="status">
          {visible(sentence(ruleOf(choice)))} It holds at once, in all protocols.
        </p>
      )}
    </>
  );
}

/** Several of some words. */
export function Boxes({ legend, words, chosen, set }: { legend: string; words: [string, string][]; chosen: string[]; set: (chosen: string[]) => void }) {
  return (
    <fieldset className="boxes">
      <legend>{legend}</legend>
      {words.map(([name, text]) => (
        <label key={name} className="check" title={text}>
          <input type="checkbox" checked={chosen.includes(name)} onChange={(event) => set(event.target.checked ? [...chosen, name] : chosen.filter((other) => other !== name))} /> {name.replaceAll('_', ' ')}
        </label>
      ))}
    </fieldset>
  );
}
