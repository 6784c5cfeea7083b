// One experiment: its text, and beside it the plan that the text makes.
import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import { request, seg } from '../api/http';
import { Action } from '../ui/Action';
import { duration } from '../ui/format';
import { Badge, Done, Facts, Failure, Field, Head } from '../ui/parts';
import { go, to, useParam } from '../ui/route';
import { isUp, lab, usePolled, useStill, type Experiment, type Listed, type Plan, type Run } from './api';
import { NameAction, putText } from './Experiments';
import { edit, FormOf } from './Form';
import { useAgents, useBuilds } from './Machines';

export function ExperimentPage({ name }: { name: string }) {
  const path = lab(`experiments/${seg(name)}`);
  const found = useStill<Experiment>(path);
  const client = useQueryClient();
  const [text, setText] = useState<string>();
  const [problem, setProblem] = useState<unknown>();
  const [isSaved, setSaved] = useState(false);
  const [view = 'text', setView] = useParam('view');
  const experiment = found.data;
  const shown = text ?? experiment?.toml ?? '';
  const isOwn = experiment?.origin === 'own';
  const written = useQuery({ queryKey: ['edit', shown], queryFn: () => edit(shown), enabled: view === 'form' && shown !== '', placeholderData: keepPreviousData });
  const change = (next: string) => {
    setText(next);
    setSaved(false);
  };
  const isChanged = text !== undefined && text !== experiment?.toml;
  const save = () =>
    putText(name, shown).then(
      (answer) => {
        client.setQueryData([path], answer);
        setText(undefined);
        setProblem(undefined);
        setSaved(true);
      },
      (error: unknown) => setProblem(error),
    );
  if (!experiment) return <Failure error={found.error} />;
  return (
    <>
      <Head title={name} trail={['Experiments', to(['experiments'])]} badges={<Badge kind={isOwn ? 'good' : ''}>{experiment.origin}</Badge>}>
        <RunAction experiment={experiment} disabled={isChanged} />
        <NameAction label="Clone" confirm="Clone" name={`${name}-2`} copyOf={name} />
        {isOwn && <Action label="Delete" title={`Delete ${name}`} confirm="Delete" destroys call={() => ({ method: 'DELETE', path })} after={() => go(to(['experiments']))} />}
      </Head>
      {experiment.parsed && <p className="question">{experiment.parsed.question}</p>}
      <div className="grid editor">
        <section aria-label="Experiment">
          <div className="chips above-list" role="group" aria-label="View of the experiment">
            {[
              ['text', 'Text'],
              ['form', 'Form'],
            ].map(([key, label]) => (
              <button key={key} type="button" className="chip" aria-pressed={view === key} onClick={() => setView(key === 'text' ? undefined : key)}>
                {label}
              </button>
            ))}
          </div>
          {view === 'form' ? (
            <FormOf text={shown} tree={written.data?.tree} error={written.error} isFixed={!isOwn} onText={change} />
          ) : (
            <textarea className="toml" aria-label={`Text of ${name}, TOML`} spellCheck={false} readOnly={!isOwn} value={shown} onChange={(event) => change(event.target.value)} />
          )}
          <div className="row">
            {isOwn ? (
              <>
                <button type="button" className="main" disabled={!isChanged} onClick={() => void save()}>
                  Save
                </button>
                <button type="button" disabled={!isChanged} onClick={() => setText(undefined)}>
                  Undo changes
                </button>
              </>
            ) : (
              <p className="quiet small">It came with the program and stays as it is. A clone can be changed.</p>
            )}
            <Done>{isSaved && !isChanged && 'Saved.'}</Done>
          </div>
          <Failure error={problem} />
        </section>
        <PlanOf text={shown} />
      </div>
      {experiment.parsed?.note && <p className="note-text">{experiment.parsed.note}</p>}
    </>
  );
}

