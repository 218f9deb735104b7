// Operations that must not happen twice: a provider that counts, and every way in which an operation can end.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { type Agent, type Check, Done, NeedsOperator, NotDone, Offline, type OperationInfo, type OperationOptions } from 'ckptsidecar';
import { bin, child, until, World } from './world.js';

const pay = 'pay-42';

/** A world with a provider that takes payments and counts them in a file: also those of processes that die. */
class Shop {
  private constructor(readonly world: World) {}

  static async open(): Promise<Shop> {
    return new Shop(await World.start());
  }

  get payments(): string {
    return join(this.world.dir, 'payments');
  }

  readonly charge = (): { receipt: number } => {
    appendFileSync(this.payments, `${pay}\n`);
    return { receipt: 5 };
  };

  get charged(): number {
    return existsSync(this.payments) ? readFileSync(this.payments, 'utf8').trim().split('\n').length : 0;
  }

  get agent(): Agent {
    return this.world.client({ deadline: 500, startDeadline: 500 }).agent('shop');
  }

  operations(run = 'main'): OperationInfo[] {
    return (JSON.parse(this.world.run('operations', 'shop', '--run', run, '--json')) as { operations: OperationInfo[] }).operations.reverse();
  }

  get attempts(): string[] {
    return this.operations().map((o) => o.status);
  }

  /** An agent that pays and ends so, before it can say that it has. */
  async ends(how: string, options: OperationOptions = {}): Promise<void> {
    const payer = child('child-payer.js', this.world.env, this.payments, how, JSON.stringify(options));
    await payer.ended;
    assert.equal(this.charged, 1, payer.output());
  }

  answer(choice: string, ...more: string[]): void {
    this.world.run('operation', 'resolve', 'shop', pay, choice, ...more);
  }

  /** The next start asks a person. */
  asks(options: object = {}): Promise<NeedsOperator> {
    return this.agent.start({ signals: [], ...options }).then(
      () => assert.fail('it began'),
      (error: NeedsOperator) => {
        assert.ok(error instanceof NeedsOperator, String(error));
        return error;
      },
    );
  }
}

test('killed in it, and the daemon away at the restart: it is not charged again', async () => {
  const shop = await Shop.open();
  await shop.ends('kill');
  await shop.world.stop();
  const away = shop.agent.run(async (run) => {
    assert.equal(run.plan?.verdict, 'offline');
    await run.step('think', () => 1); // a step is spooled
    await run.operation(pay, undefined, shop.charge);
  });
  await assert.rejects(away, (error) => error instanceof Offline && /offline: 'allow'/.test(error.message));
  assert.equal(shop.charged, 1);
  await shop.world.start();
  await shop.world.client().replay();
  await shop.asks();
  assert.deepEqual(shop.attempts, ['uncertain']);
  shop.answer('it_did', '--result', '{"receipt": 7}');
  assert.deepEqual(await shop.agent.run((run) => run.operation(pay, undefined, shop.charge)), { receipt: 7 });
  assert.deepEqual([shop.charged, shop.attempts], [1, ['succeeded']]);
});

test('an owner that was taken for dead says how it ended', async () => {
  const shop = await Shop.open();
  await shop.agent.run(
    (run) =>
      run.operation(pay, undefined, async () => {
        shop.charge();
        await until('it is uncertain', () => shop.attempts[0] === 'uncertain');
      }),
    { heartbeatTimeout: 100, heartbeatEvery: '1h' },
  );
  assert.deepEqual([shop.charged, shop.attempts], [1, ['succeeded']]);
});

test('what is done offline on purpose never rewrites an earlier attempt', async () => {
  const shop = await Shop.open();
  await shop.ends('kill');
  await until('it is uncertain', () => shop.attempts[0] === 'uncertain');
  await shop.world.stop();
  await shop.agent.run((run) => run.operation(pay, undefined, shop.charge, { offline: 'allow' }));
  await shop.world.start();
  await shop.world.client().replay();
  assert.deepEqual(shop.attempts, ['uncertain', 'succeeded']);
});

