// The API of the lab: shapes of its answers, and requests that are repeated while a page is open.
import { keepPreviousData, useQuery, type UseQueryResult } from '@tanstack/react-query';
import { get } from '../api/http';

export interface Listed<T> {
  items: T[];
  next: string | null;
  matched: number;
  total: number;
}

export interface ExperimentLine {
  name: string;
  origin: 'built-in' | 'own';
  question: string;
  note: string;
  systems: string[];
  error: string | null;
}

export interface Experiment {
  name: string;
  origin: 'built-in' | 'own';
  toml: string;
  parsed: { question: string; note: string; systems: string[]; full: Record<string, unknown> } | null;
  error: string | null;
}

export interface Plan {
  points: number;
  repetitions: number;
  seconds: number;
  order_seed: number;
  systems: string[];
  errors: { line: number | null; message: string }[];
  warnings: string[];
  grid: { path: string; values: unknown[] }[];
  skipped: { system: string; why: string; points: number }[];
  factors: { letter: string; name: string }[];
  aliases: { effect: string; with: string[] }[];
  resolution: number | null;
}

export type RunState = 'queued' | 'starting' | 'running' | 'finished' | 'interrupted' | 'stopped' | 'refused';

export interface Now {
  does?: string;
  number?: number;
  system?: string;
  parameters?: Record<string, unknown>;
  repetition?: number;
  durability?: string;
  at_s?: number;
  of_s?: number;
  rate?: number;
  p99_us?: number | null;
}

/** A second of the point under way. */
export interface Second {
  at_s: number;
  of_s: number;
  rate: number;
  received_rate?: number;
  p99_us: number | null;
  p50_us?: number | null;
  p2_5_us?: number | null;
  p97_5_us?: number | null;
  clients?: number;
  timed_out?: number;
  reconnects?: number;
  broker_cpu?: number | null;
  client_cpu?: number | null;
  broker_memory_bytes?: number | null;
  broker_disk_written?: number | null;
}

export interface Run {
  id: string;
  state: RunState;
  experiment: string;
  question: string;
  systems: string[];
  begun: number | null;
  ended: number | null;
  points: number;
  done: number;
  failed: number;
  lost: number;
  skipped: number;
  scale: number | null;
  command: string;
  reason: string | null;
  left_s: number | null;
  now: Now | null;
  notes: { title: string | null; labels: string[]; text: string; archived: boolean; build: string | null };
  environment?: { cpu: string; cores: number; memory_bytes: number; kernel: string; disk: string; stafett: string; revision: string | null; versions: Record<string, string> } | null;
}

export interface Point {
  number: number;
  system: string;
  parameters: Record<string, unknown>;
  repetition: number;
  outcome: 'open' | 'done' | 'failed' | 'refused' | 'lost' | 'skipped';
  reason: string | null;
  durability: string | null;
  metrics: Record<string, number>;
  remarks: string[];
}

export interface Law {
  point: number;
  system: string;
  durability: string;
  law: 'interactive_response_time' | 'little' | 'bound';
  role: string | null;
  unit: string;
  measured: number;
  computed: number;
  difference: number;
  told: boolean;
  text: string | null;
}

export interface Effect {
  name: string;
  /** Effects that the fraction cannot tell from it. */
  aliases: string[];
  value: number;
  share: number | null;
  interval: { low: number; high: number } | null;
}

export interface Effects {
  system: string;
  durability: string;
  metric: string;
  unit: string;
  reason: string | null;
  analysis: {
    /** Bit f of a row is set where factor f is at its high level. */
    design: { factors: { name: string; letter: string; low: string; high: string }[]; rows: number[]; words: number[] };
    responses: number[];
    repetitions: number;
    mean: Effect;
    effects: Effect[];
    error: { share: number | null } | null;
  } | null;
}

interface Interval {
  low: number;
  high: number;
}

interface Metric {
  name: string;
  label: string;
  unit: string;
}

export interface ComparedSide {
  durability: string;
  estimate: { value: number; interval: Interval | null };
  ratio: { value: number; interval: Interval | null } | null;
  verdict: 'better' | 'worse' | 'more' | 'less' | 'not_told' | 'no_interval' | null;
}

