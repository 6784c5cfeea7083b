import { useState } from 'react';
import { request } from '../../api/http';
import { useLive, useRefresh } from '../../api/live';
import type { DeletedSink, Sink as State, SinkPlace, SinkPositions } from '../../api/types';
import { Action } from '../../ui/Action';
import { Course } from '../../ui/Course';
import { bytes, count, counted, duration, rate, short, visible } from '../../ui/format';
import { Badge, Facts, Failure, Field, Figures, Head, Meter } from '../../ui/parts';
import { go, Link, to } from '../../ui/route';
import { Scroll, Table, type Column } from '../../ui/Table';
import { Sources, State as StateBadge, sinkUrl } from './Sinks';

export function Sink({ name }: { name: string }) {
  const { data: sink, error, dataUpdatedAt } = useLive<State>(sinkUrl(name));
  if (!sink || error) {
    return (
      <>
        <Head title={visible(name)} trail={['Sinks', to(['sinks'])]} />
        <Failure error={error} />
      </>
    );
  }
  return (
    <>
      <Head
        title={visible(name)}
        trail={['Sinks', to(['sinks'])]}
        badges={
          <>
            <StateBadge of={sink} />
            <Badge title="What the store has after a crash">{sink.promise}</Badge>
          </>
        }
      >
        <Actions sink={sink} />
      </Head>
      {sink.why && (
        <p className={sink.state === 'stopped' ? 'error' : 'lead'} role="status">
          {visible(sink.why)}
        </p>
      )}
      <p className="quiet lead">
        Writes <Sources of={sink.from} /> to {visible(sink.to)}.
      </p>
      <Figures
        of={[
          { name: 'Lag', value: short(sink.lag), exact: count(sink.lag), more: 'records that the target does not have' },
          { name: 'Rows', value: short(sink.rows), exact: count(sink.rows), more: `${bytes(sink.bytes)} since its process started` },
          { name: 'Dead letters', value: count(sink.poison), more: 'records that did not fit' },
          { name: 'Taken over', value: count(sink.fenced), more: 'times by another process' },
        ]}
      />
      <div className="grid">
        <Course title="Lag" format={short} stamp={dataUpdatedAt} of={[{ name: 'lag', label: 'Lag', value: sink.lag }]} />
        <Course title="Rows per second" format={rate} stamp={dataUpdatedAt} of={[{ name: 'rows', label: 'Rows', value: sink.rows, grows: true }]} />
      </div>
      <Places places={sink.places} />
      <div className="grid">
        <section className="card">
          <header>
            <h2>Flushes, since its process started</h2>
          </header>
          <Facts
            rows={[
              ...counts(sink.flushes, (cause) => `By ${cause}`),
              ['Time spent on them', duration(sink.flush_ms)],
              ['Time spent waiting for limits', duration(sink.limited_ms)],
              ...counts(sink.retries, (kind) => (kind === 'stop' ? 'Failures that stopped it' : 'Failures that were tried again')),
            ]}
          />
        </section>
        <section className="card">
          <header>
            <h2>Definition</h2>
          </header>
          <pre tabIndex={0}>{visible(JSON.stringify(sink.definition, null, 2))}</pre>
        </section>
      </div>
    </>
  );
}

const counts = (of: Record<string, number>, text: (name: string) => string): [string, string][] => Object.entries(of).map(([name, value]) => [text(name), count(value)]);

