// The document of /v1/definitions, and the answer to its import.

export type Fields = Record<string, unknown>;

export const KINDS = ['namespaces', 'topics', 'exchanges', 'queues', 'policies', 'operator_policies', 'clients', 'bindings', 'apps', 'sinks', 'users', 'rules', 'limits', 'quotas'] as const;
export type Kind = (typeof KINDS)[number];

export const FORM = 'stafett definitions 1';

/** A thing of a document: its fields are those of the body that makes it, with its name and namespace. */
export interface Item {
  kind: Kind;
  fields: Fields;
}

/** A document of things. */
export const documentOf = (items: Item[]): Fields => ({
  form: FORM,
  ...Object.fromEntries(KINDS.map((kind) => [kind, items.filter((item) => item.kind === kind).map(({ fields }) => fields)])),
});
