import { Command } from 'commander';
import type { CliContext } from '../context.ts';
import { repeated } from '../options.ts';
import { workersOf } from '../status/status.ts';
import type { BundleFlags } from './bundle-run.ts';

const HELP = `
The archive has one directory: versions and the names of the variables that are set; status, readiness and metrics of each worker, chosen as
by 'status'; what doctor, 'topics check' and 'leases' print; and the end of the log files that --log names. Where a part can't be had, a file says
why, and the rest is still there: it is for the hour in which something is down.

It has no secret: variables that have one are named, not shown, and every text is searched for the configured secrets. It does have names of
hosts, topics and users, and correlation IDs, if the log has them: look before you send it to others. The file is readable to you alone.
Run it with a worker's variables. The exit code is 0 once the archive is written.

Examples:
  idalloc bundle
  idalloc bundle --all --log /var/log/idalloc.log
  kubectl logs ids-idalloc-0 --timestamps=false >worker-0.log; idalloc bundle ids-idalloc-ops.ids.svc --log worker-0.log --json`;

/** `idalloc bundle`: what others need to see of a fault, in one file without secrets. */
export function bundleCommand(context: CliContext): Command {
  return workersOf(new Command('bundle').description('Write what is known of workers and servers to one archive.'))
    .option('--output <file>', 'the archive, which must not exist yet (default: idalloc-bundle-TIME.tar.gz)')
    .option('--log <file>', 'a log file, of which the last 2 MiB are added; can be repeated', repeated)
    .option('--json', 'print one line of JSON: {"file","bytes","parts","failed"}')
    .addHelpText('after', HELP)
    .action(async (names: readonly string[], flags: BundleFlags) =>
      (await import('./bundle-run.ts')).runBundle(context, names, flags),
    );
}
