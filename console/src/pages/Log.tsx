// The log of the broker as it comes, with a search in the lines that were loaded.
import { useState } from 'react';
import { api } from '../api/http';
import { useEvents } from '../api/stream';
import type { LineShown } from '../api/types';
import { count, time, visible } from '../ui/format';
import { Head, save } from '../ui/parts';
import { useParam } from '../ui/route';

const KEPT = 2000;
const LEVELS = ['error', 'warn', 'info', 'debug'];

export function Log() {
  const [level = 'info', setLevel] = useParam('level');
  return (
    <>
      <Head title="Log" />
      <Lines key={level} level={level} setLevel={setLevel} />
    </>
  );
}

function Lines({ level, setLevel }: { level: string; setLevel: (level: string | undefined) => void }) {
  const [lines, setLines] = useState<LineShown[]>([]);
  const [isHeld, setHeld] = useState(false);
  const [text, setText] = useState('');
  useEvents(isHeld ? null : api('node/log', { lines: 200, level }), ['line'], (_, data) => {
    const line = data as LineShown;
    setLines((before) => (before.some(({ id }) => id === line.id) ? before : [line, ...before].slice(0, KEPT)));
  });
  const said = (line: LineShown) => `${line.target} ${line.text} ${Object.entries(line.fields).map(([name, value]) => `${name}=${value}`).join(' ')}`;
  const shown = lines.filter((line) => said(line).toLowerCase().includes(text.toLowerCase()));
  return (
    <>
      <div className="tools">
        <input type="search" data-search aria-label="Search in the loaded lines" placeholder="Search in the loaded lines" value={text} onChange={(event) => setText(event.target.value)} />
        <select aria-label="Level" value={level} onChange={(event) => setLevel(event.target.value === 'info' ? undefined : event.target.value)}>
          {LEVELS.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
        <button type="button" aria-pressed={isHeld} onClick={() => setHeld(!isHeld)}>
          {isHeld ? 'Go on' : 'Hold'}
        </button>
        <button type="button" className="plain small" onClick={() => save('stafett.log', shown.map((line) => `${line.at} ${line.level} ${said(line)}\n`).join(''))}>
          Save
        </button>
        <span className="quiet small">
          {count(shown.length)} of {count(lines.length)} lines, the newest first
        </span>
      </div>
      <div className="log" role="log" aria-live="off" aria-label="Lines of the log" tabIndex={0}>
        {shown.map((line) => (
          <p key={line.id} className={line.level.toUpperCase()}>
            <span className="quiet">{time(line.at)}</span> {line.level.toUpperCase().padEnd(5)} <b>{visible(line.target)}</b> {visible(line.text)}{' '}
            <span className="quiet">
              {Object.entries(line.fields)
                .map(([name, value]) => `${visible(name)}=${visible(String(value))}`)
                .join(' ')}
            </span>
          </p>
        ))}
        {lines.length === 0 && <p className="quiet">Waiting for a line.</p>}
      </div>
    </>
  );
}
