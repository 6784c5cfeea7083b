// What is to be looked at before an effect is believed: residuals against the prediction, against the order of the
// points, and against normal quantiles; and the interactions of pairs of factors.
import { useMemo } from 'react';
import type uPlot from 'uplot';
import { Plot } from '../ui/Chart';
import { short } from '../ui/format';
import { Badge } from '../ui/parts';
import { useTheme } from '../ui/theme';
import type { Point } from './api';

interface Residual {
  number: number;
  predicted: number;
  residual: number;
}

const POINTS = [{ name: 'residual', label: 'residual' }];
const ONLY_POINTS = [false];

/** Differences of points to the mean of their combination. */
export function residualsOf(points: Point[], system: string, metric: string): Residual[] {
  const groups = new Map<string, { number: number; value: number }[]>();
  for (const point of points) {
    const value = point.metrics[metric];
    if (point.system !== system || point.outcome !== 'done' || value === undefined) continue;
    const key = JSON.stringify(point.parameters);
    groups.set(key, [...(groups.get(key) ?? []), { number: point.number, value }]);
  }
  return [...groups.values()].flatMap((group) => {
    const mean = group.reduce((sum, { value }) => sum + value, 0) / group.length;
    return group.length < 2 ? [] : group.map(({ number, value }) => ({ number, predicted: mean, residual: value - mean }));
  });
}

/** Quantile of the normal distribution (A. Hastings, 1955, as in Jain): good to 0.0005. */
export function normalQuantile(share: number): number {
  const at = share < 0.5 ? share : 1 - share;
  const t = Math.sqrt(-2 * Math.log(at));
  const value = t - (2.515517 + 0.802853 * t + 0.010328 * t * t) / (1 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t ** 3);
  return share < 0.5 ? -value : value;
}

/** True if the spread of residuals grows with the prediction: that of the upper half is three times that of the lower. */
function doesSpreadGrow(all: Residual[]): boolean {
  const sorted = [...all].sort((one, other) => one.predicted - other.predicted);
  const half = sorted.length >> 1;
  const spread = (some: Residual[]) => Math.sqrt(some.reduce((sum, { residual }) => sum + residual ** 2, 0) / Math.max(1, some.length));
  const [low, high] = [spread(sorted.slice(0, half)), spread(sorted.slice(half))];
  return half >= 4 && sorted[0]!.predicted * 1.5 < sorted.at(-1)!.predicted && high > 3 * low;
}

export function Residuals({ points, system, metric, unit }: { points: Point[]; system: string; metric: string; unit: string }) {
  const all = useMemo(() => residualsOf(points, system, metric), [points, system, metric]);
  if (all.length === 0) return <p className="small quiet">Without repetitions there are no residuals to look at.</p>;
  const sorted = [...all].sort((one, other) => one.residual - other.residual);
  const quantiles = sorted.map(({ residual }, rank): [number, number] => [normalQuantile((rank + 0.5) / sorted.length), residual]);
  return (
    <>
      <p className="small">
        Residuals should be without a pattern, and lie on a line over normal quantiles.{' '}
        {doesSpreadGrow(all) && <><Badge kind="note">note</Badge> Their spread grows with the mean: the logarithm of the response may be the better one to analyse.</>}
      </p>
      <div className="grid">
        <Scatter title={`Residuals over the prediction, ${unit}`} pairs={all.map(({ predicted, residual }) => [predicted, residual])} />
        <Scatter title="Residuals over the number of the point" pairs={all.map(({ number, residual }) => [number, residual])} />
        <Scatter title="Residuals over normal quantiles" pairs={quantiles} />
      </div>
    </>
  );
}

function Scatter({ title, pairs }: { title: string; pairs: [number, number][] }) {
  const theme = useTheme();
  const sorted = useMemo(() => [...pairs].sort(([one], [other]) => one - other), [pairs]);
  const data: uPlot.AlignedData = [sorted.map(([x]) => x), sorted.map(([, y]) => y)];
  return (
    <figure className="chart" aria-label={title}>
      <h3>{title}</h3>
      <Plot key={theme} data={data} series={POINTS} format={short} clock={false} joined={ONLY_POINTS} isSigned />
    </figure>
  );
}

export interface Corner {
  isHigh: (letter: string) => boolean;
  response: number;
}

/** Means of the four corners of each pair of factors: lines that are not parallel are an interaction. */
export function Interactions({ factors, corners, unit }: { factors: { letter: string; name: string; low: string; high: string }[]; corners: Corner[]; unit: string }) {
  const pairs = factors.flatMap((one, at) => factors.slice(at + 1).map((other): [typeof one, typeof one] => [one, other]));
  const mean = (one: string, isOneHigh: boolean, other: string, isOtherHigh: boolean): number => {
    const some = corners.filter(({ isHigh }) => isHigh(one) === isOneHigh && isHigh(other) === isOtherHigh);
    return some.reduce((sum, { response }) => sum + response, 0) / Math.max(1, some.length);
  };
  return (
    <div className="grid">
      {pairs.map(([one, other]) => (
        <Pair key={one.letter + other.letter} one={one} other={other} unit={unit} at={(isOneHigh, isOtherHigh) => mean(one.letter, isOneHigh, other.letter, isOtherHigh)} />
      ))}
    </div>
  );
}

const JOINED = [true, true];

function Pair({ one, other, unit, at }: { one: { letter: string; name: string; low: string; high: string }; other: { letter: string; name: string; low: string; high: string }; unit: string; at: (isOneHigh: boolean, isOtherHigh: boolean) => number }) {
  const theme = useTheme();
  const series = useMemo(
    () => [
      { name: 'low', label: `${other.name} ${other.low}` },
      { name: 'high', label: `${other.name} ${other.high}` },
    ],
    [other],
  );
  const data: uPlot.AlignedData = [
    [0, 1],
    [at(false, false), at(true, false)],
    [at(false, true), at(true, true)],
  ];
  const title = `${one.letter} with ${other.letter}`;
  return (
    <figure className="chart" aria-label={title}>
      <h3>
        {title}, {unit}
      </h3>
      <Plot key={theme} data={data} series={series} format={short} clock={false} joined={JOINED} ends={[`${one.name} ${one.low}`, `${one.name} ${one.high}`]} />
      <div className="legend">
        {series.map(({ name, label }, index) => (
          <span key={name}>
            <i className={`k${index}`} />
            {label}
          </span>
        ))}
      </div>
    </figure>
  );
}
