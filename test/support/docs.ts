import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export const ROOT = join(import.meta.dirname, '../..');

/** Every page for readers, by its path from the root. */
export const PAGES: readonly string[] = [
  ...readdirSync(ROOT).filter((name) => name.endsWith('.md')),
  ...readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => join('docs', name)),
].toSorted();

export function readPage(page: string): string {
  return readFileSync(join(ROOT, page), 'utf8');
}

/** A fenced block of a page. */
export interface Block {
  /** The number of its first line of content, from 1. */
  readonly line: number;
  readonly language: string;
  readonly body: readonly string[];
}

/** A command that a page shows, with its output if that is shown. */
export interface ShownCommand {
  readonly line: number;
  readonly command: string;
  readonly output: readonly string[] | undefined;
}

/**
 * All fenced blocks, without the indentation that they have in a list.
 *
 * @throws Error for a block that does not end.
 */
export function blocksOf(markdown: string): Block[] {
  const found: Block[] = [];
  const lines = markdown.split('\n');
  for (let at = 0; at < lines.length; at += 1) {
    const [, indent = '', language] = /^( *)```(\w*)$/.exec(lines[at] ?? '') ?? [];
    if (language === undefined) continue;
    const end = lines.indexOf(`${indent}\`\`\``, at + 1);
    if (end < 0) throw new Error(`the block of line ${at + 1} does not end`);
    const body = lines.slice(at + 1, end).map((line) => line.slice(indent.length));
    found.push({ line: at + 2, language, body });
    at = end;
  }
  return found;
}

/**
 * The commands of all sh blocks, without their comments, and of all console blocks, in the order of the page. A console
 * block that does not begin with a command is the output of the js block before it.
 *
 * @throws Error for a console block that is neither.
 */
export function blockCommands(markdown: string): ShownCommand[] {
  return blocksOf(markdown).flatMap(({ language, body, line }, i, all) => {
    if (language === 'sh') return shellCommands(body, line);
    return language === 'console' ? consoleCommands(body, line, all[i - 1]?.language) : [];
  });
}

function shellCommands(body: readonly string[], first: number): ShownCommand[] {
  return body.flatMap((text, i) => {
    const command = text.replace(/(^|\s)#.*/, '').trim();
    return command === '' ? [] : [{ line: first + i, command, output: undefined }];
  });
}

function consoleCommands(body: readonly string[], first: number, before: string | undefined): ShownCommand[] {
  const starts = body.flatMap((text, i) => (text.startsWith('$ ') ? [i] : []));
  if (starts[0] === undefined && before === 'js') return [];
  if (starts[0] !== 0) throw new Error(`line ${first}: a console block begins with '$ ' and a command`);
  return starts.map((start, i) => ({
    line: first + start,
    command: (body[start] ?? '').slice(2),
    output: body.slice(start + 1, starts[i + 1]),
  }));
}

function proseOf(markdown: string): string {
  return markdown.replaceAll(/^( *)```[\s\S]*?^\1```$/gm, '');
}

/** The text in single backticks outside blocks, each joined to one line. */
export function inlineCode(markdown: string): string[] {
  return [...proseOf(markdown).matchAll(/`([^`]+)`/g)].map(([, text = '']) => text.replaceAll(/\s+/g, ' '));
}

/** The targets of all links and pictures outside code, except links to other sites. */
export function linksOf(markdown: string): string[] {
  const text = proseOf(markdown).replaceAll(/`[^`]*`/g, '`');
  return [...text.matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target = '']) => target)
    .filter((target) => !/^[a-z]+:/.test(target));
}

/** The anchors of a page's headings, as GitHub builds them. */
export function anchorsOf(markdown: string): string[] {
  const seen = new Map<string, number>();
  return [...proseOf(markdown).matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) => {
    const slug = slugOf(heading);
    const times = seen.get(slug) ?? 0;
    seen.set(slug, times + 1);
    return times === 0 ? slug : `${slug}-${times}`;
  });
}

function slugOf(heading: string): string {
  const text = heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1').trim();
  return text
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}_ -]/gu, '')
    .replaceAll(' ', '-');
}