test('a decision about the run is no answer, and the refusal has three lines', async () => {
  const shop = await Shop.open();
  await shop.ends('kill');
  const refused = await shop.asks();
  const { id } = (JSON.parse(shop.world.run('prompts', '--json')) as { prompts: { id: string }[] }).prompts[0]!;
  for (const choice of ['resume', 'reinitialize', 'abandon']) assert.throws(() => shop.world.run('prompts', 'answer', id, choice));
  await shop.asks();
  assert.deepEqual([shop.charged, shop.attempts], [1, ['uncertain']]);
  const [what, evidence, command, ...more] = refused.message.split('\n');
  assert.match(what!, /operation pay-42 of run main of agent shop/);
  assert.match(evidence!, /^Attempt 1 began at /);
  assert.match(command!, /^ckptsidecar operation resolve shop pay-42 it_did\|it_did_not\|repeat$/);
  assert.deepEqual(more, []);
  assert.deepEqual(refused.plan.uncertain_operations.map((o) => o.key), [pay]);
  shop.world.run(...command!.replace('ckptsidecar ', '').replace('it_did|it_did_not|repeat', 'it_did_not').split(' ')); // what is printed works
  await shop.agent.run((run) => run.operation(pay, undefined, shop.charge));
  assert.deepEqual([shop.charged, shop.attempts], [2, ['failed', 'succeeded']]);
});

test('a time-out, an abort and any other error leave it uncertain', async () => {
  const shop = await Shop.open();
  const errors = [new Error('the provider did not answer'), new DOMException('aborted', 'AbortError'), new TypeError('x'), 'text'];
  for (const [n, thrown] of errors.entries()) {
    const run = `r${n}`;
    const left = shop.agent.run((run) => run.operation(pay, undefined, () => Promise.reject(thrown)), { run });
    await assert.rejects(left, (error) => error === thrown);
    const [operation] = shop.operations(run);
    assert.equal(operation!.status, 'uncertain');
    assert.match(operation!.error!, thrown instanceof Error ? new RegExp(`^(Error|AbortError|TypeError): ${thrown.message}$`) : /^text$/);
    await shop.asks({ run });
  }
});

test('a process that exits or is interrupted in it leaves it uncertain', async () => {
  for (const how of ['exit', 'int']) {
    const shop = await Shop.open();
    await shop.ends(how);
    await until('it is known', () => shop.attempts[0] === 'uncertain');
    await shop.asks();
    assert.equal(shop.charged, 1);
  }
});

test('the same process does not begin it again, and the run is not completed over it', async () => {
  const shop = await Shop.open();
  const loses = (): never => {
    shop.charge();
    throw new Error('reset by peer');
  };
  const twice = shop.agent.run(async (run) => {
    for (let n = 0; n < 2; n++) await run.operation(pay, undefined, loses).catch((error: Error) => assert.match(error.message, n === 0 ? /reset by peer/ : /Nobody knows whether/));
  });
  await assert.rejects(twice, (error) => error instanceof NeedsOperator);
  assert.deepEqual([shop.charged, shop.attempts, (await shop.agent.info()).status], [1, ['uncertain'], 'interrupted']);
  const second = shop.agent.start({ run: 'two' }).then(async (run) => {
    await run.operation(pay, undefined, loses).catch(() => undefined);
    await assert.rejects(run.end('completed'), (error) => error instanceof NeedsOperator && error.message.split('\n').length === 3);
    await run.end('completed', { leaveUncertain: 'the customer was told' });
  });
  await second;
  assert.equal((await shop.agent.info('two')).status, 'completed');
  assert.deepEqual(shop.operations('two').map((o) => [o.status, o.left_uncertain]), [['uncertain', true]]);
  const again = shop.agent.run((run) => run.operation(pay, undefined, shop.charge), { run: 'two' });
  const refused = (await again.catch((error: unknown) => error)) as NeedsOperator; // the key stays refused, in a later life of the run too
  assert.ok(refused instanceof NeedsOperator && refused.message.split('\n').length === 3, String(refused));
  assert.match(refused.message, /\nckptsidecar operation resolve shop pay-42 it_did\|it_did_not\|repeat --run 'two~1'$/);
  assert.equal(shop.charged, 2);
});

test('a run that fails for good over it can be resumed, and an end while the daemon is away is refused', async () => {
  const shop = await Shop.open();
  const failing = shop.agent.run((run) => run.operation(pay, undefined, () => Promise.reject(new Error('lost'))), { onError: 'failed' });
  await assert.rejects(failing, /lost/);
  assert.equal((await shop.agent.info()).status, 'interrupted');
  const away = shop.agent.run(
    async (run) => {
      await run.operation(pay, undefined, () => Promise.reject(new Error('lost'))).catch(() => undefined);
      await shop.world.stop();
    },
    { run: 'two' },
  );
  await assert.rejects(away, (error) => error instanceof NeedsOperator);
  await shop.world.start();
  await shop.world.client().replay();
  assert.equal((await shop.agent.info('two')).status, 'interrupted');
});

