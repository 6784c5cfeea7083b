// Records of a topic: by offset or time, searched by the broker, or as they come.
import { useRef, useState } from 'react';
import { useEvents } from '../../api/stream';
import { useOnce } from '../../api/live';
import type { PartitionRecords, Record as Entry, Topic, TopicRecords } from '../../api/types';
import { curl } from '../../ui/Action';
import { CompareTwo, type Side } from '../../ui/CompareTwo';
import { Content, firstLine, Headers } from '../../ui/Content';
import { Dialog } from '../../ui/Dialog';
import { Export } from '../../ui/Export';
import { bytes, count, counted, visible } from '../../ui/format';
import { Copy, Facts, Failure, Field, save, Time } from '../../ui/parts';
import { setParams, useParam, useRoute } from '../../ui/route';
import { Scroll, Table, type Column } from '../../ui/Table';
import { Places } from './Places';
import { Produce } from './Produce';
import { topicUrl } from './Topics';

const TAIL_MAX = 1000;
const SEARCHES: [string, string, string][] = [
  ['key', 'Key', 'exactly'],
  ['contains', 'Text in the value', ''],
  ['field', 'Field of JSON', 'a.b=12'],
  ['header', 'Header', 'name=value'],
];

/** `name=value` of a search as a key of the query. */
const pair = (kind: string, text: string | null): [string, string][] => {
  const at = text?.indexOf('=') ?? -1;
  return text && at > 0 ? [[`${kind}.${text.slice(0, at)}`, text.slice(at + 1)]] : [];
};

export function Records({ topic }: { topic: Topic }) {
  const { query } = useRoute();
  const isTail = query.get('tail') === '1';
  const chosen = new URLSearchParams(query);
  chosen.delete('open');
  return (
    <section aria-label="Records">
      <Choice topic={topic} key={chosen.toString()} />
      {isTail ? <Tail topic={topic} search={searchOf(query)} /> : <Page topic={topic} />}
    </section>
  );
}

function searchOf(query: URLSearchParams): Record<string, string> {
  const plain = ['key', 'contains'].flatMap((name): [string, string][] => (query.get(name) ? [[name, query.get(name) ?? '']] : []));
  return Object.fromEntries([...plain, ...pair('field', query.get('field')), ...pair('header', query.get('header'))]);
}

function Choice({ topic }: { topic: Topic }) {
  const { query } = useRoute();
  const [texts, setTexts] = useState<Record<string, string>>(() => Object.fromEntries(['from', ...SEARCHES.map(([name]) => name)].map((name) => [name, query.get(name) ?? ''])));
  const partition = query.get('partition') ?? '';
  const set = (name: string) => (event: { target: { value: string } }) => setTexts({ ...texts, [name]: event.target.value });
  const isTail = query.get('tail') === '1';
  return (
    <form
      className="form two card"
      onSubmit={(event) => {
        event.preventDefault();
        setParams({ ...texts, after: undefined });
      }}
    >
      <Field label="Partition">
        <select value={partition} onChange={(event) => setParams({ partition: event.target.value || undefined, after: undefined, tail: undefined })}>
          <option value="">all, by time</option>
          {Array.from({ length: Math.min(topic.partitions, 1000) }, (_, n) => (
            <option key={n}>{n}</option>
          ))}
        </select>
      </Field>
      {partition === '' && (
        <Field label="Order">
          <select value={query.get('order') ?? 'newest'} onChange={(event) => setParams({ order: event.target.value === 'newest' ? undefined : event.target.value, after: undefined })}>
            <option value="newest">newest first</option>
            <option value="oldest">oldest first</option>
          </select>
        </Field>
      )}
      <Field label="From" help={partition === '' ? 'A time such as 2026-11-22T14:00:00Z, or -N' : 'An offset, earliest, -N, or a time'}>
        <input value={texts.from} onChange={set('from')} placeholder={partition === '' ? 'everything' : '-50'} spellCheck={false} data-search />
      </Field>
      {partition === '' &&
        SEARCHES.map(([name, label, example]) => (
          <Field key={name} label={label}>
            <input value={texts[name]} onChange={set(name)} placeholder={example} spellCheck={false} />
          </Field>
        ))}
      <div className="row wide">
        <button type="submit" className="main">
          Look
        </button>
        <button type="button" aria-pressed={isTail} disabled={partition !== ''} onClick={() => setParams({ tail: isTail ? undefined : '1', after: undefined })}>
          {isTail ? 'Stop following' : 'Follow as they come'}
        </button>
        {partition !== '' && <span className="quiet small">Searching and following go over all partitions.</span>}
      </div>
    </form>
  );
}

