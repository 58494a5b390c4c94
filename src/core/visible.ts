/**
 * What a terminal may execute, and what Unicode says is not shown: C0 and C1 controls but for the end of a line and the
 * tab, bidirectional controls, characters of no width, which make texts look equal, and halves of characters, as which
 * the command line keeps its own styles.
 */
const UNSEEN = /[^\P{Cc}\n\t]|[\p{Cf}\p{Cs}\p{Default_Ignorable_Code_Point}\p{Zl}\p{Zp}]/gu;

/**
 * Makes text from records, servers and callers safe for a terminal. Unseen characters are escaped as JSON does, so that
 * JSON keeps its meaning. Other text is not changed.
 */
export function visible(text: string): string {
  return text.replace(UNSEEN, escaped);
}

/** Like visible, for a text within a line of ours: it can't begin another line either. */
export function printable(text: string): string {
  return visible(text).replace(/[\n\t]/g, escaped);
}

function escaped(character: string): string {
  return character
    .split('')
    .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .join('');
}
