"""The same over asyncio."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import unittest
from typing import Any

from .harness import ROOT, World, child, ckptsidecar, report, wait

PROGRAM = """
import asyncio, sys, ckptsidecar
folder, how = sys.argv[1:]
async def main():
    async with ckptsidecar.AsyncSidecar(folder + "/s") as sidecar:
        async with sidecar.agent("term").run("r", grace=0.5) as run:
            i = 0
            await run.save({"i": i})
            print("ready", flush=True)
            while how == "loop":
                await asyncio.sleep(0.01)
                i += 1
                await run.save({"i": i})
            await run.step("hangs")(asyncio.sleep, 60)
asyncio.run(main())
"""


class Parity(unittest.TestCase):
    def test_every_member_has_its_twin(self) -> None:
        twins = (
            (ckptsidecar.Sidecar, ckptsidecar.AsyncSidecar, set()),
            (ckptsidecar.Agent, ckptsidecar.AsyncAgent, set()),
            (ckptsidecar.Run, ckptsidecar.AsyncRun, {"begin"}),  # `async with` begins it
        )
        for one, other, left_out in twins:
            members = {name for name in dir(one) if not name.startswith("_")} - left_out
            missing = sorted(name for name in members if not hasattr(other, name))
            self.assertEqual(missing, [], f"{other.__name__} has not all members of {one.__name__}")


class Async(World):
    def setUp(self) -> None:
        super().setUp()
        self.start()

    def run_in(self, work: Any) -> Any:
        async def main() -> Any:
            async with ckptsidecar.AsyncSidecar(self.daemon.socket) as sidecar:
                return await work(sidecar.agent("a"))

        return asyncio.run(main())

    def test_what_the_sync_client_has(self) -> None:
        async def work(agent: ckptsidecar.AsyncAgent) -> None:
            sidecar = agent.sidecar
            one, two = await agent.save({"n": 1}), await agent.save({"n": 2})
            self.assertEqual((await agent.get(one.id)).state, {"n": 1})
            self.assertEqual((await agent.encode({"n": 1})).data, b'{"n":1}')
            self.assertEqual([run["run"] async for run in agent.runs()], ["main"])
            self.assertEqual([run["agent"] async for run in sidecar.runs(agent="a")], ["a"])
            self.assertEqual([a["agent"] async for a in sidecar.agents()], ["a"])
            self.assertEqual((await sidecar.diff(one.id, two.id)).patch[0]["value"], 2)
            self.assertTrue((await sidecar.change(one.id, pinned=True)).pinned)
            await sidecar.change(one.id, pinned=False)
            await sidecar.delete(one.id)
            self.assertEqual([c.id async for c in agent.list()], [two.id])
            self.assertEqual((await sidecar.set_policy_for_all(routine_keep=7))["owner"]["routine_keep"], 7)
            self.assertEqual((await sidecar.policy_for_all())["owner"], {"routine_keep": 7})
            self.assertEqual([p async for p in sidecar.prompts()], [])
            with self.assertRaises(ckptsidecar.NotFound):
                await sidecar.prompt(one.id)
            self.assertEqual((await sidecar.request("GET", "/v1/version")), await sidecar.version())
            self.assertEqual((sidecar.spooled, sidecar.endpoint), (0, self.daemon.socket))
            await agent.erase()
            self.assertEqual([a async for a in sidecar.agents()], [])

        self.run_in(work)

    def test_an_agent(self) -> None:
        async def work(agent: ckptsidecar.AsyncAgent) -> None:
            self.assertIsNone(await agent.latest())
            await agent.set_policy(routine_keep=0)
            saves = [await agent.save({"n": n}) for n in range(70)]
            self.assertEqual((await agent.restore()).state, {"n": 69})
            self.assertEqual([c.id async for c in agent.list()], [s.id for s in reversed(saves)])
            self.assertEqual(len([c async for c in agent.list(limit=3)]), 3)
            self.assertEqual((await agent.diff(saves[0].id, saves[1].id)).patch[0]["value"], 1)
            self.assertEqual((await agent.sidecar.checkpoint(saves[5].id)).state, {"n": 5})
            self.assertEqual((await agent.sidecar.status())["state"], "ready")
            self.assertEqual((await agent.policy())["routine_keep"], 0)
            with agent.autosave(lambda: {"n": "auto"}, every=100):
                pass
            latest = await agent.latest()
            assert latest is not None
            self.assertEqual(latest.state, {"n": "auto"})
            with self.assertRaises(ckptsidecar.NotFound):
                await agent.restore(run="none")

        self.run_in(work)

    def test_a_run(self) -> None:
        calls: list[Any] = []

        async def fetch(x: int) -> dict[str, int]:
            calls.append(x)
            await asyncio.sleep(0)
            return {"x": x}

        async def work(agent: ckptsidecar.AsyncAgent) -> None:
            async with agent.run("r") as run:
                self.assertEqual((run.plan.verdict, run.state, run.epoch), ("fresh", None, 1))
                self.assertEqual(await run.step("one")(fetch, 1), {"x": 1})
                self.assertEqual(await run.step("one")(fetch, 2), {"x": 1})
                self.assertEqual(await run.step("sync")(lambda: 5), 5)
                stepped = run.step(fetch)
                self.assertEqual(await asyncio.gather(stepped(7), stepped(8)), [{"x": 7}, {"x": 8}])
                self.assertEqual(await stepped(7), {"x": 7})
                with self.assertRaises(ZeroDivisionError):
                    await run.step("fails")(lambda: 1 / 0)
                async with run.operation("op", {"before": 1}) as op:
                    op.result = 3
                with self.assertRaises(ckptsidecar.AlreadyDone):
                    async with run.operation("op"):
                        self.fail("again")
                self.assertEqual(await run.operation("op")(fetch, 9), 3)
                with self.assertRaises(ZeroDivisionError):
                    async with run.operation("bad", {"before": 2}, not_done=ZeroDivisionError) as bad:
                        1 / 0
                assert bad.restore is not None
                self.assertEqual(bad.restore.state, {"before": 2})
                await run.event("note", 1)
                await run.progress(0.5)
                await run.save({"i": 1})
                with self.assertRaises(TypeError):
                    run.sync.step("async in sync")(fetch, 1)

        self.run_in(work)
        self.assertEqual(calls, [1, 7, 8])
        self.assertEqual(self.daemon.rows("SELECT status FROM audit_runs"), [("completed",)])
        self.daemon.sound(self)

    def test_sixteen_tasks(self) -> None:
        """Show 8: one client shared by tasks is safe and in order, and the loop is never held up."""
        worst = [0.0]

        async def watch() -> None:
            while True:
                began = time.perf_counter()
                await asyncio.sleep(0.005)
                worst[0] = max(worst[0], time.perf_counter() - began - 0.005)

        async def work(agent: ckptsidecar.AsyncAgent) -> None:
            await agent.set_policy(routine_keep=0)
            watcher = asyncio.create_task(watch())

            async def task(n: int) -> None:
                for i in range(40):
                    await agent.save({"n": n, "i": i, "pad": "x" * (20_000 if n % 2 else 10)}, run=f"t{n}")

            await asyncio.gather(*(task(n) for n in range(16)))
            watcher.cancel()
            for n in range(16):
                states = [(await agent.sidecar.checkpoint(c.id)).state["i"] async for c in agent.list(run=f"t{n}")]
                self.assertEqual(states, list(range(39, -1, -1)))

        self.run_in(work)
        report(f"show 8, asyncio: 16 tasks, 640 saves over one connection, each task's in order; the loop waited {worst[0] * 1000:.0f} ms at worst")

    def test_cancelled(self) -> None:
        async def work(agent: ckptsidecar.AsyncAgent) -> None:
            async def one() -> None:
                async with agent.run("r", state=lambda: {"at": "the end"}) as run:
                    await run.save({"i": 1})
                    await run.step("long")(asyncio.sleep, 60)

            task = asyncio.create_task(one())
            while not self.daemon.rows("SELECT 1 FROM audit_steps"):
                await asyncio.sleep(0.01)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        self.run_in(work)
        self.assertEqual(self.daemon.rows("SELECT status FROM audit_runs"), [("interrupted",)])
        self.assertEqual(self.daemon.rows("SELECT status FROM audit_steps"), [("interrupted",)])
        self.assertEqual(self.sidecar().agent("a").restore(run="r").state, {"at": "the end"})

    def test_cancelled_before_it_began(self) -> None:
        """A call that is cancelled while the daemon is asked leaves nothing open."""

        async def cancelled(work: Any) -> None:
            self.daemon.pause()
            task = asyncio.create_task(work())
            await asyncio.sleep(0.05)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.daemon.go_on()

        async def work(agent: ckptsidecar.AsyncAgent) -> None:
            async def enter() -> None:
                async with agent.run("r"):
                    self.fail("the run was entered")

            await cancelled(enter)
            await agent.latest(run="r")  # everything before has been done
            self.assertEqual(self.daemon.rows("SELECT status FROM audit_runs"), [("interrupted",)])
            async with agent.run("r") as run:

                async def pay() -> None:
                    async with run.operation("pay"):
                        self.fail("the operation was begun")

                await cancelled(pay)
                await run.save({"i": 1})
                self.assertEqual(self.daemon.rows("SELECT status FROM audit_operations"), [("failed",)])
                run.stop()
                with self.assertRaises(SystemExit):  # no operation is going on that it would have to wait for
                    await run.save({"i": 2})

        self.run_in(work)

    def test_sigterm(self) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python/src")}
        for how in ("loop", "hang"):
            with self.subTest(how):
                program = subprocess.Popen([sys.executable, "-c", PROGRAM, self.folder, how], stdout=subprocess.PIPE, text=True, env=env)
                assert program.stdout is not None
                self.assertEqual(program.stdout.readline(), "ready\n")
                time.sleep(0.2)
                program.send_signal(signal.SIGTERM)
                self.assertEqual(program.wait(20), 143)
                program.stdout.close()
                self.assertEqual(self.daemon.rows("SELECT status FROM audit_runs"), [("interrupted",)])

    def test_after_a_crash(self) -> None:
        def first() -> None:
            async def work(agent: ckptsidecar.AsyncAgent) -> None:
                async with agent.run("r") as run:
                    await run.step("done")(lambda: "result")
                    await run.save({"i": 2})
                    os.kill(os.getpid(), 9)

            self.run_in(work)

        self.assertEqual(wait(child(first)), -9)

        async def second(agent: ckptsidecar.AsyncAgent) -> None:
            async with agent.run("r") as run:
                self.assertEqual((run.plan.verdict, run.state), ("resume", {"i": 2}))
                self.assertEqual(await run.step("done")(lambda: 1 / 0), "result")

        self.run_in(second)