function Page({ topic }: { topic: Topic }) {
  const { query } = useRoute();
  const partition = query.get('partition');
  const url =
    partition === null
      ? topicUrl(topic.name, '/records', { count: 50, order: query.get('order') ?? 'newest', from: query.get('from'), ...searchOf(query), after: query.get('after') })
      : topicUrl(topic.name, `/partitions/${partition}/records`, { count: 50, from: query.get('after') ?? query.get('from') ?? '-50' });
  const found = useOnce<TopicRecords & PartitionRecords>(url);
  const data = found.data;
  const records = data?.records ?? [];
  const next = data?.next == null || (partition !== null && data.next >= data.end) ? null : String(data.next);
  return (
    <>
      <Failure error={found.error} />
      {data?.gap && (
        <p className="hint">
          Offsets {count(data.gap.from)} to {count(data.gap.to)} are {data.gap.why}; what is shown goes on behind them.
        </p>
      )}
      {data && records.length === 0 && (
        <div className="empty">
          {topic.records === 0 ? (
            <p>
              <strong>There is no record yet.</strong> Publish one with the button above; any client of Kafka's protocol does so, too.
            </p>
          ) : (
            <p>Nothing matches{data.looked_at !== undefined && ` among the ${counted(data.looked_at, 'record')} looked at`}.</p>
          )}
        </div>
      )}
      {records.length > 0 && <Rows topic={topic} records={records} />}
      {data && (
        <div className="foot">
          <span>
            {count(records.length)} shown{data.looked_at !== undefined && `, ${count(data.looked_at)} looked at`}
          </span>
          <span className="row">
            <button type="button" className="plain small" onClick={() => void found.refetch()}>
              Look again
            </button>
            <Copy label="As curl" text={curl({ method: 'GET', path: url })} />
            <button type="button" className="plain small" onClick={() => save('records.ndjson', records.map((record) => `${JSON.stringify(record)}\n`).join(''))}>
              Save these as NDJSON
            </button>
            {partition === null && (
              <Export
                label="Export"
                title={`Export records of ${visible(topic.name)}`}
                file={`${topic.name}.ndjson`}
                about={`All ${counted(topic.records, 'record')}, the oldest first, as far as they are chosen above.`}
                page={(after) => topicUrl(topic.name, '/records', { count: 1000, order: 'oldest', from: query.get('from'), ...searchOf(query), after })}
                items={({ records: some }: TopicRecords) => some}
                disabled={records.length === 0}
              />
            )}
            {query.get('after') && (
              <button type="button" onClick={() => setParams({ after: undefined })}>
                First page
              </button>
            )}
            {next !== null && (
              <button type="button" onClick={() => setParams({ after: next }, false)}>
                Go on
              </button>
            )}
          </span>
        </div>
      )}
    </>
  );
}

/** Records as they come, the newest first. It holds while one is open. */
function Tail({ topic, search }: { topic: Topic; search: Record<string, string> }) {
  const [state, setState] = useState<{ records: Entry[]; passed: number; end?: string }>({ records: [], passed: 0 });
  const [isHeld, setHeld] = useState(false);
  const url = topicUrl(topic.name, '/events', { from: 'latest', ...search });
  useEvents(isHeld || state.end ? null : url, ['record', 'gap', 'end'], (name, data) => {
    if (name === 'record') setState(({ records, passed }) => ({ records: [data as Entry, ...records].slice(0, TAIL_MAX), passed: passed + 1 }));
    if (name === 'end') setState((before) => ({ ...before, end: (data as { detail?: string }).detail ?? 'It ended.' }));
  });
  return (
    <>
      <div className="tools">
        <button type="button" aria-pressed={isHeld} onClick={() => setHeld(!isHeld)}>
          {isHeld ? 'Go on' : 'Hold'}
        </button>
        <span className="quiet" role="status">
          {state.end ?? `${count(state.passed)} came`}
        </span>
      </div>
      {state.records.length === 0 ? <div className="empty">Waiting for the next record.</div> : <Rows topic={topic} records={state.records.slice(0, 200)} />}
    </>
  );
}

