import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { createRoot } from 'react-dom/client';
import { Refusal } from '../api/http';
import '../ui/style.css';
import { Frame } from './Frame';

const client = new QueryClient({
  defaultOptions: {
    queries: { staleTime: 500, gcTime: 60_000, retry: (times, error) => !(error instanceof Refusal) && times < 1, networkMode: 'always' },
    mutations: { networkMode: 'always' },
  },
});

const root = document.getElementById('root');
if (root) {
  createRoot(root).render(
    <QueryClientProvider client={client}>
      <Frame />
    </QueryClientProvider>,
  );
}
