// A question about measurements as controls over its chart, which follows at once; analyses are kept by name.
import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query';
import { useMemo, useState, type ReactNode } from 'react';
import type uPlot from 'uplot';
import { request, requestText, seg } from '../api/http';
import { Action } from '../ui/Action';
import { Plot } from '../ui/Chart';
import { byteRate, rate, short } from '../ui/format';
import { Badge, Durability, Failure, Field, Head, save } from '../ui/parts';
import { to, useParam, Link } from '../ui/route';
import { Scroll, Table, type Column } from '../ui/Table';
import { useTheme } from '../ui/theme';
import { lab, parameters, usePolled, type Analysis, type Listed, type Point, type Question, type Run } from './api';

const WHAT: [string, string][] = [
  ['response_time', 'response time'],
  ['throughput', 'throughput'],
  ['clients', 'clients at work'],
  ['timed_out', 'not answered in time'],
  ['failed', 'refused or given up'],
  ['reconnects', 'reconnects'],
  ['broker_cpu', "broker's processors"],
  ['client_cpu', "client's processors"],
  ['broker_memory', "broker's memory"],
  ['network_in', 'network, received'],
  ['network_out', 'network, sent'],
  ['disk_read', 'read from disk'],
  ['disk_written', 'written to disk'],
];
const BANDS: [string, string][] = [
  ['2.5,97.5', '2.5 to 97.5 %'],
  ['25,75', '25 to 75 %'],
  ['5,95', '5 to 95 %'],
  ['0,99', 'up to 99 %'],
  ['', 'none'],
];
const ACTIONS = ['request', 'receive', 'process', 'store', 'send', 'append', 'sync'];
const WINDOWS: [number, string][] = [
  [1, '1 s'],
  [10, '10 s'],
  [30, '30 s'],
  [60, '1 min'],
  [300, '5 min'],
];

const START: Question = { of: [], what: 'response_time', window_s: 10, cut: { back_s: 0 }, stat: 'median', band: [2.5, 97.5], by: ['system', 'role'] };

const format = (unit: string) => (value: number | null | undefined): string =>
  value == null ? '–' : unit === 'µs' ? `${short(value / 1000)} ms` : unit === '1/s' ? rate(value) : unit === 'B/s' ? byteRate(value) : `${short(value)} ${unit}`.trim();

/** The question is the address, so that a link asks the same. */
function useQuestion(): [Question, (question: Question) => void] {
  const [text, setText] = useParam('ask');
  const question = useMemo(() => {
    try {
      return { ...START, ...(JSON.parse(text ?? '{}') as Partial<Question>) };
    } catch {
      return START;
    }
  }, [text]);
  return [question, (next) => setText(JSON.stringify(next))];
}

export function AnalysisPage() {
  const runs = usePolled<Listed<Run>>(lab('runs?count=1000'), 10_000).data?.items.filter(({ done }) => done > 0) ?? [];
  const [question, setQuestion] = useQuestion();
  const isReady = (question.logs ?? []).length > 0 || question.of.length > 0;
  const found = useQuery<Analysis>({
    queryKey: ['analyze', question],
    queryFn: ({ signal }) => request<Analysis>('POST', lab('analyze'), { json: question }, signal),
    enabled: isReady,
    placeholderData: keepPreviousData,
  });
  const kept = usePolled<{ items: { name: string; question: Question }[] }>(lab('charts'), 10_000).data?.items ?? [];
  return (
    <>
      <Head title="Analysis">{isReady && <Keep question={question} />}</Head>
      <Kept kept={kept} />
      <Controls runs={runs} question={question} onChange={setQuestion} />
      <Failure error={found.error} />
      {!isReady && <div className="empty">{runs.length === 0 ? 'No run has points yet. Folders with performance logs can be analysed, too.' : 'Choose a run, or name folders with performance logs.'}</div>}
      {isReady && found.data && <Answer analysis={found.data} question={question} />}
    </>
  );
}

function Keep({ question }: { question: Question }) {
  const [name, setName] = useState('');
  return (
    <Action label="Keep" className="main" title="Keep this analysis" confirm="Keep" incomplete={!name} call={() => ({ method: 'PUT', path: lab(`charts/${seg(name)}`), body: { json: question } })} after={() => setName('')}>
      <p>It is stored with its first run, is in its download, and is drawn anew with points that come later.</p>
      <Field label="Name" help="Letters, digits, points, hyphens">
        <input value={name} onChange={(event) => setName(event.target.value)} autoFocus data-focus required spellCheck={false} />
      </Field>
    </Action>
  );
}

