import {
  type Form,
  type FormName,
  ID_BITS,
  isId,
  type OpenForm,
  refusedText,
  requireId,
  requireString,
} from './form.ts';

export interface PlainForm {
  readonly name: FormName;
  readonly sorts: Form['sorts'];
  readonly shape: RegExp;
  /** log2 of the number of texts of this shape. */
  readonly textBits: number;
  /** The expected text, for the error message of `parse`. */
  readonly expected: string;
  readonly write: (id: bigint) => string;
  /** The number in a text; undefined for a text of another shape. */
  readonly read: (text: string) => bigint | undefined;
}

/** A form that writes the ID in some base and needs no settings. */
export function plainForm({ name, sorts, shape, textBits, expected, write, read }: PlainForm): Form {
  const open: OpenForm = {
    format: (id) => write(requireId(id)),
    parse: (text) => {
      const id = read(requireString(text));
      if (id !== undefined && isId(id)) return id;
      throw refusedText(name, text, `${expected} below 2^63`);
    },
  };
  return { name, sorts, needs: [], shape, freeBits: () => Math.floor(textBits - ID_BITS), open: () => open };
}
