// The frame: the list of pages, the search, alarms, and the keys.
import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useState, type ReactNode } from 'react';
import { useLive } from '../api/live';
import { reachNow, onReach, useReach } from '../api/reach';
import { useLoginWanted, usePageSettings } from '../api/session';
import type { Overview } from '../api/types';
import { setPaused, usePaused } from '../api/watch';
import { Dialog } from './Dialog';
import { short, time } from './format';
import { Login, Me } from './Login';
import { Operations } from './Operations';
import { address, PAGES } from './pages';
import { Palette } from './Palette';
import { go, Link, useRoute } from './route';
import { choose, useChoice, useTheme } from './theme';

export function Shell({ children }: { children: ReactNode }) {
  const { parts } = useRoute();
  const [isOpen, setOpen] = useState(false);
  const [dialog, setDialog] = useState<'palette' | 'help'>();
  const isLoginWanted = useLoginWanted();
  const overview = useLive<Overview>(isLoginWanted ? null : '/v1/overview', 3000).data;
  const lab = usePageSettings()?.lab_url;
  const reach = useReach();
  const isLost = reach.online === false;
  useKeys(setDialog);
  useReturn();
  const page = parts[0] ?? '';
  useEffect(() => {
    setOpen(false);
    const entry = PAGES.find(({ path }) => path === page);
    document.title = `${parts.slice(1).at(-1) ?? entry?.name ?? 'Not found'} · Stafett`;
  }, [page, parts]);
  return (
    <div className={`frame ${isOpen ? 'is-open' : ''} ${isLost ? 'is-lost' : ''}`}>
      <a className="skip" href="#main">
        Skip to the page
      </a>
      <nav className="side" aria-label="Pages">
        <Link className="brand" href={address(PAGES[0]!)}>
          <svg width="18" height="18" viewBox="0 0 16 16" aria-hidden="true">
            <path d="M2 11 11 2l3 3-9 9z" fill="currentColor" />
          </svg>
          Stafett
        </Link>
        <ul>
          {PAGES.map((entry) => (
            <li key={entry.path} className={entry.gap ? 'gap' : ''}>
              <Link href={address(entry)} aria-current={entry.path === page ? 'page' : undefined} onClick={() => setOpen(false)}>
                {entry.name}
                {entry.total && overview && <span className="n">{short(overview.totals[entry.total])}</span>}
              </Link>
            </li>
          ))}
          {lab && (
            <li className="gap">
              <a href={lab} target="_blank" rel="noopener noreferrer">
                Lab
              </a>
            </li>
          )}
        </ul>
      </nav>
      <button type="button" className="veil" aria-label="Close the list of pages" onClick={() => setOpen(false)} />
      <Bar onBurger={() => setOpen(!isOpen)} isOpen={isOpen} onFind={() => setDialog('palette')} onHelp={() => setDialog('help')} />
      <main id="main" tabIndex={-1}>
        <Bands overview={overview} />
        {isLoginWanted ? <Login /> : children}
      </main>
      {dialog === 'palette' && <Palette onClose={() => setDialog(undefined)} />}
      {dialog === 'help' && <Help onClose={() => setDialog(undefined)} />}
    </div>
  );
}

function Bar({ onBurger, isOpen, onFind, onHelp }: { onBurger: () => void; isOpen: boolean; onFind: () => void; onHelp: () => void }) {
  const paused = usePaused();
  const theme = useTheme();
  const choice = useChoice();
  const next = choice === 'system' ? (theme === 'dark' ? 'light' : 'dark') : 'system';
  return (
    <header className="bar">
      <button type="button" className="icon burger" aria-label="Pages" aria-expanded={isOpen} onClick={onBurger}>
        ☰
      </button>
      <button type="button" className="find" onClick={onFind}>
        <span>Search everything</span> <kbd>Ctrl K</kbd>
      </button>
      <span className="space" />
      <button type="button" aria-pressed={paused} onClick={() => setPaused(!paused)} title="Stop and go on with updates of the page">
        {paused ? 'Go on' : 'Pause'}
      </button>
      <Operations />
      <Me />
      <button type="button" className="icon" aria-label={`Colours: ${choice}. Change to ${next}`} title={`Colours: ${choice}`} onClick={() => choose(next)}>
        {theme === 'dark' ? '☾' : '☼'}
      </button>
      <button type="button" className="icon wide" aria-label="Keys and help" onClick={onHelp}>
        ?
      </button>
    </header>
  );
}

