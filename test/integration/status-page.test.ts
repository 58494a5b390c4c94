import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ROOT } from '../../ops/dev/paths.ts';
import { BrowserPage } from '../support/browser.ts';
import { chromium } from '../support/example-tools.ts';
import { KEPT_LEASE } from '../support/realm.ts';
import { Scene } from '../support/scene.ts';

/** Where screenshots are left for a look at them. */
const SHOTS = join(ROOT, '.idalloc/screenshots');
const PARTITIONS = 3;
const WIDTHS = [390, 1_280, 1_680];
/** The worker keeps its worker ID, and an etcd that a busy machine makes slow stops nothing. */
const LEASE = { ...KEPT_LEASE, ETCD_REFUSE_AFTER_MS: '8000' };
const STATE = "document.getElementById('state').textContent";

/** What is wider than the window, apart from tables, which scroll by themselves. */
const OVERFLOWING = `[...document.querySelectorAll('body *')]
  .filter((one) => one.closest('.scroll') === null && one.getBoundingClientRect().right > innerWidth + 1)
  .map((one) => one.tagName + '#' + one.id)`;

/** Headings of tables that break within a word: such a word is wider than its cell. */
const BROKEN = `[...document.querySelectorAll('th')]
  .filter((one) => {
    const range = document.createRange();
    const text = one.firstChild;
    return [...text.data.matchAll(/\\S+/g)].some(({ 0: word, index }) => {
      range.setStart(text, index);
      range.setEnd(text, index + word.length);
      return range.getClientRects().length > 1;
    });
  })
  .map((one) => one.textContent)`;

async function shoot(page: BrowserPage, name: string): Promise<void> {
  const { data } = await page.call('Page.captureScreenshot', { captureBeyondViewport: true });
  mkdirSync(SHOTS, { recursive: true });
  writeFileSync(join(SHOTS, `${name}.png`), Buffer.from(String(data), 'base64'));
}

async function press(page: BrowserPage, key: string, text?: string): Promise<void> {
  const code = { key, code: key, windowsVirtualKeyCode: key === 'Tab' ? 9 : 13 };
  await page.call('Input.dispatchKeyEvent', { type: 'keyDown', ...code, ...(text === undefined ? {} : { text }) });
  await page.call('Input.dispatchKeyEvent', { type: 'keyUp', ...code });
}

/** Presses Tab until what has this label has the focus, and returns the labels of what had it before. */
async function tabTo(page: BrowserPage, label: string): Promise<string[]> {
  const passed: string[] = [];
  for (;;) {
    await press(page, 'Tab');
    const focused = await page.evaluate<string>("document.activeElement.getAttribute('aria-label') ?? 'none'");
    if (focused === label) return passed;
    passed.push(focused);
    if (focused === 'none' || passed.length > 20) throw new Error(`Tab does not reach ${label}: ${passed}`);
  }
}

interface Spoken {
  readonly role: { readonly value: string };
  readonly name?: { readonly value: string };
  readonly childIds: readonly string[];
  readonly nodeId: string;
}

/** What a screen reader gets of the page: roles with their names, or with their text. */
async function spoken(page: BrowserPage): Promise<string[]> {
  const { nodes } = (await page.call('Accessibility.getFullAXTree')) as { readonly nodes: readonly Spoken[] };
  const byId = new Map(nodes.map((node) => [node.nodeId, node]));
  const textOf = ({ name, childIds }: Spoken) =>
    name?.value || childIds.map((id) => byId.get(id)?.name?.value ?? '').join('');
  return nodes.map((node) => `${node.role.value} ${textOf(node)}`);
}