/** The plan of a text, looked at again whenever typing rests. */
function PlanOf({ text }: { text: string }) {
  const [rested, setRested] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setRested(text), 400);
    return () => clearTimeout(timer);
  }, [text]);
  const last = useRef<Plan>(undefined);
  const found = useQuery<Plan>({
    queryKey: ['check', rested],
    queryFn: ({ signal }) => request<Plan>('POST', lab('check'), { json: { toml: rested } }, signal),
    enabled: rested !== '',
  });
  if (found.data) last.current = found.data;
  const plan = last.current;
  return (
    <section className="card" aria-label="Plan">
      <h2>Plan</h2>
      <Failure error={found.error} />
      {plan?.errors.map(({ line, message }) => (
        <div key={message} className="error" role="alert">
          {line !== null && <strong>Line {line}: </strong>}
          {message}
        </div>
      ))}
      {plan && plan.errors.length === 0 && (
        <>
          <Facts
            rows={[
              ['Points', `${plan.points}, ${plan.repetitions} of each`],
              ['Time under load', duration(plan.seconds * 1000)],
              ['Systems', plan.systems.join(', ')],
              ['Order', `shuffled, seed ${plan.order_seed}`],
            ]}
          />
          {plan.warnings.map((warning) => (
            <p key={warning} className="small">
              <Badge kind="note">note</Badge> {warning}
            </p>
          ))}
          {plan.skipped.map(({ system, why, points }) => (
            <p key={`${system} ${why}`} className="small">
              <Badge kind="note">skipped</Badge> {points} of {system}: {why}
            </p>
          ))}
          {plan.resolution !== null && (
            <p className="small">
              A fraction of resolution {plan.resolution}: these effects fall together, and only their sum is measured.
            </p>
          )}
          {plan.aliases.length > 0 && (
            <ul className="plain-list">
              {plan.aliases.map(({ effect, with: others }) => (
                <li key={effect}>
                  <code>{[effect, ...others].join(' + ')}</code>
                </li>
              ))}
            </ul>
          )}
          {plan.factors.length > 0 && (
            <p className="small quiet">{plan.factors.map(({ letter, name }) => `${letter} is ${name}`).join(', ')}</p>
          )}
          {plan.grid.map(({ path, values }) => (
            <div key={path}>
              <h3>{path}</h3>
              <div className="badges">
                {values.map((value) => (
                  <Badge key={JSON.stringify(value)}>{typeof value === 'string' ? value : JSON.stringify(value)}</Badge>
                ))}
              </div>
            </div>
          ))}
        </>
      )}
    </section>
  );
}

