import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { createRoot } from 'react-dom/client';
import { Refusal } from './api/http';
import { Pages } from './pages/Pages';
import './ui/style.css';
import { Shell } from './ui/Shell';

const client = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 1000,
      gcTime: 60_000,
      // A refusal stays one; a broker that is gone is asked again by the frame.
      retry: (times, error) => !(error instanceof Refusal) && times < 1,
      refetchOnWindowFocus: true,
      networkMode: 'always',
    },
    mutations: { networkMode: 'always' },
  },
});

const root = document.getElementById('root');
if (root) {
  createRoot(root).render(
    <QueryClientProvider client={client}>
      <Shell>
        <Pages />
      </Shell>
    </QueryClientProvider>,
  );
}
