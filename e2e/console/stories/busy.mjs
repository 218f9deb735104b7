// The screens of a busy host, with hostile names among its runs.

const long = 'unbroken'.repeat(15); // 120 characters without a place to break

/** Adds runs whose names and texts have no place to break. */
export async function hostile(d) {
  await d.api('POST', `/v1/agents/${long}/runs`, { run: long, goal: `${long}${long} and ${long}`, workflow: long, labels: { [long.slice(0, 60)]: long } });
  const run = `/v1/agents/${long}/runs/${long}`;
  for (const n of [1, 2]) {
    await d.api('POST', `${run}/steps`, { key: `${long}-${n}`, name: long, epoch: 1, args: { [long]: long }, status: n === 1 ? 'succeeded' : 'failed', result: long, error: n === 1 ? undefined : long + long, duration_ms: 10 });
    await d.api('POST', `/v1/agents/${long}/checkpoints`, { run: long, kind: 'routine', epoch: 1, step: `${long}-${n}`, state: { [long + n]: long, list: [long + n] } });
  }
  await d.api('POST', `/v1/agents/${long}/drift/findings`, { run: long, rule: long.slice(0, 60), severity: 'critical', message: long + long });
  await d.api('POST', `${run}/operations`, { key: long, name: long, epoch: 1 });
  await d.api('POST', `${run}/prompts`, { epoch: 1, key: 'k', question: long + long, choices: [long, 'no'] });
  await d.api('PUT', `/v1/agents/${long}/policy`, { ...await d.api('GET', `/v1/agents/${long}/policy`), max_bytes: 1 << 30 });
  await d.api('POST', `${run}/end`, { status: 'interrupted' });
}

export const screensOf = (me, state) => ({
  overview: '', runs: 'runs?group=agent', run: `o/${me}/coder/fix-1482`, 'run-table': `o/${me}/coder/fix-1482?as=table`, tree: `o/${me}/coder/fix-1490/tree`, steps: `o/${me}/coder/fix-1482/steps`, 'steps-failed': `o/${me}/coder/fix-1482/steps?hide=ok`,
  state: `o/${me}/coder/fix-1482/state?cp=${state.id}`, drift: 'drift', storage: 'storage', audit: 'audit', system: 'system', find: 'find?q=1490', hostile: `o/${me}/${long}/${long}`, 'hostile-steps': `o/${me}/${long}/${long}/steps`, 'hostile-tree': `o/${me}/${long}/${long}/tree`, 'hostile-find': `find?q=${long}`,
  'what-if': 'drift/whatif', policy: `ask/policy?owner=${me}&agent=coder`,
});
