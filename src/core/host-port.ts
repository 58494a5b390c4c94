/** The address of a server: a name or an IP address, without brackets, and a port. */
export interface HostPort {
  readonly host: string;
  readonly port: number;
}

/** What a text must be that names one. */
export const HOST_PORT = 'host:port, with an IPv6 address in brackets as in [::1]:9092';

const FORM = /^(?:\[(?<ip>[0-9A-Fa-f:.]+)(?<zone>%[\w.-]+)?\]|(?<name>[A-Za-z0-9._-]+)):(?<port>[0-9]{1,5})$/;

export function isHostPort(text: string): boolean {
  return found(text) !== undefined;
}

/** Throws RangeError, without the text, which may contain a password. */
export function parseHostPort(text: string): HostPort {
  const address = found(text);
  if (address === undefined) throw new RangeError(`must be ${HOST_PORT}`);
  return address;
}

/** The inverse. Without the brackets nobody could tell the port from the last group of an IPv6 address. */
export function formatHostPort({ host, port }: HostPort): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

function found(text: string): HostPort | undefined {
  const { ip, zone = '', name = '', port = '' } = FORM.exec(text)?.groups ?? {};
  if (Number(port) < 1 || Number(port) > 65_535) return undefined;
  if (ip === undefined) return { host: name, port: Number(port) };
  return URL.canParse(`http://[${ip}]`) ? { host: `${ip}${zone}`, port: Number(port) } : undefined;
}

const LOOPBACK_4 = /^127(?:\.(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3}$/;

/** Whether a host is this machine; of names, only localhost is. An IPv6 address is without brackets. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || LOOPBACK_4.test(host);
}