function Kept({ kept }: { kept: { name: string; question: Question }[] }) {
  const client = useQueryClient();
  if (kept.length === 0) return null;
  return (
    <section className="card" aria-label="Kept analyses">
      <h2>Kept</h2>
      <ul className="plain-list">
        {kept.map(({ name, question }) => (
          <li key={name} className="row">
            <Link href={to(['analysis'], { ask: JSON.stringify(question) })}>{name}</Link> <span className="quiet small">{question.title ?? WHAT.find(([key]) => key === question.what)?.[1]}</span>
            <button type="button" className="plain small" aria-label={`Forget ${name}`} onClick={() => void request('DELETE', lab(`charts/${seg(name)}`)).finally(() => client.invalidateQueries())}>
              Forget
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Controls({ runs, question, onChange }: { runs: Run[]; question: Question; onChange: (question: Question) => void }) {
  const set = (change: Partial<Question>) => onChange({ ...question, ...change });
  const isLog = question.logs !== undefined;
  const chosen = question.of.map(({ run }) => run);
  const toggle = (id: string) => set({ of: chosen.includes(id) ? question.of.filter(({ run }) => run !== id) : [...question.of, { run: id }] });
  return (
    <section className="card" aria-label="Question">
      <div className="form two">
        <Field label="Source">
          <select value={isLog ? 'logs' : 'runs'} onChange={(event) => onChange(event.target.value === 'logs' ? { ...START, logs: [], actions: ['request'], by: [] } : START)}>
            <option value="runs">points of runs</option>
            <option value="logs">performance logs of brokers and clients</option>
          </select>
        </Field>
        <Field label="What">
          <select value={question.what} onChange={(event) => set({ what: event.target.value })}>
            {(isLog ? WHAT.slice(0, 2) : WHAT).map(([key, text]) => (
              <option key={key} value={key}>
                {text}
              </option>
            ))}
          </select>
        </Field>
        <Field label="Window">
          <select value={question.window_s} onChange={(event) => set({ window_s: Number(event.target.value) })}>
            {WINDOWS.map(([seconds, text]) => (
              <option key={seconds} value={seconds}>
                {text}
              </option>
            ))}
          </select>
        </Field>
        <Field label="Middle">
          <select value={question.stat} onChange={(event) => set({ stat: event.target.value })}>
            <option>median</option>
            <option>mean</option>
          </select>
        </Field>
        <Field label="Band">
          <select
            value={(question.band ?? []).join(',')}
            onChange={(event) => {
              const [low, high] = event.target.value.split(',').map(Number);
              set({ band: event.target.value === '' || low === undefined || high === undefined ? null : [low, high] });
            }}
          >
            {BANDS.map(([value, text]) => (
              <option key={value} value={value}>
                {text}
              </option>
            ))}
          </select>
        </Field>
        <Field label="Cut at the front, s" help="Empty: the warm-up">
          <input type="number" min="0" value={question.cut.front_s ?? ''} onChange={(event) => set({ cut: { ...question.cut, front_s: event.target.value === '' ? undefined : Number(event.target.value) } })} />
        </Field>
        <Field label="Cut at the back, s">
          <input type="number" min="0" value={question.cut.back_s} onChange={(event) => set({ cut: { ...question.cut, back_s: Number(event.target.value) } })} />
        </Field>
        <Field label="Title">
          <input value={question.title ?? ''} onChange={(event) => set({ title: event.target.value || undefined })} />
        </Field>
        <label className="check">
          <input type="checkbox" checked={question.log_y ?? false} onChange={(event) => set({ log_y: event.target.checked || undefined })} /> logarithmic
        </label>
        {isLog ? (
          <Logs question={question} set={set} />
        ) : (
          <>
            <fieldset className="wide">
              <legend>Runs</legend>
              {runs.map((run) => (
                <label key={run.id} className="check">
                  <input type="checkbox" checked={chosen.includes(run.id)} onChange={() => toggle(run.id)} /> {run.notes.title ?? run.id}
                </label>
              ))}
              {runs.length === 0 && <span className="quiet">none has points</span>}
            </fieldset>
            {question.of.map(({ run }) => (
              <Sources key={run} run={runs.find(({ id }) => id === run)} question={question} set={set} />
            ))}
            <By question={question} set={set} runs={runs} />
          </>
        )}
      </div>
    </section>
  );
}

type Set = (change: Partial<Question>) => void;

function Logs({ question, set }: { question: Question; set: Set }) {
  const [text, setText] = useState((question.logs ?? []).join('\n'));
  const actions = question.actions ?? [];
  return (
    <>
      <Field label="Folders" help="One a line, on the machine of this page; a broker writes its log into the setting trace.dir" wide>
        <textarea className="low" value={text} spellCheck={false} onChange={(event) => setText(event.target.value)} onBlur={() => set({ logs: text.split('\n').map((line) => line.trim()).filter(Boolean) })} />
      </Field>
      <fieldset className="wide">
        <legend>Actions</legend>
        {ACTIONS.map((action) => (
          <label key={action} className="check">
            <input type="checkbox" checked={actions.includes(action)} onChange={(event) => set({ actions: event.target.checked ? [...actions, action] : actions.filter((it) => it !== action) })} /> {action}
          </label>
        ))}
      </fieldset>
      <Field label="Names of requests" help="* stands for any letters">
        <input value={question.name ?? ''} placeholder="*" spellCheck={false} onChange={(event) => set({ name: event.target.value || undefined })} />
      </Field>
    </>
  );
}

/** Points and roles of a run; none ticked is all. */
function Sources({ run, question, set }: { run: Run | undefined; question: Question; set: Set }) {
  const points = usePolled<Listed<Point>>(run ? lab(`runs/${seg(run.id)}/points?count=1000&columns=number,system,parameters,repetition,outcome`) : null, 30_000).data?.items ?? [];
  const first = points.find(({ outcome }) => outcome === 'done')?.number;
  const whole = usePolled<{ roles: { name: string }[] }>(run && first !== undefined ? lab(`runs/${seg(run.id)}/points/${first}`) : null, 600_000).data;
  if (!run) return null;
  const source = question.of.find((it) => it.run === run.id) ?? { run: run.id };
  const change = (next: Partial<typeof source>) => set({ of: question.of.map((it) => (it.run === run.id ? { ...it, ...next } : it)) });
  const flip = <T,>(all: T[] | undefined, one: T): T[] => ((all ?? []).includes(one) ? (all ?? []).filter((it) => it !== one) : [...(all ?? []), one]);
  return (
    <fieldset className="wide">
      <legend>Points and roles of {run.notes.title ?? run.id}; none is all</legend>
      {whole?.roles.map(({ name }) => (
        <label key={name} className="check">
          <input type="checkbox" checked={(source.roles ?? []).includes(name)} onChange={() => change({ roles: flip(source.roles, name) })} /> role {name}
        </label>
      ))}
      <details className="wide">
        <summary>{source.points?.length ? `${source.points.length} of ${points.length} points` : `all ${points.length} points`}</summary>
        <div className="boxes" role="group" aria-label={`Points of ${run.id}`}>
          {points
            .filter(({ outcome }) => outcome === 'done' || outcome === 'lost')
            .map((point) => (
              <label key={point.number} className="check">
                <input type="checkbox" checked={(source.points ?? []).includes(point.number)} onChange={() => change({ points: flip(source.points, point.number) })} /> {point.number}: {point.system} {parameters(point.parameters)} #{point.repetition}
              </label>
            ))}
        </div>
      </details>
    </fieldset>
  );
}

/** What tells series apart. */
function By({ question, set, runs }: { question: Question; set: Set; runs: Run[] }) {
  const chosen = runs.filter(({ id }) => question.of.some(({ run }) => run === id));
  const points = usePolled<Listed<Point>>(chosen[0] ? lab(`runs/${seg(chosen[0].id)}/points?count=1000&columns=number,parameters`) : null, 30_000).data?.items ?? [];
  const paths = [...new Set(points.flatMap(({ parameters: of }) => Object.keys(of)))];
  const by = question.by;
  return (
    <fieldset className="wide">
      <legend>A line for each</legend>
      {['run', 'system', 'role', 'point', 'repetition', 'durability', ...paths].map((part) => (
        <label key={part} className="check">
          <input type="checkbox" checked={by.includes(part)} onChange={(event) => set({ by: event.target.checked ? [...by, part] : by.filter((it) => it !== part) })} /> {part}
        </label>
      ))}
    </fieldset>
  );
}

const FORMS: [string, string, string][] = [
  ['svg', 'analysis.svg', 'SVG'],
  ['csv', 'analysis.csv', 'CSV'],
  ['gnuplot', 'analysis.gnuplot', 'gnuplot'],
];

async function saved(question: Question, form: string, file: string): Promise<void> {
  save(file, await requestText('POST', lab(`analyze?as=${form}`), { json: question }));
}

/** The chart as a picture of points, drawn from its SVG. */
async function png(question: Question): Promise<void> {
  const text = await requestText('POST', lab('analyze?as=svg'), { json: question });
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [image.width * 2, image.height * 2];
  canvas.getContext('2d')?.drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => blob && save('analysis.png', [blob], 'image/png'));
}

function Answer({ analysis, question }: { analysis: Analysis; question: Question }) {
  const theme = useTheme();
  const [error, setError] = useState<unknown>();
  const [hidden, setHidden] = useState<string[]>([]);
  const shown = analysis.series.filter(({ name }) => !hidden.includes(name));
  const show = useMemo(() => format(analysis.unit), [analysis.unit]);
  const names = shown.map(({ name }) => name).join('\n');
  const hasBand = shown.length === 1 && shown[0]!.low.some((value) => value !== null);
  const series = useMemo(() => {
    const lines = names === '' ? [] : names.split('\n').map((name, index) => ({ name: `s${index}`, label: name }));
    return hasBand ? [...lines, { name: 'low', label: 'low' }, { name: 'high', label: 'high' }] : lines;
  }, [names, hasBand]);
  const data = [analysis.x, ...shown.map(({ values }) => values), ...(hasBand ? [shown[0]!.low, shown[0]!.high] : [])] as uPlot.AlignedData;
  const rows = analysis.x.map((at, row) => ({ at, row }));
  const columns: Column<(typeof rows)[number]>[] = [
    { head: 'Second', num: true, cell: ({ at }) => short(at) },
    ...shown.flatMap((of): Column<(typeof rows)[number]>[] => [
      { head: of.name, num: true, cell: ({ row }) => show(of.values[row]) },
      ...(question.band ? [{ head: `${of.name}, band`, num: true, cell: ({ row }: { row: number }): ReactNode => `${show(of.low[row])} to ${show(of.high[row])}` }] : []),
    ]),
  ];
  const act = (work: Promise<void>) => void work.then(() => setError(undefined), setError);
  return (
    <section className="card" aria-label="Chart">
      <header>
        <h2>{analysis.title}</h2>
        <span className="row">
          {FORMS.map(([form, file, text]) => (
            <button key={form} type="button" onClick={() => act(saved(question, form, file))}>
              {text}
            </button>
          ))}
          <button type="button" onClick={() => act(png(question))}>
            PNG
          </button>
        </span>
      </header>
      <Failure error={error} />
      {analysis.remarks.map((remark) => (
        <p key={remark} className="small">
          <Badge kind="note">note</Badge> {remark}
        </p>
      ))}
      {analysis.x.length === 0 ? (
        <p className="quiet">No window has a value: the points are shorter than the cut, or have nothing of this kind.</p>
      ) : (
        <>
          <figure className="chart" aria-label={analysis.title}>
            <Plot key={theme + analysis.unit} data={data} series={series} format={show} clock={false} bands={hasBand ? [[3, 2]] : []} isLog={question.log_y} />
            <figcaption className="small quiet">
              {analysis.label}, over the seconds of the load{hasBand && question.band ? `; the band is from ${question.band[0]} to ${question.band[1]} %` : question.band && shown.length > 1 ? '; one line alone is shown with its band' : ''}
            </figcaption>
          </figure>
          <div className="chips" role="group" aria-label="Lines">
            {analysis.series.map(({ name, durability }, index) => (
              <button key={name} type="button" className="chip" aria-pressed={!hidden.includes(name)} onClick={() => setHidden(hidden.includes(name) ? hidden.filter((it) => it !== name) : [...hidden, name])}>
                {name} {durability && index < 8 && <Durability level={durability} />}
              </button>
            ))}
          </div>
          <details>
            <summary>As a table</summary>
            <Scroll low>
              <Table narrow caption={analysis.title} columns={columns} rows={rows} keyOf={({ at }) => String(at)} />
            </Scroll>
          </details>
        </>
      )}
    </section>
  );
}
