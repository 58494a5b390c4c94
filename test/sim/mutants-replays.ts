import { type Mutant, patch } from './mutant.ts';

const RULINGS = 'src/pipeline/rulings.ts';
const GROUP = 'src/cli/replay/group.ts';
const PLAN = 'src/cli/replay/plan.ts';

/** Mistakes about what was answered before an operator replayed. */
export const REPLAY_MUTANTS: readonly Mutant[] = [
  {
    name: 'replay: the statement is ignored',
    scenario: 'replays',
    patches: [
      patch(
        RULINGS,
        'if (!request.route.wasAnswered && record.offset >= index.answeredBelow(partition)) return undefined;',
        'if (!request.route.wasAnswered || record.offset < -index.answeredBelow(partition)) return undefined;',
      ),
    ],
  },
  {
    name: 'replay: copies are forwarded without a mark',
    scenario: 'replays',
    patches: [
      patch(
        RULINGS,
        'const wasAnswered = request.route.wasAnswered || record.offset < answeredBelow;',
        'const wasAnswered = request.route.wasAnswered && record.offset < answeredBelow;',
      ),
    ],
  },
  {
    name: 'replay: the offset moves before the statement',
    scenario: 'replays',
    patches: [
      patch(GROUP, '  await stateAnswered(log, plan);\n', ''),
      patch(
        GROUP,
        '  await setOffsets(source, groupId, topics.requests, new Map(offsets));',
        '  await setOffsets(source, groupId, topics.requests, new Map(offsets));\n  await stateAnswered(log, plan);',
      ),
    ],
  },
  {
    name: 'replay: the second one says less',
    scenario: 'replays',
    patches: [patch(PLAN, 'Math.max(to, stated)', 'Math.max(to, Math.min(0, stated))')],
  },
  {
    name: 'replay: what waits counts as answered',
    scenario: 'replays',
    patches: [patch(PLAN, 'Math.max(to, stated)', 'Math.max(to, stated, position?.small ?? 0)')],
  },
];
