// The build: the same bytes in any folder, hashed names for files that are cached for ever, and a list of what they
// were made of, by which a test finds a build that is out of date.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import react from '@vitejs/plugin-react';
import { defineConfig, type Plugin } from 'vite';

const SOURCES = ['index.html', 'lab.html', 'package.json', 'package-lock.json', 'src', 'tsconfig.json', 'vite.config.ts'];

function files(root: string, path: string): string[] {
  if (!statSync(join(root, path)).isDirectory()) return [path];
  return readdirSync(join(root, path)).flatMap((name) => files(root, `${path}/${name}`));
}

/** Writes `sources.sha256` beside the built files, in the form of `sha256sum`. */
function sources(): Plugin {
  let root = '';
  let out = '';
  return {
    name: 'sources',
    apply: 'build',
    configResolved(config) {
      root = config.root;
      out = join(config.root, config.build.outDir);
      if (config.build.outDir.startsWith('/')) out = config.build.outDir;
    },
    closeBundle() {
      const hash = (path: string) => createHash('sha256').update(readFileSync(join(root, path))).digest('hex');
      const lines = SOURCES.flatMap((path) => files(root, path)).sort().map((path) => `${hash(path)}  ${path}\n`);
      writeFileSync(join(out, 'sources.sha256'), lines.join(''));
    },
  };
}

const broker = process.env.BROKER ?? 'http://127.0.0.1:7070';
const lab = process.env.LAB ?? 'http://127.0.0.1:7072';

export default defineConfig({
  base: '/console/',
  plugins: [react(), sources()],
  build: {
    target: 'es2022',
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 1000,
    rollupOptions: {
      input: ['index.html', 'lab.html'],
      output: {
        manualChunks: (id: string) => (id.includes('node_modules') ? 'libraries' : undefined),
      },
    },
  },
  server: {
    proxy: {
      '/v1': { target: broker, ws: true },
      '/live': { target: broker, ws: true },
      '/health': { target: broker },
      '/lab/v1': { target: lab },
    },
  },
});
