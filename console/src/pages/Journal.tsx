import { useState } from 'react';
import { useLive } from '../api/live';
import { api } from '../api/http';
import type { Backup, Journal as State, Scrub, Segment } from '../api/types';
import { Action } from '../ui/Action';
import { bytes, count, counted, visible } from '../ui/format';
import { List, type Column } from '../ui/List';
import { Badge, Durability, Facts, Failure, Field, Figures, Head, Time } from '../ui/parts';
import { Limit } from './queues/Queue';

const REPLAY_TARGET = 256 << 20;

const SEGMENTS: Column<Segment>[] = [
  { head: 'Number', sort: 'number', cell: ({ number }) => count(number), text: ({ number }) => number },
  { head: 'Kind', cell: ({ kind }) => <Badge>{kind}</Badge>, text: ({ kind }) => kind },
  { head: 'Bytes', sort: 'bytes', num: true, cell: ({ bytes: n }) => bytes(n), text: ({ bytes: n }) => n },
  { head: 'Made', sort: 'created_at', cell: ({ created_at: at }) => <Time at={at} />, text: ({ created_at: at }) => at },
  { head: 'Logs', cell: ({ first_log: first, last_log: last }) => (first === null ? 'all, in the order they came' : `${first} to ${last ?? '–'}`) },
];

const BACKUPS: Column<Backup>[] = [
  { head: 'When', sort: 'at', cell: ({ at }) => <Time at={at} />, text: ({ at }) => at },
  { head: 'Folder', cell: ({ target }) => <span className="mono">{visible(target)}</span>, text: ({ target }) => target },
  { head: 'Bytes', num: true, cell: ({ bytes: n }) => bytes(n), text: ({ bytes: n }) => n },
  { head: 'Segments', num: true, cell: ({ segments }) => count(segments), text: ({ segments }) => segments },
];

