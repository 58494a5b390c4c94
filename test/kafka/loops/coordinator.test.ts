import { expect, test } from 'vitest';
import { Coordinator } from '../../../src/kafka/loops/coordinator.ts';
import type { LeaveGroupRequest } from '../../../src/kafka/wire/group-apis.ts';
import { KafkaError } from '../../../src/kafka/wire/kafka-error.ts';
import { scriptedLink } from '../../support/scripted-link.ts';
import { VirtualRuntime } from '../../support/virtual-runtime.ts';

const NOBODY = { groupId: 'g', generation: -1, memberId: '' };

/** A coordinator that answers, or fails with an error; and whom it was asked to remove. */
function staged(errorCode?: string) {
  const left: LeaveGroupRequest[] = [];
  const link = scriptedLink({
    leaveGroup: async (request) => {
      left.push(request);
      if (errorCode !== undefined) throw new KafkaError(errorCode, 'from the test');
      return { throttleMs: 0 };
    },
  });
  const coordinator = new Coordinator(
    { callCoordinator: (_groupId, _purpose, _timeoutMs, use) => use(link), forgetCoordinator: () => {} },
    new VirtualRuntime(),
    'g',
  );
  const logged: string[] = [];
  const leave = (member: typeof NOBODY & { readonly instanceId?: string }) =>
    coordinator.leave(member, 1_000, (level, _fields, message) => logged.push(`${level}: ${message}`));
  return { leave, left, logged };
}

test('a member leaves by its ID or by its instance ID, though the group has not answered its join yet', async () => {
  const { leave, left } = staged();
  await leave({ ...NOBODY, memberId: 'm-1' });
  await leave({ ...NOBODY, instanceId: 'worker-7' });
  expect(left.map(({ memberId, instanceId }) => [memberId, instanceId])).toEqual([
    ['m-1', undefined],
    ['', 'worker-7'],
  ]);
});

test('for a member that has neither, nothing is asked', async () => {
  const { leave, left } = staged();
  await leave(NOBODY);
  expect(left).toEqual([]);
});

test('a refused leave is logged, and fails nobody', async () => {
  const { leave, logged } = staged('UNKNOWN_MEMBER_ID');
  await leave({ ...NOBODY, memberId: 'm-1' });
  expect(logged).toEqual(['debug: leaving the group failed']);
});