export interface ComparedLine {
  system: string;
  parameters: Record<string, unknown>;
  sides: (ComparedSide | null)[];
}

export interface Compared {
  metric: Metric;
  metrics: Metric[];
  lines: ComparedLine[];
  unmatched: { run: number; system: string; parameters: Record<string, unknown> }[];
  differences: { what: string; values: string[] }[];
}

export interface Report {
  runs: { effects: Effects[] }[];
}

export interface Modelled {
  service_rate: number | null;
  open: ({ rate: number; utilisation: number; present: number; response_s: number; lost: number } | null)[];
  measured: { rate: number; response_s: number }[];
  difference: number | null;
  fits: boolean | null;
}

export const lab = (path: string): string => `/lab/v1/${path}`;

/** A state that is asked for again while the page is open. */
export function usePolled<T>(path: string | null, everyMs = 1000): UseQueryResult<T> {
  return useQuery<T>({
    queryKey: [path],
    queryFn: ({ signal }) => get<T>(path!, signal),
    enabled: path !== null,
    refetchInterval: everyMs,
    placeholderData: keepPreviousData,
  });
}

/** A state that stays as it is until the page asks anew. */
export function useStill<T>(path: string | null): UseQueryResult<T> {
  return useQuery<T>({ queryKey: [path], queryFn: ({ signal }) => get<T>(path!, signal), enabled: path !== null, staleTime: Infinity });
}

export const isUp = (run: Run): boolean => run.state === 'running' || run.state === 'starting';

/** `roles.producers.batch = 100` in short. */
export const parameters = (of: Record<string, unknown> | undefined): string =>
  Object.entries(of ?? {})
    .map(([path, value]) => `${path.split('.').slice(-1)[0]} ${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(', ');

/** A run that waits. Times are in ms since 1970. */
export interface Waiting {
  id: string;
  experiment: string;
  not_before: number | null;
  after: string | null;
  asked_at: number;
}

export interface Step {
  name: string;
  state: 'running' | 'done' | 'failed' | 'cut';
  seconds: number;
  output: string;
}

/** Work in steps at a machine or on a build. */
export interface Job {
  what: string;
  state: Step['state'];
  begun_ms: number;
  steps: Step[];
}

export interface Builds {
  items: { revision: string; ready: boolean; job: Job | null }[];
  source: string;
}

/** A question about points of runs, or about performance logs. */
export interface Question {
  of: { run: string; points?: number[]; roles?: string[] }[];
  logs?: string[];
  actions?: string[];
  name?: string;
  what: string;
  window_s: number;
  cut: { front_s?: number; back_s: number };
  stat: string;
  band: [number, number] | null;
  by: string[];
  title?: string;
  log_y?: boolean;
}

export interface Analysis {
  title: string;
  label: string;
  unit: string;
  x: number[];
  series: { name: string; durability: string | null; values: (number | null)[]; low: (number | null)[]; high: (number | null)[]; count: number[] }[];
  remarks: string[];
}

/** A closed network beside what was measured. */
export interface ClosedFit {
  centres: { name: string; demand_s: number; servers: number }[];
  think_s: number;
  measured: { clients: number; rate: number; response_s: number }[];
  fitted: { clients: number; rate: number; response_s: number }[];
  predicted: { clients: number; rate: number; response_s: number }[];
  bounds: { clients: number; rate_max: number; response_s_min: number }[];
  knee: number;
  difference: number | null;
  fits: boolean | null;
}

export interface Agent {
  name: string;
  address: string;
  ssh: string | null;
  broker: string | null;
  before: string | null;
  after: string | null;
  job: Job | null;
  state: 'ready' | 'absent' | 'not_asked';
  machine: string | null;
  round_trip_us: number | null;
  bytes_per_second: number | null;
  reason: string | null;
}

export interface Agents {
  items: Agent[];
  has_secret: boolean;
}

/** A second of a role. */
export interface Sample {
  at_s: number;
  seconds: number;
  sent: number;
  acknowledged: number;
  received: number;
  p2_5_us: number | null;
  p50_us: number | null;
  p97_5_us: number | null;
  p99_us: number | null;
}
