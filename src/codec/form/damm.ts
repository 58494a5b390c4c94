/**
 * The quasigroup of order 10 from H. M. Damm, "Total anti-symmetrische Quasigruppen" (2004). It detects every single
 * wrong digit and every swap of adjacent digits.
 */
const QUASIGROUP = [
  '0317598642',
  '7092154863',
  '4206871359',
  '1750983426',
  '6123045978',
  '3674209581',
  '5869720134',
  '8945362017',
  '9438617205',
  '2581436790',
];

/** The check digit of a string of decimal digits. With it appended, the string has check digit 0. */
export function dammDigit(digits: string): number {
  let state = 0;
  for (const digit of digits) state = Number(QUASIGROUP[state]?.charAt(Number(digit)));
  return state;
}
