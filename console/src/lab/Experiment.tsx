// One experiment: its text, and beside it the plan that the text makes.
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import { request, seg } from '../api/http';
import { Action } from '../ui/Action';
import { duration } from '../ui/format';
import { Badge, Done, Facts, Failure, Field, Head } from '../ui/parts';
import { go, to } from '../ui/route';
import { lab, useStill, type Experiment, type Plan, type Run } from './api';
import { NameAction, putText } from './Experiments';

export function ExperimentPage({ name }: { name: string }) {
  const path = lab(`experiments/${seg(name)}`);
  const found = useStill<Experiment>(path);
  const client = useQueryClient();
  const [text, setText] = useState<string>();
  const [problem, setProblem] = useState<unknown>();
  const [isSaved, setSaved] = useState(false);
  const experiment = found.data;
  const shown = text ?? experiment?.toml ?? '';
  const isOwn = experiment?.origin === 'own';
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
        <section aria-label="Text">
          <textarea
            className="toml"
            aria-label={`Text of ${name}, TOML`}
            spellCheck={false}
            readOnly={!isOwn}
            value={shown}
            onChange={(event) => {
              setText(event.target.value);
              setSaved(false);
            }}
          />
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
  const [host, setHost] = useState('');
  const [title, setTitle] = useState('');
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
        <Field label="Repetitions" help="Those of the experiment if empty.">
          <input type="number" min="1" max="1000" value={repetitions} onChange={(event) => setRepetitions(event.target.value)} />
        </Field>
        <Field label="Agents" help="NAME=HOST:PORT of each machine that carries the load; none: this one.">
          <input value={agents} onChange={(event) => setAgents(event.target.value)} />
        </Field>
        <Field label="This machine's address" help="At which agents find the systems.">
          <input value={host} placeholder="127.0.0.1" onChange={(event) => setHost(event.target.value)} />
        </Field>
        <Field label="Title" wide>
          <input value={title} onChange={(event) => setTitle(event.target.value)} />
        </Field>
      </div>
    </Action>
  );
}
