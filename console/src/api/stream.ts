// Server-sent events of the broker, while a page is seen.
import { useEffect, useRef } from 'react';
import { usePaused } from './watch';

/** Calls `onEvent` with the data of each event; `null` listens to nothing. The browser connects again by itself. */
export function useEvents(url: string | null, names: string[], onEvent: (name: string, data: unknown) => void): void {
  const latest = useRef(onEvent);
  latest.current = onEvent;
  const isPaused = usePaused();
  const kinds = names.join(' ');
  useEffect(() => {
    if (url === null || isPaused) return undefined;
    const source = new EventSource(url);
    for (const name of kinds.split(' ')) {
      source.addEventListener(name, (event) => latest.current(name, parsed((event as MessageEvent<string>).data)));
    }
    return () => source.close();
  }, [url, kinds, isPaused]);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
