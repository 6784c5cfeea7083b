// Formats of contents: recognised by their bytes, and read without libraries. A format that does not read to its last
// byte is not offered.
export type Format = 'JSON' | 'MessagePack' | 'CBOR' | 'XML' | 'text' | 'hex';

export interface Decoded {
  /** The likeliest first. */
  formats: Format[];
  text: (format: Format) => string;
  tree: (format: Format) => unknown;
  /** The content itself. */
  bytes: Uint8Array<ArrayBuffer>;
}

const BYTES_MAX = 1 << 20;

export function decode(value: unknown, base64: string | null): Decoded {
  const text = typeof value === 'string' ? value : value == null ? null : JSON.stringify(value, null, 2);
  const bytes = base64 === null ? new TextEncoder().encode(text ?? '') : fromBase64(base64);
  const trees = new Map<Format, unknown>();
  const tried = (format: Format, read: () => unknown) => {
    try {
      const found = read();
      if (found !== null && typeof found === 'object') trees.set(format, found);
    } catch {
      // It is another format.
    }
  };
  if (text !== null) tried('JSON', () => (typeof value === 'string' ? JSON.parse(value) : value));
  const isBinary = text === null || /[\u0000-\u0008\u000e-\u001f]/.test(text);
  if (isBinary && bytes.length <= BYTES_MAX) {
    tried('MessagePack', () => whole(bytes, messagePack));
    tried('CBOR', () => whole(bytes, cbor));
  }
  const formats: Format[] = [...trees.keys()];
  if (text !== null && /^\s*<[?!a-zA-Z]/.test(text)) formats.push('XML');
  if (text !== null) formats.push('text');
  formats.push('hex');
  return {
    formats,
    bytes,
    tree: (format) => trees.get(format),
    text: (format) => {
      if (format === 'hex') return hex(bytes);
      if (trees.has(format) && format !== 'JSON') return JSON.stringify(trees.get(format), null, 2);
      return text ?? hex(bytes);
    },
  };
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  try {
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  } catch {
    return new Uint8Array();
  }
}

export function hex(bytes: Uint8Array): string {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(bytes.length, 65536); at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const pairs = row.map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
    const letters = row.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : '.')).join('');
    lines.push(`${at.toString(16).padStart(6, '0')}  ${pairs.padEnd(47)}  ${letters}`);
  }
  return lines.join('\n');
}

class Reader {
  at = 0;
  depth = 0;
  readonly view: DataView;
  constructor(readonly bytes: Uint8Array) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }
  take(length: number): Uint8Array {
    if (length < 0 || this.at + length > this.bytes.length) throw new RangeError('beyond the end');
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }
  u(width: 1 | 2 | 4 | 8): number {
    const at = this.at;
    this.take(width);
    if (width === 1) return this.view.getUint8(at);
    if (width === 2) return this.view.getUint16(at);
    if (width === 4) return this.view.getUint32(at);
    return Number(this.view.getBigUint64(at));
  }
  text(length: number): string {
    return new TextDecoder('utf-8', { fatal: true }).decode(this.take(length));
  }
  list(length: number, item: (reader: Reader) => unknown): unknown[] {
    return this.nested(() => Array.from({ length: this.bounded(length) }, () => item(this)));
  }
  map(length: number, item: (reader: Reader) => unknown): Record<string, unknown> {
    return this.nested(() => {
      const entries: [string, unknown][] = [];
      for (let n = this.bounded(length); n > 0; n -= 1) entries.push([String(item(this)), item(this)]);
      return Object.fromEntries(entries);
    });
  }
  /** Each element has a byte at least. */
  private bounded(length: number): number {
    if (length > this.bytes.length - this.at) throw new RangeError('beyond the end');
    return length;
  }
  private nested<T>(read: () => T): T {
    if (this.depth >= 64) throw new RangeError('too deep');
    this.depth += 1;
    const value = read();
    this.depth -= 1;
    return value;
  }
}

function whole(bytes: Uint8Array, read: (reader: Reader) => unknown): unknown {
  const reader = new Reader(bytes);
  const value = read(reader);
  if (reader.at !== bytes.length) throw new RangeError('bytes are left');
  return value;
}

const shown = (bytes: Uint8Array): string => `0x${[...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('')}`;

function messagePack(reader: Reader): unknown {
  const first = reader.u(1);
  if (first < 0x80) return first;
  if (first < 0x90) return reader.map(first & 15, messagePack);
  if (first < 0xa0) return reader.list(first & 15, messagePack);
  if (first < 0xc0) return reader.text(first & 31);
  if (first >= 0xe0) return first - 256;
  const width = (base: number) => (1 << (first - base)) as 1 | 2 | 4 | 8;
  const signed = (size: 1 | 2 | 4 | 8) => {
    const value = reader.u(size);
    return value >= 2 ** (size * 8 - 1) ? value - 2 ** (size * 8) : value;
  };
  if (first === 0xc0) return null;
  if (first === 0xc2 || first === 0xc3) return first === 0xc3;
  if (first >= 0xc4 && first <= 0xc6) return shown(reader.take(reader.u(width(0xc4))));
  if (first >= 0xc7 && first <= 0xc9) return extension(reader, reader.u(width(0xc7)));
  if (first === 0xca || first === 0xcb) return float(reader, first === 0xca ? 4 : 8);
  if (first >= 0xcc && first <= 0xcf) return reader.u(width(0xcc));
  if (first >= 0xd0 && first <= 0xd3) return signed(width(0xd0));
  if (first >= 0xd4 && first <= 0xd8) return extension(reader, 1 << (first - 0xd4));
  if (first >= 0xd9 && first <= 0xdb) return reader.text(reader.u(width(0xd9)));
  if (first === 0xdc || first === 0xdd) return reader.list(reader.u(first === 0xdc ? 2 : 4), messagePack);
  if (first === 0xde || first === 0xdf) return reader.map(reader.u(first === 0xde ? 2 : 4), messagePack);
  throw new RangeError('not MessagePack');
}

function extension(reader: Reader, length: number): unknown {
  const kind = reader.u(1);
  return { extension: kind, bytes: shown(reader.take(length)) };
}

function float(reader: Reader, size: 4 | 8): number {
  const at = reader.at;
  reader.take(size);
  return size === 4 ? reader.view.getFloat32(at) : reader.view.getFloat64(at);
}

function cbor(reader: Reader): unknown {
  const first = reader.u(1);
  const [major, low] = [first >> 5, first & 31];
  if (major === 7) {
    if (low === 20 || low === 21) return low === 21;
    if (low === 22 || low === 23) return null;
    if (low === 26 || low === 27) return float(reader, low === 26 ? 4 : 8);
    throw new RangeError('not CBOR');
  }
  if (low > 27) throw new RangeError('no definite length');
  const size = low < 24 ? low : reader.u((1 << (low - 24)) as 1 | 2 | 4 | 8);
  if (major === 0) return size;
  if (major === 1) return -1 - size;
  if (major === 2) return shown(reader.take(size));
  if (major === 3) return reader.text(size);
  if (major === 4) return reader.list(size, cbor);
  if (major === 5) return reader.map(size, cbor);
  return cbor(reader);
}
