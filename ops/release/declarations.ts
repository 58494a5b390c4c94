import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { ROOT } from '../dev/paths.ts';
import { run } from '../dev/run.ts';

const TSC = join(ROOT, 'node_modules/.bin/tsc');
/** For a hang, which must not be mistaken for a busy machine. */
const TIMEOUT_MS = 600_000;

/** What declarations are written of. */
export interface Declared {
  /** By the name of the output file: the entry's source, relative to the root. */
  readonly entries: Readonly<Record<string, string>>;
  /** A source file that another package exports: imports of it become imports of that package. */
  readonly boundary?: { readonly source: string; readonly package: string };
}

/** A name that a file takes from another one, or passes on. */
interface Specifier {
  /** As this file names it. */
  readonly name: string;
  /** As the other file names it. */
  readonly imported: string;
  /** The statement's text for it. */
  readonly text: string;
}

/** A statement of a declaration file at its top level, with the comment before it. */
type DeclarationStatement =
  | { readonly kind: 'declaration'; readonly names: readonly string[]; readonly text: string }
  | {
      readonly kind: 'import' | 'export';
      /** What precedes the braces. */
      readonly head: string;
      readonly specifiers: readonly Specifier[];
      readonly source: string;
    };

/**
 * Where a statement begins in the compiler's output, which indents all that continues one, or begins it with a closing
 * bracket.
 */
const BEGIN = /^(?=\/\*\*|(?:import|export|declare|interface|type)\b)/m;
const COMMENT = /\/\*[\s\S]*?\*\/|\/\/.*/g;
const MOVED = /^(import(?: type)?|export(?: type)?) \{([^}]*)\} from ['"]([^'"]+)['"];\s*$/;
const DECLARATION = /^(?:export )?(?:declare )?(?:abstract )?(class|interface|type|function|const|enum) (\w+)/;
const INLINE_IMPORT = /import\(['"]([^'"]+)['"]\)\.(\w+)/g;

/** What only Node's types, DOM's or a new library of TypeScript declare. */
const FROM_OUTSIDE = /\b(?:AbortSignal|AsyncDisposable|Buffer|Symbol\.asyncDispose)\b|from '(?:node:)[^']*';$/;
const IGNORED = '// @ts-ignore: any, in a project without these types';

/**
 * Writes to `dir`/esm/types and `dir`/cjs/types what a library's entries export, and what that refers to: nothing else
 * of the files that declare it, and nothing that is marked as internal. A type that a project need not have is `any`
 * where it does not.
 */
export async function writeDeclarations({ entries, boundary }: Declared, dir: string): Promise<void> {
  mkdirSync(join(ROOT, '.idalloc'), { recursive: true });
  const all = mkdtempSync(join(ROOT, '.idalloc/declarations-'));
  try {
    await emitDeclarations(Object.values(entries), all);
    const texts = reachable(Object.values(entries).map(declarationOf), all, boundary);
    for (const [file, text] of texts) {
      for (const format of ['esm', 'cjs']) {
        const copy = join(dir, format, 'types', file);
        mkdirSync(dirname(copy), { recursive: true });
        writeFileSync(copy, text);
      }
    }
  } finally {
    rmSync(all, { recursive: true, force: true });
  }
}

/** The declaration file of a source file, relative to src. */
export function declarationOf(source: string): string {
  return relative('src', source).replace(/\.[jt]s$/, '.d.ts');
}

async function emitDeclarations(entries: readonly string[], outDir: string): Promise<void> {
  const config = join(outDir, 'tsconfig.json');
  const ambient = globSync('src/**/*.d.ts', { cwd: ROOT });
  const settings = {
    extends: join(ROOT, 'tsconfig.client.json'),
    compilerOptions: {
      ...{ noEmit: false, emitDeclarationOnly: true, stripInternal: true },
      ...{ rootDir: join(ROOT, 'src'), outDir, sourceMap: false },
    },
    files: [...entries, ...ambient].map((file) => join(ROOT, file)),
    include: [],
  };
  writeFileSync(config, JSON.stringify(settings));
  const purpose = 'the declarations by tsc';
  await run({ command: TSC, args: ['--project', config], cwd: ROOT, purpose, timeoutMs: TIMEOUT_MS });
}

