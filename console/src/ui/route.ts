// The address is the state: the path names the page and the object, the query has search, sort, tab and range.
import { createElement, useCallback, useSyncExternalStore, type AnchorHTMLAttributes, type ReactElement } from 'react';

/** True on the page of the lab, false in the console of a broker. */
export const isLab = location.pathname.startsWith('/lab/');
const BASE = isLab ? '/lab/' : '/console/';
const listeners = new Set<() => void>();
const tell = (): void => listeners.forEach((listener) => listener());
window.addEventListener('popstate', tell);

const subscribe = (listener: () => void): (() => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

const decoded = (part: string): string => {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
};

export interface Route {
  parts: string[];
  query: URLSearchParams;
}

export function useRoute(): Route {
  const address = useSyncExternalStore(subscribe, () => location.pathname + location.search);
  const url = new URL(address, location.origin);
  const path = url.pathname.startsWith(BASE) ? url.pathname.slice(BASE.length) : '';
  return { parts: path.split('/').filter(Boolean).map(decoded), query: url.searchParams };
}

/** Address of a page: its parts are encoded, empty values are left out. */
export function to(parts: (string | number)[], query: Record<string, string | undefined> = {}): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value) search.set(key, value);
  const text = search.toString();
  return BASE + parts.map((part) => encodeURIComponent(part)).join('/') + (text ? `?${text}` : '');
}

export function go(address: string, replace = false): void {
  if (replace) history.replaceState(null, '', address);
  else history.pushState(null, '', address);
  if (!replace) window.scrollTo(0, 0);
  tell();
}

/** A value in the query of the address, and its change. */
export function useParam(name: string): [string | undefined, (value: string | undefined, replace?: boolean) => void] {
  const { query } = useRoute();
  const set = useCallback(
    (value: string | undefined, replace = true) => setParams({ [name]: value }, replace),
    [name],
  );
  return [query.get(name) ?? undefined, set];
}

export function setParams(values: Record<string, string | undefined>, replace = true): void {
  const url = new URL(location.href);
  for (const [key, value] of Object.entries(values)) {
    if (value) url.searchParams.set(key, value);
    else url.searchParams.delete(key);
  }
  if (replace) history.replaceState(null, '', url);
  else history.pushState(null, '', url);
  tell();
}

export function Link(props: AnchorHTMLAttributes<HTMLAnchorElement> & { href: string }): ReactElement {
  return createElement('a', {
    ...props,
    onClick: (event: React.MouseEvent<HTMLAnchorElement>) => {
      props.onClick?.(event);
      if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
      event.preventDefault();
      go(props.href);
    },
  });
}
