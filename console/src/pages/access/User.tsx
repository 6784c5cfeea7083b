import { useState } from 'react';
import { api } from '../../api/http';
import { useLive, useOnce } from '../../api/live';
import { useCaller } from '../../api/session';
import type { AccessRuleList, TokenList, User as State, UserSettings } from '../../api/types';
import { Action } from '../../ui/Action';
import { count, counted, visible } from '../../ui/format';
import { Badge, Facts, Failure, Field, Head } from '../../ui/parts';
import { go, to } from '../../ui/route';
import { May } from './May';
import { Permissions } from './Permissions';
import { AddRule } from './RuleForm';
import { Rules } from './Rules';
import { MakeToken } from './Tokens';
import { Closes, passwordOf, TagBoxes, TAGS, userUrl } from './Users';

export function User({ name }: { name: string }) {
  const { data: user, error } = useLive<State>(userUrl(name));
  const who = `user:${name}`;
  const rules = useOnce<AccessRuleList>(user ? api('rules', { who, count: 1000 }) : null).data;
  if (!user || error) {
    return (
      <>
        <Head title={visible(name)} trail={['Users and rules', to(['users'])]} />
        <Failure error={error} />
      </>
    );
  }
  return (
    <>
      <Head title={visible(name)} trail={['Users and rules', to(['users'])]} badges={user.tags.map((tag) => <Badge key={tag}>{visible(tag)}</Badge>)}>
        <Password user={user} />
        <Tags key={user.tags.join()} user={user} />
        <MakeToken user={name} />
        <Delete user={user} rules={rules?.total} />
      </Head>
      <section className="card">
        <Facts rows={[['Password', passwordOf(user)], ...user.tags.map((tag): [string, string] => [`Tag ${visible(tag)}`, TAGS.find(([known]) => known === tag)?.[1] ?? 'has the rules of the tag'])]} />
      </section>
      <div className="row between above">
        <h2>Its rules</h2>
        <AddRule who={who} />
      </div>
      <Rules who={who} />
      {user.tags.map((tag) => (
        <div key={tag}>
          <h2 className="above">Rules of the tag {visible(tag)}</h2>
          <Rules who={`role:${tag}`} prefix={`${tag}.`} />
        </div>
      ))}
      <h2 className="above">Rules of everyone</h2>
      <Rules who="everyone" prefix="all." />
      <May user={name} />
      {rules && <Permissions user={name} rules={rules.items} />}
    </>
  );
}

function Password({ user }: { user: State }) {
  const [password, setPassword] = useState('');
  const isOwn = useCaller()?.name === user.name;
  const call = () => {
    const json: UserSettings = { password };
    return { method: 'PUT', path: userUrl(user.name), body: { json } };
  };
  return (
    <Action<State> right="administer" label="Password" title={`Change the password of ${visible(user.name)}`} confirm="Change" incomplete={password === ''} onOpen={() => setPassword('')} call={call} result={() => 'Changed.'}>
      <p>
        Its next logins need the new one. Sessions of pages end{isOwn ? ', this one too' : ''}; connections that are open go on, and tokens stay.
      </p>
      <Field label="New password">
        <input type="password" value={password} onChange={(event) => setPassword(event.target.value)} autoComplete="new-password" autoFocus data-focus />
      </Field>
    </Action>
  );
}

function Tags({ user }: { user: State }) {
  const [tags, setTags] = useState(user.tags);
  const isSame = [...tags].sort().join(' ') === [...user.tags].sort().join(' ');
  return (
    <Action<State>
      right="administer"
      label="Tags"
      title={`Change the tags of ${visible(user.name)}`}
      confirm="Change"
      incomplete={isSame}
      onOpen={() => setTags(user.tags)}
      call={() => ({ method: 'PUT', path: userUrl(user.name), body: { json: { tags } } })}
      result={() => `Its tags: ${tags.map(visible).join(', ') || 'none'}.`}
    >
      <p>They hold at once, on open connections too. Its sessions of pages end.</p>
      <TagBoxes tags={tags} set={setTags} />
      <Closes tags={tags} />
    </Action>
  );
}

function Delete({ user, rules }: { user: State; rules?: number }) {
  const tokens = useOnce<TokenList>(api('tokens', { count: 1000 })).data?.items.filter((token) => token.user === user.name);
  return (
    <Action<State> right="administer" label="Delete" destroys title={`Delete ${visible(user.name)}`} confirm="Delete the user" typed={user.name} call={() => ({ method: 'DELETE', path: userUrl(user.name) })} after={() => go(to(['users']))}>
      <p>
        The user goes with <b>{counted(tokens?.length, 'token')}</b> and <b>its rules</b>
        {rules === undefined ? '' : `, of ${count(rules)} in all`}. Its connections of all protocols end at once, and their messages in flight return to their queues. This cannot be taken back.
      </p>
    </Action>
  );
}