const columns = (onOpen: (record: Entry) => void): Column<Entry>[] => [
  {
    head: 'Value',
    cell: (record) => (
      <button type="button" className="link line mono" onClick={() => onOpen(record)}>
        {firstLine({ value: record.value, base64: record.value_base64 })}
      </button>
    ),
  },
  { head: 'Key', cell: (record) => <span className="mono">{visible(String(record.key ?? record.key_base64 ?? '–').slice(0, 80))}</span> },
  { head: 'Time', cell: ({ timestamp }) => <Time at={timestamp} /> },
  { head: 'Partition', num: true, cell: ({ partition }) => partition },
  { head: 'Offset', num: true, phone: 'less', cell: ({ offset }) => count(offset) },
  { head: 'Bytes', num: true, phone: 'less', cell: ({ bytes: n }) => bytes(n) },
];

const keyOf = ({ partition, offset }: Entry): string => `${partition}-${offset}`;

const textOfKey = (record: Entry): string => String(record.key ?? record.key_base64 ?? '–');

const side = (record: Entry): Side => ({
  title: `${record.partition}, ${count(record.offset)}`,
  raw: { value: record.value, base64: record.value_base64 },
  fields: [
    ['Key', textOfKey(record)],
    ['Time', record.timestamp ?? '–'],
    ...Object.entries(record.headers).map(([name, value]): [string, string] => [name, typeof value === 'string' ? value : JSON.stringify(value)]),
  ],
});

function Rows({ topic, records }: { topic: Topic; records: Entry[] }) {
  const [open, setOpen] = useParam('open');
  const [ticked, setTicked] = useState<Map<string, Entry>>(new Map());
  const [isCompared, setCompared] = useState(false);
  // A record that is open stays, though others push it out of the list.
  const kept = useRef<Entry>(undefined);
  const found = records.find((record) => keyOf(record) === open) ?? kept.current;
  kept.current = found;
  const opened = found && keyOf(found) === open ? found : undefined;
  const [one, other] = [...ticked.values()];
  const tick = (record: Entry) => {
    const next = new Map(ticked);
    if (!next.delete(keyOf(record))) next.set(keyOf(record), record);
    setTicked(next);
  };
  return (
    <>
      {ticked.size > 0 && (
        <div className="tools">
          {ticked.size === 2 ? (
            <button type="button" onClick={() => setCompared(true)}>
              Compare
            </button>
          ) : (
            <span className="quiet small">{ticked.size === 1 ? 'Tick another one to compare them.' : 'Two can be compared.'}</span>
          )}
        </div>
      )}
      <Scroll>
        <Table
          caption="Records"
          columns={columns((record) => setOpen(keyOf(record)))}
          rows={records}
          keyOf={keyOf}
          ticks={{ of: (record) => <input type="checkbox" aria-label={`Choose offset ${record.offset} of partition ${record.partition}`} checked={ticked.has(keyOf(record))} onChange={() => tick(record)} /> }}
        />
      </Scroll>
      {isCompared && one && other && <CompareTwo one={side(one)} other={side(other)} onClose={() => setCompared(false)} />}
      {opened && (
        <Dialog title={`Record ${count(opened.offset)} of partition ${opened.partition}`} onClose={() => setOpen(undefined)} wide>
          <Places topic={topic} record={opened} />
          <section>
            <h3>Value</h3>
            <Content raw={{ value: opened.value, base64: opened.value_base64 }} size={opened.bytes} />
          </section>
          <Headers of={opened.headers} />
          <Facts
            rows={[
              ['Key', <span key="k"><code>{visible(textOfKey(opened))}</code> {opened.key != null && <Copy text={opened.key} />}</span>],
              ['Time', <Time key="t" at={opened.timestamp} />],
              ['Topic', visible(topic.name)],
            ]}
          />
          <div className="row end">
            <Produce topic={topic} like={opened} label="Publish a copy" />
            <Copy label="Copy as JSON" text={JSON.stringify(opened, null, 2)} />
            <button type="button" autoFocus data-focus onClick={() => setOpen(undefined)}>
              Close
            </button>
          </div>
        </Dialog>
      )}
    </>
  );
}