export function Journal() {
  const { data, error } = useLive<State>('/v1/journal', 3000);
  const [target, setTarget] = useState('');
  if (!data) {
    return (
      <>
        <Head title="Journal" />
        <Failure error={error} />
      </>
    );
  }
  const isWell = data.state === 'ok' && data.damaged_segments === 0 && data.fenced.length === 0;
  return (
    <>
      <Head
        title="Journal"
        badges={
          <>
            <Badge kind={isWell ? 'good' : 'bad'}>{isWell ? '● whole' : `▲ ${data.state}`}</Badge>
            <Durability level={data.durability} />
            <Badge>epoch {data.epoch}</Badge>
          </>
        }
      >
        <Action<Scrub>
          right="operate"
          label="Scrub"
          title="Scrub the journal"
          confirm="Read everything"
          call={() => ({ method: 'POST', path: api('journal/scrub', { wait: '0' }) })}
          result={({ segments, damaged }) => `${counted(segments, 'segment')} read, ${count(damaged)} of them damaged.`}
        >
          <p>Reads everything that is sealed, to find damage. The background does so all the time, slowly; this takes the disk's time now.</p>
        </Action>
        <Action<Backup>
          right="operate"
          label="Back up"
          className="main"
          title="Back the journal up"
          confirm="Back up"
          incomplete={target === ''}
          call={() => ({ method: 'POST', path: api('journal/backups', { wait: '0' }), body: { json: { target } } })}
          result={({ target: folder, bytes: n }) => `${bytes(n)} in ${folder}.`}
        >
          <p>Into a new folder below the setting journal.backup_dir. Segments are shared with it, so it takes no space at first.</p>
          <Field label="Folder">
            <input value={target} onChange={(event) => setTarget(event.target.value)} autoFocus data-focus spellCheck={false} placeholder={new Date().toISOString().slice(0, 10)} />
          </Field>
        </Action>
      </Head>
      {data.damaged.length + data.fenced.length > 0 && <Damage of={data} />}
      <Figures
        of={[
          { name: 'Live', value: bytes(data.live_bytes), exact: count(data.live_bytes), more: 'in sealed segments' },
          { name: 'Dead', value: bytes(data.dead_bytes), exact: count(data.dead_bytes), more: 'freed by rewriting' },
          { name: 'Written', value: bytes(data.written_bytes), more: 'since the start' },
          { name: 'Amplification', value: data.write_amplification === null ? '–' : data.write_amplification.toFixed(2), more: 'at most 2.5 is aimed at' },
          { name: 'Replay after a crash', value: bytes(data.replay_bytes), more: `at most ${bytes(REPLAY_TARGET)} is aimed at` },
          { name: 'Logs', value: count(data.logs) },
          { name: 'Disk free', value: bytes(data.space.free_bytes), more: data.space.short ? 'publishers wait' : `${bytes(data.space.free_bytes_min)} are kept` },
        ]}
      />
      <div className="grid">
        <section className="card">
          <header>
            <h2>Times, since the start</h2>
          </header>
          <Facts
            rows={[
              ['Sync, median', ms(data.sync.p50_ms)],
              ['Sync, 99 of 100', ms(data.sync.p99_ms)],
              ['Sync, 999 of 1,000', ms(data.sync.p999_ms)],
              ['Append until it is synced, 99 of 100', ms(data.append.synced_p99_ms)],
              ['Append until it is written, 99 of 100', ms(data.append.written_p99_ms)],
            ]}
          />
        </section>
        <section className="card">
          <header>
            <h2>Space</h2>
          </header>
          <Facts
            rows={[
              ['Live of all', <Limit key="l" used={data.live_bytes} max={Math.max(1, data.live_bytes + data.dead_bytes)} text={`${bytes(data.live_bytes)} of ${bytes(data.live_bytes + data.dead_bytes)}`} />],
              ['Rewritten', bytes(data.rewritten_bytes)],
              ['In memory', `${bytes(data.tail_cache_bytes)} of recent batches`],
              ['Kinds of segments', <Kinds key="k" of={data} />],
              ['Segments', `${count(data.segments.arrival)} in arrival order, ${count(data.segments.sorted)} sorted, ${count(data.segments.spare)} spare`],
            ]}
          />
        </section>
        <section className="card">
          <header>
            <h2>Safety</h2>
          </header>
          <Facts
            rows={[
              ['Checkpoint', <Time key="c" at={data.checkpoint_at} />],
              ['Last scrub', data.scrub === null ? 'none was asked for since the start' : <span key="s"><Time at={data.scrub.at} />: {count(data.scrub.damaged)} of {count(data.scrub.segments)} damaged</span>],
              ['Last backup', data.last_backup === null ? 'none since the start' : <span key="b"><Time at={data.last_backup.at} /> in {visible(data.last_backup.target)}</span>],
              ['Damaged segments', count(data.damaged_segments)],
            ]}
          />
        </section>
      </div>
      <h2 className="above">Segments</h2>
      <List<Segment> path="journal/segments" columns={SEGMENTS} keyOf={({ kind, number }) => kind + number} noun="segments" search={false} sortDefault="-number" empty={<p>There is no segment.</p>} />
      <h2 className="above">Backups since the start</h2>
      <List<Backup> path="journal/backups" columns={BACKUPS} keyOf={({ target: folder, at }) => folder + at} noun="backups" search={false} prefix="b." empty={<p><strong>None was made since the start.</strong> Restoring is done with a stopped broker: <code>stafett journal restore --help</code>.</p>} />
    </>
  );
}

const ms = (value: number | null | undefined): string => (value == null ? '–' : `${value < 10 ? value.toFixed(2) : value.toFixed(1)} ms`);

/** Segments by kind, as one bar. */
function Kinds({ of: { segments } }: { of: State }) {
  const all = Math.max(1, segments.arrival + segments.sorted + segments.spare);
  const parts: [string, number][] = [
    ['in arrival order', segments.arrival],
    ['sorted', segments.sorted],
    ['spare', segments.spare],
  ];
  return (
    <span className="meter" role="img" aria-label={parts.map(([name, n]) => `${n} ${name}`).join(', ')}>
      {parts.map(([name, n], index) => (
        <i key={name} className={`k${index}`} style={{ width: `${(n / all) * 100}%` }} title={`${n} ${name}`} />
      ))}
    </span>
  );
}

const Damage = ({ of }: { of: State }) => (
  <section className="error" role="alert">
    <h2>Damage</h2>
    {of.damaged.map((range) => (
      <p key={range.log + range.from}>
        Log {visible(range.log)} has lost {count(range.from)} to {count(range.to)}.
      </p>
    ))}
    {of.fenced.length > 0 && <p>Fenced, and refusing writes: {of.fenced.map(visible).join(', ')}.</p>}
    <p>Scrub to see how far it goes, and restore a backup if what is lost is needed. What is whole is served.</p>
  </section>
);
