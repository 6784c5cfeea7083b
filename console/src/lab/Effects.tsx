// Effects of the factors of a 2^k·r design, the sign table, and the response that the model predicts.
import { useState } from 'react';
import { seg } from '../api/http';
import { share, short } from '../ui/format';
import { Badge, Durability, Failure } from '../ui/parts';
import { Scroll, Table, type Column } from '../ui/Table';
import { lab, useStill, type Effect, type Effects, type Listed, type Point, type Report } from './api';
import { Interactions, Residuals } from './Residuals';

export function EffectsOf({ id, done }: { id: string; done: number }) {
  const found = useStill<Report>(done > 0 ? `${lab(`runs/${seg(id)}/report.json`)}` : null);
  const all = found.data?.runs[0]?.effects ?? [];
  const points = useStill<Listed<Point>>(all.length > 0 ? lab(`runs/${seg(id)}/points?count=1000`) : null).data?.items ?? NONE;
  return (
    <>
      <Failure error={found.error} />
      {all.length === 0 && <div className="empty">The experiment has no factorial design: [run] design = "factorial", and two values for each setting of the grid.</div>}
      {all.map((effects) => (
        <One key={`${effects.system} ${effects.metric}`} effects={effects} points={points} />
      ))}
    </>
  );
}

const columns = (unit: string): Column<Effect>[] => [
  { head: 'Effect', cell: ({ name, aliases }) => <code title={aliases.length > 0 ? 'These fall together in the fraction: the effect is their sum' : undefined}>{[name, ...aliases].join(' + ')}</code> },
  { head: `Value, ${unit}`, num: true, cell: ({ value }) => short(value) },
  { head: '95 % interval', num: true, cell: ({ interval }) => (interval ? `${short(interval.low)} to ${short(interval.high)}` : '–') },
  { head: 'Share of variation', num: true, cell: (effect) => <Share of={effect} /> },
  {
    head: 'Chance',
    cell: ({ interval }) => {
      if (!interval) return <span className="quiet">unknown</span>;
      const isChance = interval.low <= 0 && interval.high >= 0;
      return isChance ? <span className="quiet">not told from chance</span> : <Badge kind="good">told</Badge>;
    },
  },
];

const Share = ({ of: { share: part, name } }: { of: Effect }) => (
  <span className="row end">
    <meter min={0} max={1} value={part ?? 0} aria-label={`Share of ${name}`} /> {share(part)}
  </span>
);

const NONE: Point[] = [];

function One({ effects: { system, metric, unit, durability, analysis, reason }, points }: { effects: Effects; points: Point[] }) {
  const [high, setHigh] = useState<string[]>([]);
  if (!analysis) {
    return (
      <section className="card">
        <h2>
          {system}: {metric}
        </h2>
        <p>{reason}</p>
      </section>
    );
  }
  const { factors } = analysis.design;
  const sign = (name: string, isHigh: (letter: string) => boolean): number => [...name].reduce((product, letter) => product * (isHigh(letter) ? 1 : -1), 1);
  const predicted = analysis.effects.reduce((sum, { name, value }) => sum + value * sign(name, (letter) => high.includes(letter)), analysis.mean.value);
  const isHighIn = (row: number) => (letter: string) => Boolean(((analysis.design.rows[row] ?? 0) >> factors.findIndex((factor) => factor.letter === letter)) & 1);
  return (
    <section className="card" aria-label={`Effects on ${metric} of ${system}`}>
      <h2>
        {system}: {metric} <Durability level={durability} />
      </h2>
      <p className="small">
        Mean {short(analysis.mean.value)} {unit}; {analysis.repetitions} repetitions; {analysis.error ? `${share(analysis.error.share)} of the variation is error` : 'without repetitions there is no error to compare with'}.
      </p>
      <Scroll>
        <Table caption="Effects" columns={columns(unit)} rows={analysis.effects} keyOf={({ name }) => name} />
      </Scroll>
      {analysis.design.words.length > 0 && <p className="small">A fraction of all combinations was measured: an effect is the sum of those that fall together with it. The prediction takes the first of each for real.</p>}
      <h3>Predicted response</h3>
      <div className="row">
        {factors.map(({ letter, name, low, high: top }) => (
          <label key={letter} className="check">
            <input type="checkbox" checked={high.includes(letter)} onChange={() => setHigh(high.includes(letter) ? high.filter((it) => it !== letter) : [...high, letter])} />
            {letter}: {name} {high.includes(letter) ? top : low}
          </label>
        ))}
        <strong>
          {short(predicted)} {unit}
        </strong>
      </div>
      <details>
        <summary>Sign table</summary>
        <Scroll>
          <table>
            <caption className="unseen">Sign table</caption>
            <thead>
              <tr>
                <th>I</th>
                {analysis.effects.map(({ name }) => (
                  <th key={name}>{name}</th>
                ))}
                <th className="num">{unit}</th>
              </tr>
            </thead>
            <tbody>
              {analysis.responses.map((response, row) => (
                <tr key={row}>
                  <td>+</td>
                  {analysis.effects.map(({ name }) => (
                    <td key={name}>{sign(name, isHighIn(row)) > 0 ? '+' : '−'}</td>
                  ))}
                  <td className="num">{short(response)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      </details>
      {factors.length > 1 && (
        <details>
          <summary>Interactions</summary>
          <Interactions factors={factors} unit={unit} corners={analysis.responses.map((response, row) => ({ response, isHigh: isHighIn(row) }))} />
        </details>
      )}
      <details>
        <summary>Residuals</summary>
        <Residuals points={points} system={system} metric={metric} unit={unit} />
      </details>
    </section>
  );
}
