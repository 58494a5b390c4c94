import { expect, test } from 'vitest';
import { choose, type Facts } from '../../ops/dev/server-choice.ts';

const GONE = 'no container engine answers';
const NOTHING: Facts = { noContainers: GONE, missing: ['java', 'mvn', 'go'], noInstall: 'this is not root' };
const SUBSETS = [['java'], ['mvn'], ['go'], ['java', 'mvn', 'go']];

test('containers are chosen before tools and installations, if an engine has the images', () => {
  for (const missing of [[], ...SUBSETS]) {
    expect(choose({ ...NOTHING, noContainers: undefined, missing })).toMatchObject({
      kind: 'containers',
      install: false,
    });
  }
});

test('child processes are chosen without containers, with the reason, and nothing is installed if no tool is missing', () => {
  expect(choose({ noContainers: GONE, missing: [], noInstall: undefined })).toEqual({
    kind: 'processes',
    install: false,
    because: GONE,
  });
});

test.for(SUBSETS)('tools that are missing are installed where that is possible: %s', (missing) => {
  expect(choose({ ...NOTHING, missing, noInstall: undefined })).toEqual({
    kind: 'processes',
    install: true,
    because: GONE,
  });
});

test.for(SUBSETS)('one error names the cause and the remedy, where nothing can be installed: %s', (missing) => {
  const attempt = () => choose({ ...NOTHING, missing });
  for (const part of [GONE, ...missing, 'this is not root', 'KAFKA_BROKERS']) expect(attempt).toThrow(part);
});

test('a variable that asks for child processes is followed although there are containers', () => {
  const wish = { kind: 'processes', by: 'IDALLOC_SERVERS' };
  expect(choose({ wish, noContainers: undefined, missing: [], noInstall: undefined })).toEqual({
    kind: 'processes',
    install: false,
    because: 'IDALLOC_SERVERS asks for them',
  });
});

test('a variable that asks for containers is an error without them, although there are tools', () => {
  const wish = { kind: 'containers', by: 'IDALLOC_SERVERS' };
  expect(() => choose({ wish, noContainers: GONE, missing: [], noInstall: undefined })).toThrow(
    `IDALLOC_SERVERS=containers, but ${GONE}`,
  );
});

test('a variable with another value is an error that names the values', () => {
  const wish = { kind: 'pods', by: 'IDALLOC_SERVERS' };
  expect(() => choose({ ...NOTHING, wish })).toThrow("IDALLOC_SERVERS is 'pods'; set it to containers or processes");
});
