import { describeError } from '../../errors.ts';
import type { MemberRequest } from '../wire/port.ts';
import type { Coordinator } from './coordinator.ts';
import type { SparingLog } from './sparing-log.ts';

/** Asks the coordinator to take a member out of the group, where that member has a name there. Never rejects. */
export async function sayGoodbye(
  coordinator: Coordinator,
  { groupId, memberId, instanceId }: MemberRequest,
  limitMs: number,
  log: SparingLog,
): Promise<void> {
  if (memberId === '' && instanceId === undefined) return;
  const leaving = instanceId === undefined ? { groupId, memberId } : { groupId, memberId, instanceId };
  try {
    await coordinator.call('control', limitMs, (link) => link.leaveGroup(leaving));
  } catch (error) {
    log.debug({ groupId, error: describeError(error) }, 'the group was not left');
  }
}
