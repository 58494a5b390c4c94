/** `npm run bench`: the throughput of this tree, or with --compare two trees. */
const isComparison = process.argv.some((argument) => argument.split('=')[0] === '--compare');
if (isComparison) await import('./compare.ts');
else await import('./throughput.ts');
