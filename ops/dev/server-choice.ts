/** What is known of this machine when Kafka and etcd have to come from somewhere. */
export interface Facts {
  /** The value of a variable that asks for one kind, and its name. */
  readonly wish?: { readonly kind: string; readonly by: string } | undefined;
  /** Why containers can't be used: no engine, or no images. Undefined if they can. */
  readonly noContainers: string | undefined;
  /** Tools that child processes need and that are missing or too old. */
  readonly missing: readonly string[];
  /** Why nothing can be installed here; undefined if it can. */
  readonly noInstall: string | undefined;
}

/** The kind of servers, and why; with `install`, the missing tools have to be installed first. */
export interface Choice {
  readonly kind: 'containers' | 'processes';
  readonly install: boolean;
  readonly because: string;
}

const KINDS: readonly string[] = ['containers', 'processes'];

/**
 * Chooses in this order: containers, the tools on the PATH, tools that can be installed. Throws an error with cause and
 * remedy if there is none of them, or if a variable asks for what is not there.
 */
export function choose({ wish, noContainers, missing, noInstall }: Facts): Choice {
  if (wish !== undefined && !KINDS.includes(wish.kind)) {
    throw new Error(`${wish.by} is '${wish.kind}'; set it to ${KINDS.join(' or ')}, or unset it`);
  }
  if (wish?.kind !== 'processes' && noContainers === undefined) {
    return { kind: 'containers', install: false, because: 'a container engine answers and has the images' };
  }
  if (wish?.kind === 'containers') throw new Error(`${wish.by}=containers, but ${noContainers}`);
  const because = wish === undefined ? String(noContainers) : `${wish.by} asks for them`;
  if (missing.length === 0) return { kind: 'processes', install: false, because };
  if (noInstall === undefined) return { kind: 'processes', install: true, because };
  throw new Error(
    [
      'no Kafka and etcd can be had here:',
      `containers: ${wish === undefined ? noContainers : `${wish.by} excludes them`}`,
      ...missing.map((fault) => `child processes: ${fault}`),
      `nothing is installed, because ${noInstall}`,
      'Start a container engine that can pull the images, install the tools, or set KAFKA_BROKERS and ETCD_ENDPOINTS.',
    ].join('\n  '),
  );
}
