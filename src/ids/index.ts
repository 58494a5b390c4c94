export { type FormKeys, formKeys } from '../codec/form/keys.ts';
export type { Layout } from '../core/layout.ts';
export { type CustomLayout, customLayout } from '../core/layout-choice.ts';
export { type PresetName, presetLayout } from '../core/presets.ts';
export { type ErrorCode, IdallocError } from '../errors.ts';
export { type DecodedId, decode, type FormOptions, firstIdAt, format, type IdForm, parse } from './ids.ts';