/** By file, relative to `root`: the text with what the entries' exports reach. */
function reachable(
  entries: readonly string[],
  root: string,
  boundary: Declared['boundary'],
): ReadonlyMap<string, string> {
  const files = new Map<
    string,
    { readonly statements: readonly DeclarationStatement[]; readonly needed: Set<string> }
  >();
  const fileOf = (file: string) => {
    const known = files.get(file);
    if (known !== undefined) return known;
    const made = { statements: statementsOf(readFileSync(join(root, file), 'utf8')), needed: new Set<string>() };
    files.set(file, made);
    return made;
  };
  const follow = (file: string, source: string, name: string) => {
    if (!source.startsWith('.') || sourceOf(file, source) === boundary?.source) return;
    need(declarationOf(sourceOf(file, source)), name);
  };
  const need = (file: string, name: string) => {
    const { statements, needed } = fileOf(file);
    if (needed.has(name)) return;
    needed.add(name);
    for (const statement of statements) {
      if (statement.kind !== 'declaration') {
        for (const one of statement.specifiers) if (one.name === name) follow(file, statement.source, one.imported);
      } else if (statement.names.includes(name)) {
        const code = statement.text.replaceAll(COMMENT, '');
        for (const [, source = '', inner = ''] of code.matchAll(INLINE_IMPORT)) follow(file, source, inner);
        for (const [word] of code.matchAll(/\w+/g)) need(file, word);
      }
    }
  };
  for (const file of entries) for (const name of exportsOf(fileOf(file).statements)) need(file, name);
  return new Map(
    [...files].map(([file, { statements, needed }]) => [file, textOf(file, statements, needed, boundary)]),
  );
}

function exportsOf(statements: readonly DeclarationStatement[]): readonly string[] {
  return statements.flatMap((statement) => {
    if (statement.kind === 'export') return statement.specifiers.map(({ name }) => name);
    return statement.kind === 'declaration' && /^export /m.test(statement.text) ? statement.names : [];
  });
}

function statementsOf(text: string): readonly DeclarationStatement[] {
  const pieces: string[] = [];
  for (const piece of text.split(BEGIN)) {
    const before = pieces.at(-1);
    if (before !== undefined && before.replaceAll(COMMENT, '').trim() === '') pieces.splice(-1, 1, before + piece);
    else pieces.push(piece);
  }
  return pieces.filter((piece) => piece.trim() !== '' && !declaresNothing(piece)).map(statementOf);
}

/** An import for what a module does, of which there is nothing to declare. */
function declaresNothing(text: string): boolean {
  return /^import '[^']+';$/.test(text.replaceAll(COMMENT, '').trim());
}

/** Throws Error for a statement of another kind than the compiler has written so far. */
function statementOf(text: string): DeclarationStatement {
  const code = text.replaceAll(COMMENT, '').trim();
  const [, head = '', list = '', source = ''] = MOVED.exec(code) ?? [];
  if (source !== '') {
    const specifiers = list.split(',').map((piece): Specifier => {
      const own = piece.trim();
      const [imported = '', name = imported] = own.replace(/^type /, '').split(' as ');
      return { name, imported, text: own };
    });
    return { kind: head.startsWith('import') ? 'import' : 'export', head, specifiers, source };
  }
  if (code === 'export {};') return { kind: 'declaration', names: [], text };
  const [, kind, name] = DECLARATION.exec(code) ?? [];
  if (name === undefined) throw new Error(`a declaration of a kind that is not read here yet: ${code.slice(0, 200)}`);
  // One statement may declare several constants.
  const others = kind === 'const' ? [...code.matchAll(/, (\w+): /g)].map(([, other = '']) => other) : [];
  return { kind: 'declaration', names: [name, ...others], text };
}

function textOf(
  file: string,
  statements: readonly DeclarationStatement[],
  needed: ReadonlySet<string>,
  boundary: Declared['boundary'],
): string {
  const kept = statements.flatMap((statement) => {
    if (statement.kind === 'declaration') {
      const { names, text } = statement;
      return names.length === 0 || names.some((name) => needed.has(name)) ? [text.trimEnd()] : [];
    }
    const { head, specifiers, source } = statement;
    const used = specifiers.filter(({ name }) => needed.has(name)).map(({ text }) => text);
    return used.length === 0 ? [] : [`${head} { ${used.join(', ')} } from '${source}';`];
  });
  const isPackage = (source: string) => sourceOf(file, source) === boundary?.source;
  const moved = kept
    .join('\n')
    .replaceAll(/(from |import\()(['"])(\.[^'"]+)\2/g, (_whole, keyword, _quote, source) =>
      isPackage(source) ? `${keyword}'${boundary?.package}'` : `${keyword}'${source.replace(/\.ts$/, '.js')}'`,
    );
  const lines = moved.split('\n').flatMap((line) => {
    const isCode = !/^\s*(?:\*|\/\*)/.test(line);
    return isCode && FROM_OUTSIDE.test(line) ? [`${/^\s*/.exec(line)?.[0]}${IGNORED}`, line] : [line];
  });
  return `${lines.join('\n')}\n`;
}

function sourceOf(file: string, source: string): string {
  return join('src', dirname(file), source);
}
