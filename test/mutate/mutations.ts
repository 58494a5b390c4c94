import {
  type BinaryExpression,
  type CallExpression,
  type Expression,
  type IfStatement,
  isAwaitExpression,
  isBigIntLiteral,
  isBinaryExpression,
  isBlock,
  isCallExpression,
  isConditionalExpression,
  isExportDeclaration,
  isExpressionStatement,
  isIfStatement,
  isImportDeclaration,
  isInterfaceDeclaration,
  isNewExpression,
  isNumericLiteral,
  isPrefixUnaryExpression,
  isPropertyAccessExpression,
  isPropertyAssignment,
  isTypeAliasDeclaration,
  isTypeNode,
  isVoidExpression,
  type Node,
  type SourceFile,
  SyntaxKind,
} from 'typescript/unstable/ast';
import type { Rng } from '../sim/rng.ts';

/** What a small mistake looks like, by its kind. */
export const KINDS = {
  operator: 'another operator, such as <= in place of <',
  constant: 'a number that is one higher, or true in place of false',
  await: 'an await that is missing',
  call: 'a call statement that is missing',
  arguments: 'the first two arguments swapped',
  guard: 'an if without else that leaves the block, missing',
  condition: 'a condition negated',
} as const;

type Kind = keyof typeof KINDS;

