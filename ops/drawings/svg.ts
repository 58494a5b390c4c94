/** What a drawing is made of. Lengths are in units of a picture that is 720 wide; a phone shows it at half that. */

export const WIDTH = 720;

/**
 * Colours for a light and a dark background; the background is part of the picture, so that it is legible on any page.
 */
const STYLE = `
:root{--back:#fff;--ink:#23272f;--soft:#5b6472;--line:#7b8494;--box:#f4f6fa;--edge:#b9c1ce;--main:#3451b2;--fill:#e6ebfb;--good:#18794e;--goodfill:#e0f3e8;--bad:#b42318;--badfill:#fdebe9}
@media(prefers-color-scheme:dark){:root{--back:#1b1b1f;--ink:#dfe3ea;--soft:#a3abb8;--line:#8b93a3;--box:#26272d;--edge:#4b515e;--main:#a8b9ff;--fill:#2b3357;--good:#6fd6a4;--goodfill:#1d3b2e;--bad:#ff9a8f;--badfill:#4a2623}}
.back{fill:var(--back)}
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;font-size:15px;fill:var(--ink)}
.small{font-size:13px}.soft{fill:var(--soft)}.strong{font-weight:600}
.mono{font-family:ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:13px}
.box{fill:var(--box);stroke:var(--edge);stroke-width:1.5}
.area{fill:none;stroke:var(--edge);stroke-width:1.5;stroke-dasharray:5 4}
.main{fill:var(--fill);stroke:var(--main);stroke-width:1.5}
.good{fill:var(--goodfill);stroke:var(--good);stroke-width:1.5}
.bad{fill:var(--badfill);stroke:var(--bad);stroke-width:1.5}
.line{fill:none;stroke:var(--line);stroke-width:1.6}
.thin{fill:none;stroke:var(--edge);stroke-width:1.2;stroke-dasharray:3 4}
.head{fill:var(--line)}`;

export type Kind = 'box' | 'area' | 'main' | 'good' | 'bad';

interface TextOptions {
  readonly at?: 'start' | 'middle' | 'end';
  /** small, soft, strong, mono; several with spaces between. */
  readonly look?: string;
}

export interface Drawing {
  /** The name of the file, without its suffix. */
  readonly name: string;
  readonly title: string;
  /** For those who can't see it. */
  readonly description: string;
  readonly height: number;
  readonly parts: readonly string[];
}

export function svgOf({ title, description, height, parts }: Drawing): string {
  return `${[
    '<!-- Made by `npm run docs:drawings` from ops/drawings. Edits here are lost. -->',
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-labelledby="t d">`,
    `<title id="t">${escaped(title)}</title>`,
    `<desc id="d">${escaped(description)}</desc>`,
    `<style>${STYLE}</style>`,
    '<defs><marker id="a" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path class="head" d="M0 0 10 5 0 10z"/></marker></defs>',
    `<rect class="back" width="${WIDTH}" height="${height}" rx="8"/>`,
    ...parts,
    '</svg>',
  ].join('\n')}\n`;
}

export function text(x: number, y: number, content: string, { at = 'middle', look = '' }: TextOptions = {}): string {
  const style = look === '' ? '' : ` class="${look}"`;
  return `<text x="${x}" y="${y}" text-anchor="${at}"${style}>${escaped(content)}</text>`;
}

/** Lines below each other, the first at `y`. */
export function lines(x: number, y: number, content: readonly string[], options: TextOptions = {}): string {
  return content.map((line, nth) => text(x, y + 18 * nth, line, options)).join('\n');
}

export function rect(x: number, y: number, width: number, height: number, kind: Kind = 'box'): string {
  return `<rect class="${kind}" x="${x}" y="${y}" width="${width}" height="${height}" rx="6"/>`;
}

/** A box with lines in its middle. */
export function box(
  x: number,
  y: number,
  width: number,
  height: number,
  content: readonly string[],
  kind: Kind = 'box',
  look = '',
): string {
  const first = y + height / 2 + 5 - 9 * (content.length - 1);
  return `${rect(x, y, width, height, kind)}\n${lines(x + width / 2, first, content, { look })}`;
}

/** A line through points, with a head at its end; at both ends with `both`, at none with `none`. */
export function arrow(points: readonly (readonly [number, number])[], heads: 'end' | 'both' | 'none' = 'end'): string {
  const path = points.map(([x, y], nth) => `${nth === 0 ? 'M' : 'L'}${x} ${y}`).join(' ');
  const start = heads === 'both' ? ' marker-start="url(#a)"' : '';
  return `<path class="line" d="${path}"${start}${heads === 'none' ? '' : ' marker-end="url(#a)"'}/>`;
}

export function thin(x: number, y: number, toX: number, toY: number): string {
  return `<path class="thin" d="M${x} ${y} L${toX} ${toY}"/>`;
}

function escaped(content: string): string {
  return content.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