test('the status page shows a worker in a browser, and why it is not ready when etcd is gone', async (context) => {
  const tool = await chromium();
  if ('unavailable' in tool && !process.env.CI) context.skip(tool.unavailable);
  if ('unavailable' in tool) throw new Error(`CI is set, so the browser must be tested: ${tool.unavailable}`);
  await using scene = await Scene.open({
    partitions: PARTITIONS,
    env: LEASE,
  });
  const link = await scene.link();
  const quotas = `${scene.realm.env.REPLY_TOPIC_PREFIX} 1000000 -`;
  const worker = scene.start({ ...link.env, QUOTAS: quotas });
  await worker.ready();
  await using page = await BrowserPage.open(tool.path, await worker.opsUrl());

  await page.until(`${STATE} === 'Ready'`);
  for (const id of ['workers', 'group'])
    await page.until(
      `document.querySelectorAll('#${id} tr').length > 0 && !document.querySelector('#${id} td:only-child')`,
    );
  const rows = (id: string) =>
    page.evaluate<string[][]>(
      `[...document.querySelectorAll('#${id} tr')].map((row) => [...row.children].map((cell) => cell.textContent))`,
    );
  expect((await rows('partitions')).map(([partition, role, copy]) => [partition, role, copy])).toEqual(
    ['0', '1', '2'].map((partition) => [partition, 'owner', 'serving']),
  );
  const address: unknown = expect.stringMatching(/^[\d.:a-f]+$/);
  expect((await rows('workers')).map(([workerId, holder]) => [workerId, holder])).toEqual([
    [await page.evaluate("document.getElementById('worker').textContent"), address],
  ]);
  expect(await rows('group')).toEqual([[expect.any(String), address, '0–2', 'none']]);
  expect((await rows('quotas'))[0]?.[1]).toMatch(/^1000000 IDs\/s/);

  await page.call('Emulation.setDeviceMetricsOverride', {
    width: 1_280,
    height: 1_500,
    deviceScaleFactor: 1,
    mobile: false,
  });
  await shoot(page, 'status-ready');
  const regions = ['Changes of the gate', 'Partitions', 'Workers', 'Worker IDs', 'Drift', 'Quotas'];
  expect(await tabTo(page, 'ID, in any form')).toEqual(regions);
  await page.call('Input.insertText', { text: '0x00c48e86f8092000' });
  await press(page, 'Enter', '\r');
  await page.until("document.querySelectorAll('#bits .field').length === 5");
  expect(await spoken(page)).toEqual(
    expect.arrayContaining([
      'status Ready',
      'image When the gate was open in the last hour',
      ...regions.map((name) => `region ${name}`),
      'columnheader ceiling ahead',
      'textbox ID, in any form',
      'button Decode',
    ]),
  );
  expect(await page.evaluate("document.getElementById('decoded').textContent")).toContain('55325805773398016');
  await page.evaluate(`(() => {
    document.getElementById('id').value = '<img src=x onerror=alert(1)>';
    document.querySelector('form').requestSubmit();
  })()`);
  await page.until("document.getElementById('decoded').textContent.includes('onerror')");
  expect(await page.evaluate("document.querySelectorAll('img').length")).toBe(0);

  for (const scheme of ['light', 'dark']) {
    await page.call('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] });
    for (const width of WIDTHS) {
      await page.call('Emulation.setDeviceMetricsOverride', {
        width,
        height: 1_000,
        deviceScaleFactor: 1,
        mobile: width < 500,
      });
      expect(await page.evaluate(OVERFLOWING)).toEqual([]);
      expect(await page.evaluate(BROKEN)).toEqual([]);
      await shoot(page, `status-${scheme}-${width}`);
    }
  }

  link.cut();
  await page.until(`${STATE}.startsWith('Not ready: ')`);
  // On a busy machine it may name a pause of the process first.
  await page.until("document.getElementById('remedy').textContent.includes('etcd')");
  await page.until("document.querySelectorAll('#gate rect.closed').length > 1");
  await page.until("document.getElementById('workers-as-of').textContent.includes('ETCD_UNAVAILABLE')");
  await shoot(page, 'status-not-ready');
  link.heal();
  await page.until(`${STATE} === 'Ready'`);
});
