// States for pages, kept current, and histories.
import { keepPreviousData, useQuery, useQueryClient, type UseQueryResult } from '@tanstack/react-query';
import { useCallback, useEffect } from 'react';
import { api, get, Refusal, stateOf } from './http';
import type { History, Operation } from './types';
import { renew, usePaused, useSocketOpen, watch } from './watch';

const POLL_MS = 5000;

/** The state of a list or an object by its path, kept current; `null` asks for nothing. */
export function useLive<T>(path: string | null, everyMs = 2000): UseQueryResult<T> {
  const client = useQueryClient();
  const isSocketOpen = useSocketOpen();
  const isPaused = usePaused();
  const found = useQuery<T>({
    queryKey: [path],
    queryFn: ({ signal }) => get<T>(path ?? '', signal),
    enabled: path !== null,
    placeholderData: keepPreviousData,
    refetchInterval: isSocketOpen || isPaused ? false : Math.max(POLL_MS, everyMs),
  });
  useEffect(() => {
    if (path === null || isPaused) return undefined;
    return watch(path, everyMs, (state) => {
      try {
        client.setQueryData([path], stateOf<T>(state));
      } catch (error) {
        // The query asks once, and shows the refusal.
        const isShown = client.getQueryState([path])?.status === 'error';
        if (error instanceof Refusal && !isShown) void client.invalidateQueries({ queryKey: [path] });
      }
    });
  }, [client, path, everyMs, isPaused]);
  return found;
}

/** A function for after a change: everything is asked for anew, and states that are on their way, perhaps of before, are passed over. */
export function useRefresh(): () => Promise<void> {
  const client = useQueryClient();
  return useCallback(() => {
    renew();
    return client.invalidateQueries();
  }, [client]);
}

/** An operation until its end, also while the page is paused. */
export function useOperation(id: string): Operation | undefined {
  const path = api(`operations/${id}`);
  const isWatched = useSocketOpen() && !usePaused();
  const running = useLive<Operation>(path, 1000).data;
  const isOver = running !== undefined && running.state !== 'running';
  return useQuery<Operation>({
    queryKey: [path],
    queryFn: ({ signal }) => get<Operation>(path, signal),
    refetchInterval: isWatched || isOver ? false : 1000,
  }).data;
}

/** A state that is asked for once, and again when something changed it. */
export function useOnce<T>(path: string | null): UseQueryResult<T> {
  return useQuery<T>({
    queryKey: [path],
    queryFn: ({ signal }) => get<T>(path ?? '', signal),
    enabled: path !== null,
  });
}

/** The history of an object: `node`, `queue:NAME`, and so on. */
export function useHistory(of: string, names: string[], minutes: number, namespace?: string): UseQueryResult<History> {
  const step = minutes > 15 ? (of === 'node' ? 15 : 30) : 5;
  return useLive<History>(api('metrics/history', { of, names: names.join(','), from: `-${minutes}m`, step: `${step}s`, namespace }), 5000);
}
