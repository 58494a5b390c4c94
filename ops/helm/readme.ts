import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { isMap, isScalar, parseDocument, type YAMLMap } from 'yaml';
import { ROOT } from '../dev/paths.ts';

/** A value of the chart: its path, and what the comment above it says. */
interface Row {
  readonly path: string;
  readonly type: string;
  readonly fallback: string;
  readonly meaning: string;
}

/** A longer default is in values.yaml. */
const MAX_FALLBACK = 60;

/** The rows of a map. A map in a block has its own keys below it; one on a line is a value. */
function rowsOf(map: YAMLMap, above: string, first: string): Row[] {
  return map.items.flatMap(({ key, value }, i) => {
    if (!isScalar(key)) throw new TypeError('a key of the values is no text');
    const path = above === '' ? String(key.value) : `${above}.${key.value}`;
    const meaning = textOf(key.commentBefore ?? (i === 0 ? first : ''));
    if (isMap(value) && value.flow !== true && value.items.length > 0) {
      const rows = rowsOf(value, path, value.commentBefore ?? '');
      return meaning === '' ? rows : [{ path, type: 'object', fallback: '', meaning }, ...rows];
    }
    const json: unknown = (value as { toJSON(): unknown } | null)?.toJSON() ?? null;
    const type = Array.isArray(json) ? 'list' : typeof json;
    const text = JSON.stringify(json);
    const fallback = text.length > MAX_FALLBACK ? 'see values.yaml' : `\`${text}\``;
    return [{ path, type, fallback, meaning }];
  });
}

/** A comment as one line of a table. Its examples stay in values.yaml. */
function textOf(comment: string): string {
  const sentences = comment.split('\n').filter((line) => !line.startsWith('  '));
  return sentences.join(' ').trim().replace(/\s+/g, ' ').replaceAll('|', '\\|').replace(/:$/, '.');
}

/** The chart's README, in the form of helm-docs: what it is, what it needs, and a table of its values. */
export function chartReadme(): string {
  const chart = join(ROOT, 'ops/helm/idalloc');
  const values = parseDocument(readFileSync(join(chart, 'values.yaml'), 'utf8'));
  const about = parseDocument(readFileSync(join(chart, 'Chart.yaml'), 'utf8')).toJS() as Record<string, string>;
  if (!isMap(values.contents)) throw new TypeError('the values are no map');
  const rows = rowsOf(values.contents, '', '').map(
    ({ path, type, fallback, meaning }) => `| ${path} | ${type} | ${fallback} | ${meaning} |`,
  );
  return `<!-- Written from values.yaml by \`npm run chart\`. Edits here are lost. -->

# ${about.name}

${about.description}.

The guide is docs/operations/kubernetes.md of the checkout. The chart installs from there as it is: \`helm install ids ops/helm/idalloc\`.

## Requirements

Kubernetes: \`${about.kubeVersion}\`

## Values

| Key | Type | Default | Description |
|-----|------|---------|-------------|
${rows.join('\n')}
`;
}
