// Values that the broker keeps no history of, from the moment at which their page was opened.
import { useEffect, useMemo, useState } from 'react';
import type uPlot from 'uplot';
import { Plot, type Drawn } from './Chart';
import { useTheme } from './theme';

interface Watched {
  name: string;
  label: string;
  value: number;
  /** True for a sum that grows: its rate is drawn. */
  grows?: boolean;
}

interface Sample {
  at: number;
  values: number[];
}

const KEPT = 1800;

/** `stamp` is the time of the values, in ms. */
export function Course({ title, format, stamp, of }: { title: string; format: Drawn['format']; stamp: number; of: Watched[] }) {
  const theme = useTheme();
  const [samples, setSamples] = useState<Sample[]>([]);
  const values = of.map(({ value }) => value);
  useEffect(() => {
    if (stamp > 0) setSamples((before) => (before.at(-1)?.at === stamp / 1000 ? before : [...before, { at: stamp / 1000, values }].slice(-KEPT)));
    // The values are those of the stamp.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [stamp]);
  const names = of.map(({ name, label }) => `${name}\n${label}`).join('\n\n');
  const series = useMemo(
    () =>
      names.split('\n\n').map((pair) => {
        const [name = '', label = ''] = pair.split('\n');
        return { name, label };
      }),
    [names],
  );
  const line = (place: number, grows: boolean | undefined) =>
    samples.map(({ at, values: now }, index) => {
      const before = samples[index - 1];
      if (!grows) return now[place] ?? null;
      return before === undefined ? null : Math.max(0, (now[place] ?? 0) - (before.values[place] ?? 0)) / Math.max(0.001, at - before.at);
    });
  const data = [samples.map(({ at }) => at), ...of.map(({ grows }, place) => line(place, grows))] as uPlot.AlignedData;
  return (
    <figure className="chart card" aria-label={title}>
      <header className="row">
        <h3>{title}</h3>
      </header>
      {samples.length < 3 ? (
        <div className="plot">
          <p className="quiet small">Drawn from now on, while this page is open.</p>
        </div>
      ) : (
        <Plot key={theme} data={data} series={series} format={format} />
      )}
      <div className="legend">
        {series.map(({ name, label }, index) => (
          <span key={name}>
            <i className={`k${index}`} />
            {label} <b>{format((data[index + 1] as (number | null)[]).at(-1))}</b>
          </span>
        ))}
      </div>
    </figure>
  );
}
