// Experiments that come with the program, and own ones.
import { useState } from 'react';
import { request, seg } from '../api/http';
import { Action } from '../ui/Action';
import { Badge, Failure, Field, Head } from '../ui/parts';
import { go, Link, to } from '../ui/route';
import { Table, type Column } from '../ui/Table';
import { lab, usePolled, type ExperimentLine, type Listed } from './api';

const NEW = `question = "How fast is it?"
systems = ["stafett"]

[run]
duration = "10s"
warmup = "2s"
repetitions = 3

[roles.producers]
does = "produce"

[roles.consumers]
does = "consume"

[grid]
"roles.producers.size" = [100, 1024]

[[figures]]
title = "Messages per second"
kind = "bars"
x = "roles.producers.size"
y = ["produce_rate"]
`;

const COLUMNS: Column<ExperimentLine>[] = [
  { head: 'Experiment', cell: ({ name }) => <Link href={to(['experiments', name])}>{name}</Link>, phone: 'full' },
  { head: 'Question', cell: ({ question, error }) => (error ? <Badge kind="bad">{error}</Badge> : question), phone: 'full', wide: true },
  { head: 'Systems', cell: ({ systems }) => systems.join(', ') },
  { head: 'Origin', cell: ({ origin }) => <Badge kind={origin === 'own' ? 'good' : ''}>{origin}</Badge> },
];

export function Experiments() {
  const [text, setText] = useState('');
  const found = usePolled<Listed<ExperimentLine>>(lab('experiments?count=1000'), 5000);
  const needle = text.toLowerCase();
  const rows = (found.data?.items ?? []).filter(({ name, question, note }) => `${name} ${question} ${note}`.toLowerCase().includes(needle));
  rows.sort((a, b) => Number(a.origin === 'built-in') - Number(b.origin === 'built-in'));
  return (
    <>
      <Head title="Experiments">
        <NameAction label="New experiment" confirm="Make it" name="mine" body={NEW} />
      </Head>
      <div className="tools">
        <input type="search" data-search aria-label="Search experiments" placeholder="Search names, questions and papers" value={text} onChange={(event) => setText(event.target.value)} />
      </div>
      <Failure error={found.error} />
      {rows.length > 0 ? <Table caption="Experiments" columns={COLUMNS} rows={rows} keyOf={({ name }) => name} /> : found.data && <div className="empty">Nothing matches.</div>}
    </>
  );
}

/** Makes an own experiment under a name that is asked for: from a text, or as a copy. */
export function NameAction({ label, confirm, name, body, copyOf }: { label: string; confirm: string; name: string; body?: string; copyOf?: string }) {
  const [chosen, setChosen] = useState(name);
  return (
    <Action
      label={label}
      title={label}
      confirm={confirm}
      className={copyOf ? undefined : 'main'}
      incomplete={chosen === ''}
      call={() => ({
        method: 'PUT',
        path: lab(`experiments/${seg(chosen)}${copyOf ? `?clone=${seg(copyOf)}` : ''}`),
        body: body === undefined ? undefined : { text: body, type: 'text/plain' },
      })}
      after={() => go(to(['experiments', chosen]))}
    >
      <Field label="Name" help="Letters, digits, points, hyphens and underscores. An own experiment of this name is replaced.">
        <input value={chosen} onChange={(event) => setChosen(event.target.value)} required />
      </Field>
    </Action>
  );
}

export const putText = (name: string, text: string): Promise<unknown> => request('PUT', lab(`experiments/${seg(name)}`), { text, type: 'text/plain' });