function Bands({ overview }: { overview: Overview | undefined }) {
  const reach = useReach();
  const paused = usePaused();
  const showsOnly = usePageSettings()?.shows_only;
  const isLost = reach.online === false;
  const alarms = overview?.alarms ?? [];
  const state = overview && overview.state !== 'ok' && alarms.length === 0 ? overview.state : undefined;
  return (
    <div className="bands" aria-live="polite">
      {isLost && (
        <div className="band bad">
          <strong>The broker does not answer</strong> since {time(new Date(reach.since).toISOString())}. The values are older than that; the page tries again by itself.
        </div>
      )}
      {!isLost && state && <div className="band note">The broker is {state}.</div>}
      {!isLost &&
        alarms.map((alarm) => (
          <div className="band bad" key={`${alarm.code} ${alarm.cell ?? 0}`}>
            <strong>{alarm.code.replaceAll('_', ' ')}</strong> {alarm.cell && `in cell ${alarm.cell}: `}
            {alarm.text} <span>since {time(alarm.since)}</span>
            <Link href={address(PAGES.find(({ path }) => path === 'journal')!)}>Journal</Link>
          </div>
        ))}
      {!isLost && overview?.away && (
        <div className="band bad">
          <strong>{overview.away.length === 1 ? 'A cell does not answer' : 'Cells do not answer'}:</strong> {overview.away.join(', ')}. What they have is missing in lists and numbers.
        </div>
      )}
      {paused && <div className="band note">Updates are paused.</div>}
      {showsOnly && <div className="band note">These pages only show: the broker refuses what they would do (console.actions).</div>}
    </div>
  );
}

/** Asks for everything anew when the broker is back. */
function useReturn() {
  const client = useQueryClient();
  useEffect(
    () =>
      onReach(() => {
        if (reachNow().online) void client.invalidateQueries();
      }),
    [client],
  );
  const isLost = useReach().online === false;
  useEffect(() => {
    if (!isLost) return undefined;
    const timer = setInterval(() => void client.refetchQueries({ queryKey: ['/v1/overview'] }), 2000);
    return () => clearInterval(timer);
  }, [client, isLost]);
}

const KEYS: [string, string][] = [
  ['Ctrl K', 'search over everything'],
  ['/', 'search in the list'],
  ['g, then a letter', 'go to a page'],
  ['↑ ↓', 'from row to row in a list'],
  ['Enter', 'open the row'],
  ['Space', 'tick the row'],
  ['p', 'pause updates'],
  ['Esc', 'close what is open'],
  ['?', 'this list'],
];

const KEYS_OFF = 'stafett.letters';

const areLettersOff = (): boolean => {
  try {
    return localStorage.getItem(KEYS_OFF) === 'off';
  } catch {
    return false;
  }
};

function useKeys(setDialog: (dialog: 'palette' | 'help' | undefined) => void) {
  const paused = usePaused();
  useEffect(() => {
    let isGoing = 0;
    const onKeyDown = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
        event.preventDefault();
        setDialog('palette');
        return;
      }
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest('input, textarea, select, dialog') || areLettersOff()) return;
      if (Date.now() - isGoing < 1500) {
        isGoing = 0;
        const page = PAGES.find(({ key }) => key === event.key);
        if (page) go(address(page));
        return;
      }
      if (event.key === 'g') isGoing = Date.now();
      else if (event.key === '?') setDialog('help');
      else if (event.key === 'p') setPaused(!paused);
      else if (event.key === '/') {
        document.querySelector<HTMLElement>('[data-search]')?.focus();
        event.preventDefault();
      }
    };
    window.addEventListener('keydown', onKeyDown);
    return () => window.removeEventListener('keydown', onKeyDown);
  }, [setDialog, paused]);
}

function Help({ onClose }: { onClose: () => void }) {
  const [isOff, setOff] = useState(areLettersOff);
  const change = (off: boolean) => {
    setOff(off);
    try {
      if (off) localStorage.setItem(KEYS_OFF, 'off');
      else localStorage.removeItem(KEYS_OFF);
    } catch {
      // A browser that keeps nothing.
    }
  };
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl className="facts">
        {[...KEYS, ...PAGES.map(({ key, name }): [string, string] => [`g ${key}`, name])].map(([key, text]) => (
          <div key={key} className="pair">
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
      <label className="check">
        <input type="checkbox" checked={!isOff} onChange={(event) => change(!event.target.checked)} /> Single letters are keys
      </label>
      <div className="row end">
        <button type="button" autoFocus data-focus onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
