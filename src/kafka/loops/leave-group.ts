import { describeError } from '../../errors.ts';
import type { MemberRequest } from '../wire/group-apis.ts';
import type { Coordinator } from './coordinator.ts';
import type { RateLimitedLog } from './rate-limited-log.ts';

/** Asks the coordinator to remove a member from the group, if it has an ID there. Never rejects. */
export async function leaveGroup(
  coordinator: Coordinator,
  { groupId, memberId, instanceId }: MemberRequest,
  limitMs: number,
  log: RateLimitedLog,
): Promise<void> {
  if (memberId === '' && instanceId === undefined) return;
  const leaving = { groupId, memberId, instanceId };
  try {
    await coordinator.call('control', limitMs, (link) => link.call('leaveGroup', leaving));
  } catch (error) {
    log.debug({ groupId, error: describeError(error) }, 'leaving the group failed');
  }
}
