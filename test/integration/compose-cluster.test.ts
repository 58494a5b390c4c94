import { expect, test } from 'vitest';
import { docker } from '../../ops/dev/docker-engine.ts';
import { ensureImages } from '../../ops/dev/images.ts';
import { freePorts } from '../../ops/dev/ports.ts';
import { ComposeProject, composeLog } from '../support/compose-project.ts';
import { requireEngine } from '../support/engine.ts';

const WORKERS = 3;
const ASK_MS = 90_000;

test('ops/compose/cluster.yml serves requests with three brokers, members and workers, and without one of each; Prometheus sees every worker', async (context) => {
  requireEngine(context);
  await ensureImages(['kafka', 'etcd', 'node', 'prometheus'], composeLog);
  const [port] = await freePorts(1);
  await using project = await ComposeProject.create('ops/compose/cluster.yml', { IDALLOC_PROMETHEUS_PORT: `${port}` });
  composeLog('building the image of the worker');
  await project.compose('build');
  await project.compose('up', '-d');
  const workers = await project.readyWorkers(WORKERS, 'worker');

  const ask = async (worker = '') => {
    // A killed worker's partitions wait for its session to end, and a killed broker's for another leader.
    const command = ['idalloc', 'request', '--count', '3', '--timeout-ms', `${ASK_MS}`, '--json'];
    const { code, stdout, stderr } = await docker(['exec', worker, ...command], 2 * ASK_MS);
    if (code !== 0) throw new Error(`${stdout}${stderr}`);
    return JSON.parse(stdout) as { ids: { value_string: string }[] };
  };
  const first = await Promise.all(workers.map(ask));
  const sum = async (query: string) => {
    const url = `http://127.0.0.1:${port}/api/v1/query?query=${encodeURIComponent(`sum(${query})`)}`;
    const answer = (await (await fetch(url)).json()) as { data: { result: { value: [number, string] }[] } };
    return Number(answer.data.result[0]?.value[1] ?? 0);
  };
  await expect.poll(() => sum('up{job="idalloc"}')).toBe(WORKERS);
  await expect.poll(() => sum('idalloc_ids_total')).toBeGreaterThanOrEqual(3 * WORKERS);

  const [killed, ...others] = workers;
  await project.compose('kill', 'kafka-2', 'etcd-2');
  await docker(['kill', killed ?? '']);
  const second = await Promise.all(others.map(ask));
  const ids = [...first, ...second].flatMap((reply) => reply.ids.map(({ value_string }) => value_string));
  expect(new Set(ids).size).toBe(3 * (2 * WORKERS - 1));
}, 900_000);