test('a later success changes nothing about an earlier attempt', async () => {
  const shop = await Shop.open();
  await shop.ends('kill');
  await shop.asks();
  shop.answer('repeat');
  const [before] = shop.operations();
  await shop.agent.run((run) => run.operation(pay, undefined, shop.charge));
  assert.deepEqual([shop.charged, shop.attempts], [2, ['superseded', 'succeeded']]);
  assert.deepEqual(shop.operations()[0], before);
});

test('a resolved success gives back its result, and says who resolved it', async () => {
  const shop = await Shop.open();
  const resultSchema = { type: 'object', required: ['receipt'] };
  await shop.ends('kill', { resultSchema });
  await shop.asks();
  for (const wrong of [[], ['--result', '{"paid":true}']]) assert.throws(() => shop.answer('it_did', ...wrong));
  shop.answer('it_did', '--result', '{"receipt":9}');
  await shop.agent.run(async (run) => {
    const operation = await run.beginOperation(pay, undefined, { resultSchema });
    assert.deepEqual([operation.replayed, operation.result, operation.resolvedBy], [true, { receipt: 9 }, `uid:${process.getuid!()}`]);
    assert.deepEqual(await run.operation(pay, undefined, shop.charge), { receipt: 9 });
  });
  assert.equal(shop.charged, 1);
});

test('only who knows says that it was not done', async () => {
  const shop = await Shop.open();
  class CardRefused extends Error {}
  await shop.agent.run(async (run) => {
    for (const thrown of [new NotDone('refused'), new CardRefused('refused')]) {
      const failed = run.operation(pay, { order: 42 }, () => Promise.reject(thrown), { notDone: (error) => error instanceof CardRefused });
      await assert.rejects(failed, { code: 'operation_failed', cause: thrown, state: { order: 42 } });
    }
    assert.deepEqual(await run.operation(pay, undefined, shop.charge), { receipt: 5 });
  });
  assert.deepEqual([shop.charged, shop.attempts], [1, ['failed', 'failed', 'succeeded']]);
});

test('what is idempotent is repeated with its key', async () => {
  const shop = await Shop.open();
  await shop.ends('kill', { idempotent: true });
  const keys: string[] = [];
  await shop.agent.run(async (run) => {
    assert.equal(run.plan?.verdict, 'repair');
    await run.operation(pay, undefined, ({ key }) => void keys.push(key), { idempotent: true });
  });
  assert.deepEqual([keys, shop.attempts], [[pay], ['superseded', 'succeeded']]);
});

test('a check that knows, one that does not, and one that fails', async () => {
  const shop = await Shop.open();
  const asked: unknown[] = [];
  const lose = (options: OperationOptions): Promise<void> =>
    assert.rejects(
      shop.agent.run((run) => run.operation(pay, undefined, () => Promise.reject(new Error('lost')), options)),
      /lost/,
    );
  const going = (check: Check): Promise<unknown> => shop.agent.run((run) => run.operation(pay, undefined, shop.charge, { check }));
  await lose({ check: () => undefined, args: { amount: 5 } });
  for (const check of [() => undefined, () => Promise.reject(new Error('no answer'))] as Check[]) {
    await assert.rejects(going(check), (error) => error instanceof NeedsOperator);
    shop.answer('it_did_not');
    await lose({ check, args: { amount: 5 } });
  }
  const found = await going((attempt) => (asked.push([attempt.key, attempt.attempt, attempt.args]), new Done({ receipt: 3 })));
  assert.deepEqual(found, { receipt: 3 });
  assert.deepEqual(asked, [[pay, 3, { amount: 5 }]]);
  assert.deepEqual([shop.charged, shop.operations().map((o) => [o.status, o.resolved_by])], [0, [['failed', `uid:${process.getuid!()}`], ['failed', `uid:${process.getuid!()}`], ['succeeded', 'check']]]);
});

test('an operation throws at once while the daemon is away, also in a run that began with it', async () => {
  const shop = await Shop.open();
  await shop.agent.run(async (run) => {
    await shop.world.stop();
    for (const key of ['a', 'b', 'c']) await assert.rejects(run.operation(key, undefined, shop.charge), (error) => error instanceof Offline);
    assert.equal(await run.operation('note', undefined, () => 1, { offline: 'allow' }), 1);
    await shop.world.start();
  });
  await shop.world.client().replay();
  assert.deepEqual([shop.charged, shop.operations().map((o) => [o.key, o.status])], [0, [['note', 'succeeded']]]);
});