/** One small change of a file: `text` in place of what is between two offsets. */
export interface Mutation {
  readonly kind: Kind;
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** A mutation and its file, relative to the root. */
export interface MutationOfFile extends Mutation {
  readonly file: string;
}

const OPERATORS: Readonly<Record<string, string>> = {
  '<': '<=',
  '<=': '<',
  '>': '>=',
  '>=': '>',
  '===': '!==',
  '!==': '===',
  '+': '-',
  '-': '+',
  '*': '/',
  '/': '*',
  '+=': '-=',
  '-=': '+=',
  '&&': '||',
  '||': '&&',
};
const LOG_LEVELS: ReadonlySet<string> = new Set(['fatal', 'error', 'warn', 'info', 'debug', 'trace']);
/** Literals of text, and functions and objects: to swap those is no small mistake. */
const NOT_SWAPPED: ReadonlySet<SyntaxKind> = new Set([
  SyntaxKind.StringLiteral,
  SyntaxKind.NoSubstitutionTemplateLiteral,
  SyntaxKind.TemplateExpression,
  SyntaxKind.ArrowFunction,
  SyntaxKind.FunctionExpression,
  SyntaxKind.ObjectLiteralExpression,
  SyntaxKind.SpreadElement,
]);
/** Functions to which the order of arguments makes no difference. */
const SYMMETRIC = /^Math\.(?:max|min|hypot|imul)$/;
const TEXTS: ReadonlySet<SyntaxKind> = new Set([
  SyntaxKind.StringLiteral,
  SyntaxKind.NoSubstitutionTemplateLiteral,
  SyntaxKind.TemplateExpression,
]);
const LEAVES: ReadonlySet<SyntaxKind> = new Set([
  SyntaxKind.ReturnStatement,
  SyntaxKind.ThrowStatement,
  SyntaxKind.ContinueStatement,
  SyntaxKind.BreakStatement,
]);

/** All mutations of a file, in the order of its text. Types, imports, messages, log lines and texts have none. */
export function mutationsOf(source: SourceFile): readonly Mutation[] {
  const found: Mutation[] = [];
  const visit = (node: Node): void => {
    if (isLeftAlone(node, source)) return;
    found.push(...mutationsAt(node, source));
    node.forEachChild(visit);
  };
  visit(source);
  return found;
}

/** Types, imports, and what is only read by people. */
function isLeftAlone(node: Node, source: SourceFile): boolean {
  if (isTypeNode(node) || isInterfaceDeclaration(node) || isTypeAliasDeclaration(node)) return true;
  if (isImportDeclaration(node) || isExportDeclaration(node)) return true;
  if (node.kind === SyntaxKind.TemplateExpression) return true;
  if (isNewExpression(node)) return node.expression.getText(source).endsWith('Error');
  return isCallExpression(node) && isLogLine(node, source);
}

function isLogLine({ expression }: CallExpression, source: SourceFile): boolean {
  if (!isPropertyAccessExpression(expression)) return false;
  return LOG_LEVELS.has(expression.name.getText(source)) && /log$/i.test(expression.expression.getText(source));
}

function mutationsAt(node: Node, source: SourceFile): readonly Mutation[] {
  const replaced = (kind: Kind, at: Node, text: string): Mutation => {
    return { kind, start: at.getStart(source), end: at.end, text };
  };
  const negated = (condition: Expression): Mutation => {
    const text = isNot(condition) ? condition.operand.getText(source) : `!(${condition.getText(source)})`;
    return replaced('condition', condition, text);
  };
  if (isBinaryExpression(node)) {
    const to = isCondition(node) || isOfTexts(node) ? undefined : OPERATORS[node.operatorToken.getText(source)];
    return to === undefined ? [] : [replaced('operator', node.operatorToken, to)];
  }
  if (isNumericLiteral(node)) {
    const isName = isPropertyAssignment(node.parent) && node.parent.name === node;
    return isName ? [] : [replaced('constant', node, `(${node.getText(source)} + 1)`)];
  }
  if (isBigIntLiteral(node)) return [replaced('constant', node, `(${node.getText(source)} + 1n)`)];
  if (node.kind === SyntaxKind.TrueKeyword) return [replaced('constant', node, 'false')];
  if (node.kind === SyntaxKind.FalseKeyword) return [replaced('constant', node, 'true')];
  if (isAwaitExpression(node)) return [replaced('await', node, node.expression.getText(source))];
  if (isExpressionStatement(node)) return isCallStatement(node.expression, source) ? [replaced('call', node, ';')] : [];
  if (isCallExpression(node) || isNewExpression(node)) {
    const [first, second] = node.arguments ?? [];
    if (first === undefined || second === undefined || SYMMETRIC.test(node.expression.getText(source))) return [];
    const [one, other] = [first.getText(source), second.getText(source)];
    if (one === other || NOT_SWAPPED.has(first.kind) || NOT_SWAPPED.has(second.kind)) return [];
    const between = source.text.slice(first.end, second.getStart(source));
    return [
      { kind: 'arguments', start: first.getStart(source), end: second.end, text: `${other}${between}${one}` } as const,
    ];
  }
  if (isIfStatement(node)) return [...(isGuard(node) ? [replaced('guard', node, ';')] : []), negated(node.expression)];
  return isConditionalExpression(node) ? [negated(node.condition)] : [];
}

function isNot(node: Expression): node is Expression & { readonly operand: Expression } {
  return isPrefixUnaryExpression(node) && node.operator === SyntaxKind.ExclamationToken;
}

/** Whether the expression is a whole condition, which is negated anyway. */
function isCondition(node: BinaryExpression): boolean {
  const token = node.operatorToken.kind;
  if (token !== SyntaxKind.EqualsEqualsEqualsToken && token !== SyntaxKind.ExclamationEqualsEqualsToken) return false;
  const { parent } = node;
  return isIfStatement(parent)
    ? parent.expression === node
    : isConditionalExpression(parent) && parent.condition === node;
}

/** Whether texts are joined rather than numbers added. */
function isOfTexts({ left, right }: BinaryExpression): boolean {
  return TEXTS.has(left.kind) || TEXTS.has(right.kind) || (isBinaryExpression(left) && isOfTexts(left));
}

function isCallStatement(expression: Expression, source: SourceFile): boolean {
  if (isAwaitExpression(expression) || isVoidExpression(expression))
    return isCallStatement(expression.expression, source);
  if (!isCallExpression(expression) || isLogLine(expression, source)) return false;
  return expression.expression.kind !== SyntaxKind.SuperKeyword;
}

function isGuard({ thenStatement, elseStatement }: IfStatement): boolean {
  if (elseStatement !== undefined) return false;
  const last = isBlock(thenStatement) ? thenStatement.statements.at(-1) : thenStatement;
  return last !== undefined && LEAVES.has(last.kind);
}

/** The text with the mutation. */
export function mutated(text: string, { start, end, text: to }: Mutation): string {
  return text.slice(0, start) + to + text.slice(end);
}

/** The changed lines before and after, as in a diff. */
export function diffOf(text: string, mutation: Mutation): string {
  const first = text.lastIndexOf('\n', mutation.start - 1) + 1;
  const next = text.indexOf('\n', mutation.end);
  const end = next < 0 ? text.length : next;
  const after = text.slice(first, mutation.start) + mutation.text + text.slice(mutation.end, end);
  const lines = (sign: string, of: string) => of.split('\n').map((line) => `${sign} ${line}`);
  return [...lines('-', text.slice(first, end)), ...lines('+', after)].join('\n');
}

/** The line of the text in which a mutation begins, counted from 1. */
export function lineOf(text: string, { start }: Mutation): number {
  return text.slice(0, start).split('\n').length;
}

/**
 * Draws up to `count` of them, none twice. Each kind is as likely as the others, however seldom the sources offer it.
 */
export function draw(all: readonly MutationOfFile[], count: number, rng: Rng): readonly MutationOfFile[] {
  const byKind = [...Map.groupBy(all, ({ kind }) => kind).values()].map((ones) => [...ones]);
  const drawn: MutationOfFile[] = [];
  for (let left = byKind; left.length > 0 && drawn.length < count; left = left.filter((ones) => ones.length > 0)) {
    const ones = rng.pick(left);
    drawn.push(...ones.splice(rng.below(ones.length), 1));
  }
  return drawn;
}
