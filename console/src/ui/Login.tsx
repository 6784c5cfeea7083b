// The login, and the caller's rights with the way out.
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { logIn, logOut, useCaller } from '../api/session';
import { Dialog } from './Dialog';
import { visible } from './format';
import { Badge, Facts, Failure, Field } from './parts';

export function Login() {
  const client = useQueryClient();
  const [user, setUser] = useState('');
  const [password, setPassword] = useState('');
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  const submit = async () => {
    setBusy(true);
    setError(undefined);
    try {
      await logIn(user, password);
      await client.resetQueries();
    } catch (failure) {
      setPassword('');
      setError(failure);
    } finally {
      setBusy(false);
    }
  };
  return (
    <section className="login card" aria-label="Login">
      <h1>Log in</h1>
      <p className="quiet">This broker has users. Log in as one of them to see and to change things.</p>
      <form
        className="form"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <Field label="User">
          <input value={user} onChange={(event) => setUser(event.target.value)} autoComplete="username" autoCapitalize="none" spellCheck={false} autoFocus required />
        </Field>
        <Field label="Password">
          <input type="password" value={password} onChange={(event) => setPassword(event.target.value)} autoComplete="current-password" required />
        </Field>
        <Failure error={error} />
        <div className="row">
          <button type="submit" className="main" disabled={isBusy || user === ''}>
            Log in
          </button>
        </div>
      </form>
      <p className="quiet small">
        The session lasts 12 hours, or until the broker starts anew. Users are made by <code>stafett user add NAME</code>.
      </p>
    </section>
  );
}

const RIGHTS: Record<string, string> = { view: 'see everything but contents', operate: 'operate the node', administer: 'administer users, tokens and rules' };

export function Me() {
  const caller = useCaller();
  const [isOpen, setOpen] = useState(false);
  if (!caller) return null;
  const isAnyone = caller.how === 'open';
  return (
    <>
      <button type="button" className="me" aria-label={visible(caller.name)} onClick={() => setOpen(true)} title={isAnyone ? 'No login is needed' : 'Rights, and logging out'}>
        <svg width="16" height="16" viewBox="0 0 16 16" aria-hidden="true">
          <path d="M8 8a3.2 3.2 0 1 0 0-6.4A3.2 3.2 0 0 0 8 8Zm-6 6.4c0-3 2.7-4.8 6-4.8s6 1.8 6 4.8z" fill="currentColor" />
        </svg>
        <span className="cut">{visible(caller.name)}</span>
      </button>
      {isOpen && (
        <Dialog title={isAnyone ? 'No login is needed' : `Logged in as ${visible(caller.name)}`} onClose={() => setOpen(false)}>
          {isAnyone && (
            <p>
              This broker has no administrator: clients on its machine may do everything. The first user with the tag <code>administrator</code> or <code>superuser</code> ends that.
            </p>
          )}
          <Facts
            rows={[
              ['Tags', caller.tags.length === 0 ? 'none' : <span className="badges">{caller.tags.map((tag) => <Badge key={tag}>{visible(tag)}</Badge>)}</span>],
              ['May on the whole broker', caller.can.map((right) => RIGHTS[right] ?? right).join('; ') || 'nothing; rules on names are looked at with each request'],
            ]}
          />
          <Ways isAnyone={isAnyone} onClose={() => setOpen(false)} />
        </Dialog>
      )}
    </>
  );
}

function Ways({ isAnyone, onClose }: { isAnyone: boolean; onClose: () => void }) {
  const client = useQueryClient();
  const [error, setError] = useState<unknown>();
  const out = () => {
    setError(undefined);
    logOut().then(async () => {
      onClose();
      await client.resetQueries();
    }, setError);
  };
  return (
    <>
      <Failure error={error} />
      <div className="row end">
        {!isAnyone && (
          <button type="button" onClick={out}>
            Log out
          </button>
        )}
        <button type="button" autoFocus data-focus onClick={onClose}>
          Close
        </button>
      </div>
    </>
  );
}