test('the resolve of a run is a fallback', async () => {
  const shop = await Shop.open();
  await shop.ends('kill');
  const answer = await shop.agent.run((run) => run.operation(pay, undefined, shop.charge), { resolve: () => new Done({ receipt: 1 }) });
  assert.deepEqual([answer, shop.charged, shop.operations()[0]!.resolved_by], [{ receipt: 1 }, 1, 'check']);
});

/** Sends the form of the console that a person would send. */
async function byConsole(world: World, choice: string): Promise<void> {
  const console_ = spawn(bin, ['console', '--no-open'], { env: world.env, stdio: ['pipe', 'pipe', 'inherit'] });
  try {
    const link = new URL((await once(console_.stdout, 'data')).toString().split('\n')[0]!);
    let Cookie = '';
    const ask = async (path: string, form?: URLSearchParams): Promise<Response> => {
      const headers = { Origin: link.origin, 'Sec-Fetch-Site': 'same-origin', 'Ckpt-Form': '1', Cookie };
      return fetch(link.origin + path, form ? { method: 'POST', headers, body: form, redirect: 'manual' } : { headers: { Cookie } });
    };
    const opened = await ask('/open', new URLSearchParams({ code: link.hash.slice(1) }));
    Cookie = opened.headers.get('set-cookie')!.split(';')[0]!;
    const plain = (text: string): string => text.replaceAll('&amp;', '&').replaceAll('&#34;', '"').replaceAll('&#39;', "'").replaceAll('&#43;', '+');
    const base = opened.headers.get('location')!;
    const forms = [...(await (await ask(base)).text()).matchAll(/href="([^"]*\/ask\/resolve[^"]*)"/g)].map((m) => plain(m[1]!));
    const form = forms.find((href) => new URL(href, link).searchParams.get('status') === choice)!;
    const page = (await (await ask(form)).text()).split('class="ask"')[1]!;
    const values = [...page.matchAll(/<input type="hidden" name="([^"]+)" value="([^"]*)">/g)].map((m): [string, string] => [m[1]!, plain(m[2]!)]);
    const answer = await ask(`${base}act/resolve`, new URLSearchParams([...values, ['reason', 'the bank says so']]));
    assert.equal(answer.status, 200, await answer.text());
  } finally {
    console_.kill();
  }
}

for (const [when, choice, left] of [['after', 'it_did', ['succeeded']], ['before', 'it_did_not', ['failed', 'succeeded']], ['before', 'repeat', ['superseded', 'succeeded']]] as const) {
  for (const by of ['command', 'console'] as const) {
    test(`the story: killed ${when} the charge, restarted without the daemon, ${choice} by the ${by}, gone on by exec alone`, async () => {
      const shop = await Shop.open();
      const die = join(shop.world.dir, 'die');
      const agent = [process.execPath, fileURLToPath(new URL('child-story.js', import.meta.url)), shop.payments, die, when];
      writeFileSync(die, '');
      assert.equal(spawnSync(agent[0]!, agent.slice(1), { env: shop.world.env }).signal, 'SIGKILL');
      await shop.world.stop();
      const before = shop.charged;
      const without = spawnSync(agent[0]!, agent.slice(1), { env: shop.world.env, encoding: 'utf8' });
      assert.match(without.stderr, /offline: 'allow'/);
      assert.equal(shop.charged, before);
      await shop.world.start();
      const supervised = spawn(bin, ['exec', '--agent', 'shop', '--', ...agent], { env: shop.world.env });
      let said = '';
      for (const from of [supervised.stdout, supervised.stderr]) from.on('data', (text) => (said += String(text)));
      const ended = once(supervised, 'exit');
      await until('exec waits', () => /will go on/.test(spawnSync(bin, ['run', 'show', 'shop'], { env: shop.world.env, encoding: 'utf8' }).stderr), 60_000);
      assert.equal(shop.charged, before);
      if (by === 'command') shop.answer(choice);
      else await byConsole(shop.world, choice);
      assert.deepEqual(await ended, [0, null], said);
      assert.match(said, /paid/);
      assert.deepEqual([shop.charged, shop.attempts], [1, left]);
    });
  }
}