function Places({ places }: { places: SinkPlace[] }) {
  const lag = ({ next, end }: SinkPlace) => Math.max(0, end - next);
  const most = Math.max(1, ...places.map(lag));
  const columns: Column<SinkPlace>[] = [
    {
      head: 'Partition',
      cell: ({ topic, partition, next }) => (
        <Link href={to(['topics', topic], { tab: 'records', partition: String(partition), from: String(next) })}>
          {visible(topic)} {partition}
        </Link>
      ),
    },
    { head: 'Next', num: true, cell: ({ next }) => count(next) },
    { head: 'End', num: true, cell: ({ end }) => count(end) },
    { head: 'Lag', num: true, cell: (place) => count(lag(place)) },
    { head: 'Share of the largest lag', unseen: true, wide: true, phone: 'less', cell: (place) => <Meter share={lag(place) / most} kind={1} /> },
  ];
  return (
    <section className="card">
      <header>
        <h2>Partitions</h2>
      </header>
      {places.length === 0 ? (
        <p className="quiet">The process of sinks has told of no partition. It tells of those that it has.</p>
      ) : (
        <Scroll>
          <Table caption="Partitions" columns={columns} rows={places} keyOf={({ topic, partition }) => `${topic} ${partition}`} />
        </Scroll>
      )}
    </section>
  );
}

function Actions({ sink }: { sink: State }) {
  const refresh = useRefresh();
  const [error, setError] = useState<unknown>();
  const rests = sink.state === 'paused';
  const flip = () => {
    setError(undefined);
    request('POST', sinkUrl(sink.name, rests ? '/resume' : '/pause')).then(refresh, setError);
  };
  return (
    <>
      <button type="button" onClick={flip} title={rests ? 'Go on where the target is' : 'Write nothing; the position stays in the target'}>
        {rests ? 'Resume' : 'Pause'}
      </button>
      {sink.state === 'stopped' && <AcceptGap sink={sink} />}
      <Replay sink={sink} />
      <Action<DeletedSink>
        label="Delete"
        destroys
        title={`Delete ${visible(sink.name)}`}
        confirm="Delete the sink"
        call={() => ({ method: 'DELETE', path: sinkUrl(sink.name) })}
        after={() => go(to(['sinks']))}
      >
        <p>
          The definition goes, and its process ends. Rows and positions in the target stay: a sink of the same name and target goes on there. {counted(sink.lag, 'record')} that the target does not have yet will not be written.
        </p>
      </Action>
      <Failure error={error} />
    </>
  );
}

/** Has a sink go on behind records that are gone, or with a topic that was made again. */
function AcceptGap({ sink }: { sink: State }) {
  return (
    <Action<SinkPositions>
      label="Accept gap"
      destroys
      title={`Let ${visible(sink.name)} go on behind what is gone`}
      confirm="Accept the gap"
      call={() => ({ method: 'POST', path: sinkUrl(sink.name, '/accept-gap') })}
      result={({ positions }) => `${counted(positions.length, 'position')} set. The sink goes on.`}
    >
      <p>
        Records that retention removed before they were read are never written. A topic that was deleted and made again is written from its first record; rows of the former one stay. {visible(sink.why)}
      </p>
    </Action>
  );
}

/** Sets the position in the target, from which the sink goes on. */
function Replay({ sink }: { sink: State }) {
  const [place, setPlace] = useState('earliest');
  const [text, setText] = useState('');
  return (
    <Action<SinkPositions>
      label="Replay"
      destroys
      title={`Replay ${visible(sink.name)}`}
      confirm="Stop, set positions, go on"
      typed={sink.name}
      incomplete={place === 'time' && text === ''}
      call={() => ({ method: 'POST', path: sinkUrl(sink.name, '/replay'), body: { json: { from: place === 'time' ? text : place } } })}
      result={({ positions }) => `${counted(positions.length, 'position')} set.`}
    >
      <p>
        Records behind the new position are written again, and those before it are passed over. <b>A target that appends has rows twice then</b>; with a key they replace each other.
      </p>
      <div className="form two">
        <Field label="From">
          <select value={place} onChange={(event) => setPlace(event.target.value)} data-focus>
            <option value="earliest">the oldest record</option>
            <option value="latest">records to come</option>
            <option value="time">a time</option>
          </select>
        </Field>
        {place === 'time' && (
          <Field label="Time" help="Such as 2026-11-22T14:00:00Z">
            <input value={text} onChange={(event) => setText(event.target.value)} spellCheck={false} required />
          </Field>
        )}
      </div>
    </Action>
  );
}
