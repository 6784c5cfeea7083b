// The search over everything: pages, and objects by name, which the broker searches.
import { useQuery } from '@tanstack/react-query';
import { useEffect, useId, useState, type KeyboardEvent } from 'react';
import { api, get } from '../api/http';
import { Dialog } from './Dialog';
import { visible } from './format';
import { address, exchangeAt, PAGES, queueAt } from './pages';
import { go, to } from './route';

interface Hit {
  text: string;
  kind: string;
  href: string;
}

interface Named {
  name: string;
  namespace: string;
}

const KINDS: [string, string, (found: Named) => string][] = [
  ['queue', 'queues', ({ namespace, name }) => queueAt(namespace, name)],
  ['topic', 'topics', ({ name }) => to(['topics', name])],
  ['group', 'groups', ({ name }) => to(['groups', name])],
  ['exchange', 'exchanges', ({ namespace, name }) => exchangeAt(namespace, name)],
  ['app', 'apps', ({ name }) => to(['apps', name])],
  ['client', 'clients', ({ name }) => queueAt('/', `client.${name}`)],
];

async function search(text: string, signal: AbortSignal): Promise<Hit[]> {
  const asked = KINDS.map(async ([kind, list, href]) => {
    const { items } = await get<{ items: Named[] }>(api(list, { q: text, count: 6 }), signal);
    return items.map((found) => ({ text: found.name, kind, href: href(found) }));
  });
  const settled = await Promise.allSettled(asked);
  return settled.flatMap((each) => (each.status === 'fulfilled' ? each.value : []));
}

export function Palette({ onClose }: { onClose: () => void }) {
  const id = useId();
  const [text, setText] = useState('');
  const [sought, setSought] = useState('');
  const [at, setAt] = useState(0);
  useEffect(() => {
    const timer = setTimeout(() => setSought(text.trim()), 120);
    return () => clearTimeout(timer);
  }, [text]);
  const found = useQuery({ queryKey: ['palette', sought], queryFn: ({ signal }) => search(sought, signal), enabled: sought !== '' });
  const pages = PAGES.filter(({ name }) => name.toLowerCase().includes(text.trim().toLowerCase()));
  const hits: Hit[] = [...pages.map((page) => ({ text: page.name, kind: 'page', href: address(page) })), ...(sought === '' ? [] : (found.data ?? []))];
  const chosen = Math.min(at, hits.length - 1);
  const open = (hit: Hit | undefined) => {
    if (!hit) return;
    onClose();
    go(hit.href);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'ArrowDown') setAt(Math.min(chosen + 1, hits.length - 1));
    else if (event.key === 'ArrowUp') setAt(Math.max(chosen - 1, 0));
    else if (event.key === 'Enter') open(hits[chosen]);
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title="Search" onClose={onClose} className="palette" unseenTitle>
      <input
        role="combobox"
        aria-expanded="true"
        aria-controls={id}
        aria-activedescendant={hits.length > 0 ? `${id}-${chosen}` : undefined}
        aria-label="Search pages, queues, topics, groups, exchanges, apps, clients"
        placeholder="Pages, queues, topics, groups, exchanges, apps, clients"
        autoFocus data-focus
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
        }}
        onKeyDown={onKeyDown}
      />
      <ul id={id} role="listbox" aria-label="Found">
        {hits.map((hit, index) => (
          <li
            key={hit.kind + hit.href}
            id={`${id}-${index}`}
            role="option"
            aria-selected={index === chosen}
            ref={index === chosen ? (element) => element?.scrollIntoView({ block: 'nearest' }) : undefined}
            onClick={() => open(hit)}
          >
            <span>{visible(hit.text) || '(default)'}</span>
            <span className="quiet small">{hit.kind}</span>
          </li>
        ))}
      </ul>
      {hits.length === 0 && <p className="quiet">Nothing is found.</p>}
    </Dialog>
  );
}
