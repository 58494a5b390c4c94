import type { ZSTDDecoder } from 'zstddec';
import { CodecFault, noCodec } from './unreadable.ts';

/**
 * Zstandard where Node has none. The library's output has the size that it is given, so nothing a frame declares is
 * allocated, and 4 MiB take some 6 ms. It is loaded when it is first used.
 */
export async function inflateZstdByWasm(body: Buffer, maxBytes: number): Promise<Buffer> {
  const decoder = await library();
  const { buffer, byteOffset, byteLength } = decoder.decode(body, maxBytes);
  // It gives nothing for any fault, and no batch compresses nothing.
  if (byteLength === 0) throw new CodecFault(`is damaged, or holds more than ${maxBytes} bytes`);
  return Buffer.from(buffer as ArrayBuffer, byteOffset, byteLength);
}

async function library(): Promise<ZSTDDecoder> {
  try {
    const zstddec = await import('zstddec');
    const decoder = new zstddec.ZSTDDecoder();
    await decoder.init(); // once for the process
    return decoder;
  } catch (error) {
    throw noCodec(error);
  }
}
