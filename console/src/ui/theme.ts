// Light or dark: by the system, or as chosen in this browser.
import { useSyncExternalStore } from 'react';

export type Choice = 'system' | 'light' | 'dark';

const KEY = 'stafett.theme';
const dark = window.matchMedia('(prefers-color-scheme: dark)');
const listeners = new Set<() => void>();

function stored(): Choice {
  try {
    const value = localStorage.getItem(KEY);
    return value === 'light' || value === 'dark' ? value : 'system';
  } catch {
    return 'system';
  }
}

let choice = stored();

const shown = (): 'light' | 'dark' => (choice === 'system' ? (dark.matches ? 'dark' : 'light') : choice);

function apply(): void {
  document.documentElement.dataset.theme = shown();
  listeners.forEach((listener) => listener());
}

dark.addEventListener('change', apply);
apply();

export function choose(next: Choice): void {
  choice = next;
  try {
    if (next === 'system') localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch {
    // A browser that keeps nothing.
  }
  apply();
}

const subscribe = (listener: () => void): (() => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export const useTheme = (): 'light' | 'dark' => useSyncExternalStore(subscribe, shown);
export const useChoice = (): Choice => useSyncExternalStore(subscribe, () => choice);
