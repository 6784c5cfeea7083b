// The API as a page: every route of the broker's own document, with a form that sends it.
import { useState } from 'react';
import { useOnce } from '../api/live';
import { requestText, type Body } from '../api/http';
import { Action, curl, type Call } from '../ui/Action';
import { Badge, Copy, Failure, Field, Head } from '../ui/parts';
import { useParam } from '../ui/route';
import { visible } from '../ui/format';

interface Parameter {
  name: string;
  in: string;
  description?: string;
  schema?: { type?: string; enum?: string[]; maximum?: number };
}

interface Operation {
  summary?: string;
  description?: string;
  parameters?: Parameter[];
  requestBody?: { content: Record<string, { schema?: { $ref?: string } }> };
}

interface Document {
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, unknown> };
}

interface Route extends Operation {
  key: string;
  method: string;
  path: string;
}

const METHODS = ['get', 'post', 'put', 'patch', 'delete'];

export function Api() {
  const found = useOnce<Document>('/v1/openapi.json');
  const [text = '', setText] = useParam('q');
  const [chosen, choose] = useParam('route');
  const routes = Object.entries(found.data?.paths ?? {}).flatMap(([path, methods]) => METHODS.flatMap((method): Route[] => (methods[method] ? [{ ...methods[method], key: `${method} ${path}`, method: method.toUpperCase(), path }] : [])));
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = routes.filter(({ key, summary = '' }) => words.every((word) => `${key} ${summary}`.toLowerCase().includes(word)));
  const route = routes.find(({ key }) => key === chosen);
  return (
    <>
      <Head title="API">
        <a className="button" href="/v1/openapi.json" target="_blank" rel="noopener">
          Document (OpenAPI)
        </a>
      </Head>
      <p className="quiet small lead">Everything that these pages do is a request that a program can make. A request that is sent here has the rights of this login.</p>
      <Failure error={found.error} />
      {route && <Try key={route.key} route={route} schemas={found.data?.components.schemas ?? {}} onClose={() => choose(undefined)} />}
      <div className="tools">
        <input type="search" data-search aria-label="Search routes" placeholder="Search routes" value={text} onChange={(event) => setText(event.target.value || undefined)} />
        <span className="quiet small">
          {shown.length} of {routes.length} routes
        </span>
      </div>
      <ul className="routes">
        {shown.map(({ key, method, path, summary }) => (
          <li key={key}>
            <button type="button" className="link" aria-current={key === chosen || undefined} onClick={() => choose(key)}>
              <Badge kind={method === 'GET' ? '' : method === 'DELETE' ? 'bad' : 'note'}>{method}</Badge> <code>{path}</code>
            </button>
            <span className="quiet small">{summary}</span>
          </li>
        ))}
      </ul>
    </>
  );
}

/** The named shapes of a body, as far as they refer to each other. */
function shapeOf(schema: unknown, schemas: Record<string, unknown>, depth = 0): unknown {
  if (schema === null || typeof schema !== 'object') return schema;
  if (Array.isArray(schema)) return schema.map((each) => shapeOf(each, schemas, depth));
  const ref = (schema as { $ref?: string }).$ref;
  if (ref) return depth > 3 ? ref.split('/').at(-1) : shapeOf(schemas[ref.split('/').at(-1) ?? ''], schemas, depth + 1);
  return Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, shapeOf(value, schemas, depth)]));
}

function Try({ route, schemas, onClose }: { route: Route; schemas: Record<string, unknown>; onClose: () => void }) {
  const [values, setValues] = useState<Record<string, string>>({});
  const [text, setText] = useState('');
  const [answer, setAnswer] = useState<string>();
  const [error, setError] = useState<unknown>();
  const given = (route.parameters ?? []).filter((parameter) => parameter.in !== 'header');
  const kind = Object.keys(route.requestBody?.content ?? {})[0];
  const schema = kind === undefined ? undefined : route.requestBody?.content[kind]?.schema;
  const missing = given.some((parameter) => parameter.in === 'path' && !values[parameter.name]);
  const call = (): Call => {
    const path = route.path.replaceAll(/\{([^}]+)\}/g, (_, name: string) => encodeURIComponent(values[name] ?? ''));
    const query = new URLSearchParams(given.filter((parameter) => parameter.in === 'query' && values[parameter.name]).map(({ name }) => [name, values[name] ?? '']));
    const asked = query.toString();
    const body: Body | undefined = text === '' ? undefined : { text, type: kind };
    return { method: route.method, path: path + (asked ? `?${asked}` : ''), body };
  };
  const send = async () => {
    setError(undefined);
    setAnswer(undefined);
    const { method, path, body } = call();
    await requestText(method, path, body).then((said) => setAnswer(pretty(said)), setError);
  };
  const isStream = /events$|\/stream$|\/ws$|\/watch$|node\/log$/.test(route.path);
  return (
    <section className="card" aria-label="Try a route">
      <header>
        <h2>
          <Badge>{route.method}</Badge> <code>{route.path}</code>
        </h2>
        <button type="button" onClick={onClose}>
          Close
        </button>
      </header>
      <p className="lead">{route.description ?? route.summary}</p>
      <div className="form two">
        {given.map(({ name, description, schema: of, in: place }) => (
          <Field key={name} label={`${name}${place === 'path' ? '' : ' (query)'}`} help={description}>
            {of?.enum ? (
              <select value={values[name] ?? ''} onChange={(event) => setValues({ ...values, [name]: event.target.value })}>
                <option value="">not given</option>
                {of.enum.map((word) => (
                  <option key={word}>{word}</option>
                ))}
              </select>
            ) : (
              <input value={values[name] ?? ''} onChange={(event) => setValues({ ...values, [name]: event.target.value })} spellCheck={false} placeholder={of?.type === 'boolean' ? 'true' : undefined} />
            )}
          </Field>
        ))}
        {kind !== undefined && (
          <Field label={`Body (${kind})`} wide>
            <textarea value={text} onChange={(event) => setText(event.target.value)} spellCheck={false} placeholder="{}" />
          </Field>
        )}
      </div>
      {schema !== undefined && (
        <details>
          <summary>Shape of the body</summary>
          <pre tabIndex={0}>{JSON.stringify(shapeOf(schema, schemas), null, 2)}</pre>
        </details>
      )}
      <div className="row above">
        {route.method === 'GET' ? (
          <button type="button" className="main" disabled={missing || isStream} title={isStream ? 'An answer without end: take curl' : undefined} onClick={() => void send()}>
            Send
          </button>
        ) : (
          <Action<unknown> label="Send" className="main" title={`${route.method} ${route.path}`} confirm="Send" disabled={missing} destroys={route.method === 'DELETE'} call={call} result={(said) => <pre tabIndex={0}>{said === undefined ? 'Done.' : JSON.stringify(said, null, 2)}</pre>}>
            <p>{route.summary}. It is sent as it stands, and does what it says.</p>
          </Action>
        )}
        <Copy label="As curl" text={curl(call())} />
      </div>
      <Failure error={error} />
      {answer !== undefined && (
        <div role="status">
          <pre tabIndex={0} className="answer">
            {visible(answer)}
          </pre>
          <Copy text={answer} />
        </div>
      )}
    </section>
  );
}

function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text === '' ? 'Done, without a content.' : text;
  }
}
