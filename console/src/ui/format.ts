// How numbers, sizes and times read. 0 is 0, unknown is an en dash.
import { brokerNow } from '../api/reach';

const NONE = '–';
const whole = new Intl.NumberFormat('en-GB', { maximumFractionDigits: 0 });

export const count = (value: number | null | undefined): string => (value == null ? NONE : whole.format(value));

/** A number with its noun: 1 rule, 2 rules. */
export const counted = (value: number | null | undefined, one: string, many = `${one}s`): string => `${count(value)} ${value === 1 ? one : many}`;

/** A difference with its sign. */
export const change = (before: number, after: number): string => `${after > before ? '+' : ''}${count(after - before)}`;

/** A number in at most four digits: 12.3 k. */
export function short(value: number | null | undefined): string {
  if (value == null) return NONE;
  const steps: [number, string][] = [
    [1e12, ' T'],
    [1e9, ' G'],
    [1e6, ' M'],
    [1e4, ' k'],
  ];
  for (const [from, unit] of steps) {
    if (Math.abs(value) >= from) return digits(value / (from === 1e4 ? 1e3 : from)) + unit;
  }
  return Math.abs(value) < 100 && !Number.isInteger(value) ? digits(value) : whole.format(value);
}

const digits = (value: number): string => {
  const size = Math.abs(value);
  return String(Number(value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)));
};

export const rate = (value: number | null | undefined): string => (value == null ? NONE : `${short(value)}/s`);

export function bytes(value: number | null | undefined): string {
  if (value == null) return NONE;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? whole.format(size) : digits(size)} ${units[unit]}`;
}

/** Bytes of a text such as `10 MiB`; undefined if it is none. */
export function bytesOf(text: string): number | undefined {
  const [, number = '', unit = ''] = /^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*$/i.exec(text) ?? [];
  return number === '' ? undefined : Math.round(Number(number) * 1024 ** ' kmgt'.indexOf(unit.toLowerCase() || ' '));
}

export const byteRate = (value: number | null | undefined): string => (value == null ? NONE : `${bytes(value)}/s`);
export const share = (value: number | null | undefined): string =>
  value == null ? NONE : `${digits(value * 100)} %`;

export function duration(ms: number | null | undefined): string {
  if (ms == null) return NONE;
  const seconds = Math.abs(ms) / 1000;
  if (seconds < 1) return `${Math.round(ms)} ms`;
  if (seconds < 60) return `${digits(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const day = new Intl.DateTimeFormat('en-GB', { year: 'numeric', month: '2-digit', day: '2-digit' });

/** Local time, with the date where it is not today. */
export function time(at: string | null | undefined): string {
  if (!at) return NONE;
  const date = new Date(at);
  const [d, m, y] = day.format(date).split('/');
  const isToday = day.format(date) === day.format(new Date(brokerNow()));
  return isToday ? clock.format(date) : `${y}-${m}-${d} ${clock.format(date)}`;
}

/** Age by the broker's clock. */
export function age(at: string | null | undefined): string {
  if (!at) return NONE;
  const ms = brokerNow() - Date.parse(at);
  if (ms < 1500) return 'now';
  const seconds = ms / 1000;
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Text of strangers: control characters and bidirectional overrides become visible. */
export const visible = (text: string): string =>
  text.replace(HIDDEN, (character) => {
    const code = character.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : `⟨U+${code.toString(16).toUpperCase().padStart(4, '0')}⟩`;
  });
