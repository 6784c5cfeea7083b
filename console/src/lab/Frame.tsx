// The frame of the lab's page: its pages, and whether the lab answers.
import { useEffect, useState } from 'react';
import { useReach } from '../api/reach';
import { time } from '../ui/format';
import { Head } from '../ui/parts';
import { go, Link, to, useRoute } from '../ui/route';
import { choose, useChoice, useTheme } from '../ui/theme';
import { isUp, lab, usePolled, useStill, type Listed, type Run } from './api';
import { AnalysisPage } from './Analysis';
import { ComparePage } from './Compare';
import { ExperimentPage } from './Experiment';
import { Experiments } from './Experiments';
import { MachinesPage } from './Machines';
import { ModelsPage } from './Models';
import { ProtocolPage } from './Protocol';
import { QueuePage } from './Queue';
import { RunPage } from './Run';
import { Runs } from './Runs';

const PAGES = [
  { name: 'Runs', path: '', key: 'r' },
  { name: 'Queue', path: 'queue', key: 'q' },
  { name: 'Experiments', path: 'experiments', key: 'e' },
  { name: 'Analysis', path: 'analysis', key: 'y' },
  { name: 'Models', path: 'models', key: 'm' },
  { name: 'Machines', path: 'machines', key: 'a' },
];

export function Frame() {
  const { parts } = useRoute();
  const [isOpen, setOpen] = useState(false);
  const theme = useTheme();
  const choice = useChoice();
  const next = choice === 'system' ? (theme === 'dark' ? 'light' : 'dark') : 'system';
  const reach = useReach();
  const isLost = reach.online === false;
  const page = parts[0] === 'runs' ? '' : (parts[0] ?? '');
  const runs = usePolled<Listed<Run>>(lab('runs?count=1000'), 2000).data;
  const mayRun = useStill<{ may_run: boolean }>(lab('whoami')).data?.may_run ?? true;
  const now = runs?.items.find(isUp);
  useEffect(() => {
    setOpen(false);
    document.title = `${parts[1] ?? PAGES.find(({ path }) => path === page)?.name ?? 'Not found'} · Lab`;
  }, [page, parts]);
  useKeys();
  return (
    <div className={`frame ${isOpen ? 'is-open' : ''} ${isLost ? 'is-lost' : ''}`}>
      <a className="skip" href="#main">
        Skip to the page
      </a>
      <nav className="side" aria-label="Pages">
        <Link className="brand" href={to([])}>
          <svg width="18" height="18" viewBox="0 0 16 16" aria-hidden="true">
            <path d="M2 11 11 2l3 3-9 9z" fill="currentColor" />
          </svg>
          Stafett lab
        </Link>
        <ul>
          {PAGES.map((entry) => (
            <li key={entry.path}>
              <Link href={to(entry.path ? [entry.path] : [])} aria-current={entry.path === page ? 'page' : undefined}>
                {entry.name}
              </Link>
            </li>
          ))}
        </ul>
      </nav>
      <button type="button" className="veil" aria-label="Close the list of pages" onClick={() => setOpen(false)} />
      <header className="bar">
        <button type="button" className="icon burger" aria-label="Pages" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          ☰
        </button>
        {now && (
          <Link className="button" href={to(['runs', now.id])}>
            {now.experiment}: {now.done} of {now.points} points
          </Link>
        )}
        <span className="space" />
        <button type="button" className="icon" aria-label={`Colours: ${choice}. Change to ${next}`} title={`Colours: ${choice}`} onClick={() => choose(next)}>
          {theme === 'dark' ? '☾' : '☼'}
        </button>
      </header>
      <main id="main" tabIndex={-1}>
        <div className="bands" aria-live="polite">
          {!mayRun && <div className="band note">This login may look: what starts or changes something is refused.</div>}
          {isLost && (
            <div className="band bad">
              <strong>The lab does not answer</strong> since {time(new Date(reach.since).toISOString())}. Runs go on without it; start it again with the same folder.
            </div>
          )}
        </div>
        <Page parts={parts} />
      </main>
    </div>
  );
}

function Page({ parts: [page, name] }: { parts: string[] }) {
  if (page === undefined) return <Runs />;
  if (page === 'runs' && name) return <RunPage key={name} id={name} />;
  if (page === 'experiments') return name ? <ExperimentPage key={name} name={name} /> : <Experiments />;
  if (page === 'models') return <ModelsPage />;
  if (page === 'analysis') return <AnalysisPage />;
  if (page === 'protocol') return <ProtocolPage />;
  if (page === 'compare') return <ComparePage />;
  if (page === 'queue') return <QueuePage />;
  if (page === 'machines') return <MachinesPage />;
  return (
    <>
      <Head title="Not found" />
      <p>There is no such page.</p>
    </>
  );
}

function useKeys() {
  useEffect(() => {
    let isGoing = 0;
    const onKeyDown = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest('input, textarea, select, dialog')) return;
      if (Date.now() - isGoing < 1500) {
        isGoing = 0;
        const entry = PAGES.find(({ key }) => key === event.key);
        if (entry) go(to(entry.path ? [entry.path] : []));
      } else if (event.key === 'g') {
        isGoing = Date.now();
      } else if (event.key === '/') {
        document.querySelector<HTMLElement>('[data-search]')?.focus();
        event.preventDefault();
      }
    };
    window.addEventListener('keydown', onKeyDown);
    return () => window.removeEventListener('keydown', onKeyDown);
  }, []);
}
