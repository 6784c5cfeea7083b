// Small parts of all pages.
import { useState, type ReactNode } from 'react';
import { Refusal, Unreachable } from '../api/http';
import { useCaller } from '../api/session';
import { age, time, visible } from './format';
import { Link, useParam, useRoute, to } from './route';

export function Head({ title, trail, children, badges }: { title: string; trail?: [string, string]; children?: ReactNode; badges?: ReactNode }) {
  return (
    <div className="head">
      <div className="titles">
        {trail && (
          <div className="trail">
            <Link href={trail[1]}>{trail[0]}</Link>
          </div>
        )}
        <h1>{title}</h1>
        {badges && <div className="badges">{badges}</div>}
      </div>
      <div className="row">{children}</div>
    </div>
  );
}

export const Badge = ({ kind = '', children, title }: { kind?: '' | 'bad' | 'note' | 'good'; children: ReactNode; title?: string }) => (
  <span className={`badge ${kind}`} title={title}>
    {children}
  </span>
);

const LEVELS: Record<string, [number, string]> = {
  none: [0, 'nothing was acknowledged at all'],
  memory: [1, 'survives nothing: it was accepted'],
  os: [2, 'survives a killed process'],
  interval: [3, 'survives a killed process, and a power loss but for the last moments'],
  sync: [4, 'survives a power loss'],
};

/** Durability: a disc that is the fuller the more survives. */
export function Durability({ level }: { level: string | null | undefined }) {
  if (!level) return <span className="quiet">–</span>;
  const [fill, text] = LEVELS[level.split(':')[0] ?? ''] ?? [0, ''];
  const angle = (fill / 4) * 2 * Math.PI;
  const path = `M6 6V1A5 5 0 ${fill > 2 ? 1 : 0} 1 ${6 + 5 * Math.sin(angle)} ${6 - 5 * Math.cos(angle)}Z`;
  return (
    <span className="sign" title={`${level}: ${text}`}>
      <svg width="12" height="12" viewBox="0 0 12 12" aria-hidden="true">
        <circle cx="6" cy="6" r="5" fill={fill === 4 ? 'currentColor' : 'none'} stroke="currentColor" />
        {fill > 0 && fill < 4 && <path d={path} fill="currentColor" />}
      </svg>
      {level}
    </span>
  );
}

export const Time = ({ at }: { at: string | null | undefined }) => (
  <time dateTime={at ?? undefined} title={at ?? undefined}>
    {time(at)} {at && <span className="quiet small">{age(at)}</span>}
  </time>
);

/** A refusal at its place: the broker's words, the right that is missing, and more on unfolding. */
export function Failure({ error }: { error: unknown }) {
  if (!error) return null;
  if (error instanceof Unreachable) return null;
  const text = error instanceof Error ? error.message : String(error);
  return (
    <div className="error" role="alert">
      {text}
      {error instanceof Refusal && error.needs && <Missing needs={error.needs} on={error.on ?? ''} />}
      {error instanceof Refusal && (
        <details>
          <summary>Details</summary>
          code <code>{error.code}</code>, status {error.status}
          {error.requestId && (
            <>
              , request <code>{error.requestId}</code>
            </>
          )}
        </details>
      )}
    </div>
  );
}

/** The right that is missing, and the command by which an administrator gives it. */
function Missing({ needs, on }: { needs: string; on: string }) {
  const caller = useCaller()?.name ?? 'NAME';
  const [kind = '', ...rest] = on.split(':');
  const name = rest.join(':');
  const thing = kind === 'cluster' ? 'the cluster' : `${kind.replaceAll('_', ' ')} ${visible(name) || '(all)'}`;
  const names = name === '' ? '--prefix ""' : `--name ${quoted(name)}`;
  return (
    <p className="small">
      The missing right: <b>{needs.replaceAll('_', ' ')}</b> on {thing}. An administrator gives it on the page{' '}
      <Link href={to(['users'], { tab: 'rules' })}>Users and rules</Link>, or by <code>{visible(`stafett acl add ${quoted(`user:${caller}`)} --action ${needs} --on ${kind} ${names}`)}</code>.
      {kind === 'cluster' && needs === 'describe' && ' Users with the tag monitoring have it.'}
    </p>
  );
}

export const Done = ({ children }: { children: ReactNode }) => (children ? <div className="done" role="status">{children}</div> : null);

export function Facts({ rows }: { rows: [string, ReactNode][] }) {
  return (
    <dl className="facts">
      {rows.map(([name, value]) => (
        <Fact key={name} name={name} value={value} />
      ))}
    </dl>
  );
}

const Fact = ({ name, value }: { name: string; value: ReactNode }) => (
  <>
    <dt>{name}</dt>
    <dd>{value ?? '–'}</dd>
  </>
);

/** A bar that is filled to a share. */
export const Meter = ({ share, kind = 0, label }: { share: number; kind?: 0 | 1; label?: string }) => (
  <span className="meter" {...(label ? { role: 'img', 'aria-label': label } : { 'aria-hidden': true })}>
    <i className={`k${kind}`} style={{ width: `${Math.min(1, share) * 100}%` }} />
  </span>
);

export interface Figure {
  name: string;
  value: ReactNode;
  exact?: string;
  more?: ReactNode;
  href?: string;
}

export const Figures = ({ of }: { of: Figure[] }) => (
  <dl className="figures">
    {of.map(({ name, value, exact, more, href }) => (
      <div key={name} title={exact}>
        <dt>{name}</dt>
        <dd>
          {href ? <Link href={href}>{value}</Link> : value}
          {more && <small>{more}</small>}
        </dd>
      </div>
    ))}
  </dl>
);

export function Tabs({ of }: { of: [string, string][] }) {
  const { parts, query } = useRoute();
  const current = query.get('tab') ?? of[0]?.[0];
  return (
    <nav className="tabs" aria-label="Parts of the page">
      {of.map(([key, text], index) => (
        <Link key={key} href={to(parts, { tab: index === 0 ? undefined : key })} aria-current={key === current ? 'page' : undefined}>
          {text}
        </Link>
      ))}
    </nav>
  );
}

export const useTab = (first: string): string => useParam('tab')[0] ?? first;

export function Copy({ text, label = 'Copy' }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  return (
    <button
      type="button"
      className="plain small"
      onClick={() => {
        void navigator.clipboard?.writeText(text).then(() => setDone(true), () => setDone(false));
      }}
    >
      {done ? 'Copied' : label}
    </button>
  );
}

export const Commands = ({ text }: { text: string }) => (
  <div>
    <pre tabIndex={0}>{text}</pre>
    <Copy text={text} />
  </div>
);

export function Field({ label, help, children, wide }: { label: string; help?: string; children: ReactNode; wide?: boolean }) {
  return (
    <label className={`field ${wide ? 'wide' : ''}`}>
      <span>{label}</span>
      {children}
      {help && <span className="help">{help}</span>}
    </label>
  );
}

/** A word of a shell. */
export const quoted = (text: string): string => (/^[\w.:/@=-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

export function save(name: string, content: string | BlobPart[], type = 'application/octet-stream'): void {
  const url = URL.createObjectURL(new Blob([content].flat(), { type }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}