function RunAction({ experiment, disabled }: { experiment: Experiment; disabled: boolean }) {
  const known = experiment.parsed?.systems ?? [];
  const [systems, setSystems] = useState(known);
  const [scale, setScale] = useState('1');
  const [repetitions, setRepetitions] = useState('');
  const [agents, setAgents] = useState('');
  const listed = useAgents().data?.items ?? [];
  const [host, setHost] = useState('');
  const [title, setTitle] = useState('');
  const [isFull, setFull] = useState(false);
  const [build, setBuild] = useState('');
  const [there, setThere] = useState('');
  const builds = useBuilds().data?.items.filter(({ ready }) => ready) ?? [];
  const [notBefore, setNotBefore] = useState('');
  const [after, setAfter] = useState('');
  const others = usePolled<Listed<Run>>(lab('runs?count=1000'), 5000).data?.items.filter((run) => isUp(run) || run.state === 'queued') ?? [];
  const toggle = (system: string) => setSystems(systems.includes(system) ? systems.filter((it) => it !== system) : [...systems, system]);
  return (
    <Action<Run>
      label="Run"
      title={`Run ${experiment.name}`}
      confirm="Run"
      className="main"
      disabled={disabled || experiment.error !== null}
      why={disabled ? 'Save the changes first.' : (experiment.error ?? undefined)}
      incomplete={systems.length === 0}
      onOpen={() => setSystems(known)}
      call={() => ({
        method: 'POST',
        path: lab('runs'),
        body: {
          json: {
            experiment: experiment.name,
            scale: Number(scale),
            systems,
            repetitions: repetitions ? Number(repetitions) : null,
            agents: agents.split(/[\s,]+/).filter(Boolean),
            host: host || null,
            title: title || null,
            full: isFull,
            build: build || null,
            addresses: Object.fromEntries(there.split(/[\s,]+/).filter(Boolean).map((pair) => pair.split('=', 2) as [string, string])),
            not_before: notBefore ? new Date(notBefore).getTime() : null,
            after: after || null,
          },
        },
      })}
      after={({ id }) => go(to(['runs', id]))}
    >
      <p className="small">It begins at once, or when the runs before it have ended. Nothing else should work on this machine meanwhile.</p>
      <div className="form two">
        <fieldset className="wide">
          <legend>Systems</legend>
          {known.map((system) => (
            <label key={system} className="check">
              <input type="checkbox" checked={systems.includes(system)} onChange={() => toggle(system)} /> {system}
            </label>
          ))}
        </fieldset>
        <Field label="Scale" help="Of durations and totals; below 1 the small form of the experiment.">
          <input type="number" min="0.001" max="1000" step="any" value={scale} onChange={(event) => setScale(event.target.value)} />
        </Field>
        {experiment.parsed && Object.keys(experiment.parsed.full).length > 0 && (
          <label className="check">
            <input type="checkbox" checked={isFull} onChange={(event) => setFull(event.target.checked)} /> the whole grid ([full])
          </label>
        )}
        {builds.length > 0 && (
          <Field label="Stafett of" help="A revision that was built on the page Machines.">
            <select value={build} onChange={(event) => setBuild(event.target.value)}>
              <option value="">this program</option>
              {builds.map(({ revision }) => (
                <option key={revision}>{revision}</option>
              ))}
            </select>
          </Field>
        )}
        <Field label="Repetitions" help="Those of the experiment if empty.">
          <input type="number" min="1" max="1000" value={repetitions} onChange={(event) => setRepetitions(event.target.value)} />
        </Field>
        {listed.length > 0 && (
          <fieldset className="wide">
            <legend>Agents of the list</legend>
            {listed.map(({ name, address, state }) => {
              const text = `${name}=${address}`;
              const chosen = agents.split(/[\s,]+/).filter(Boolean);
              return (
                <label key={name} className="check">
                  <input type="checkbox" disabled={state === 'absent'} checked={chosen.includes(text)} onChange={(event) => setAgents((event.target.checked ? [...chosen, text] : chosen.filter((it) => it !== text)).join(' '))} /> {name}
                </label>
              );
            })}
          </fieldset>
        )}
        <Field label="Agents" help="NAME=HOST:PORT of each machine that carries the load; none: this one.">
          <input value={agents} onChange={(event) => setAgents(event.target.value)} />
        </Field>
        <Field label="Systems that run already" help="SYSTEM=HOST:PORT of each; the others are started here.">
          <input value={there} onChange={(event) => setThere(event.target.value)} list="brokers" spellCheck={false} />
        </Field>
        <datalist id="brokers">
          {listed.flatMap(({ broker }) => (broker ? [<option key={broker} value={`stafett=${broker}`} />] : []))}
        </datalist>
        <Field label="This machine's address" help="At which agents find the systems.">
          <input value={host} placeholder="127.0.0.1" onChange={(event) => setHost(event.target.value)} />
        </Field>
        <Field label="Not before" help="Empty: as soon as it may.">
          <input type="datetime-local" value={notBefore} onChange={(event) => setNotBefore(event.target.value)} />
        </Field>
        <Field label="After" help="A run that has to end first.">
          <select value={after} onChange={(event) => setAfter(event.target.value)}>
            <option value="">any order</option>
            {others.map(({ id }) => (
              <option key={id}>{id}</option>
            ))}
          </select>
        </Field>
        <Field label="Title" wide>
          <input value={title} onChange={(event) => setTitle(event.target.value)} />
        </Field>
      </div>
    </Action>
  );
}
