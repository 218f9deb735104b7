"""A run asks a person: agent and daemon are killed while it waits, and the answer comes all the same."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any

from .harness import World, child, ckptsidecar, until, wait

SCHEMA = {"type": "object", "required": ["env"], "properties": {"env": {"enum": ["prod", "test"]}}}


class Asking(World):
    def agent(self) -> None:
        """Asks once, and notes the answer in a file."""
        with ckptsidecar.Sidecar(self.daemon.socket).agent("deployer").run(heartbeat=1, force=True) as run:
            run.save({"built": True})
            got = run.ask(
                "Deploy to production?", key="deploy-1", choices=["approve", "reject"], schema=SCHEMA, expires=3600
            )
            with open(os.path.join(self.folder, "deployed"), "a") as file:
                file.write(f"{got.choice} {got.data['env']}\n")

    async def async_agent(self) -> None:
        async with ckptsidecar.AsyncSidecar(self.daemon.socket) as sidecar:
            async with sidecar.agent("deployer").run(heartbeat=1, force=True) as run:
                asking = asyncio.ensure_future(run.ask("Deploy?", key="deploy-1", choices=["approve"]))
                await run.save({"meanwhile": True})  # the wait holds nothing else up
                got = await asking
                with open(os.path.join(self.folder, "deployed"), "a") as file:
                    file.write(f"{got.choice}\n")

    def deployed(self) -> str:
        path = os.path.join(self.folder, "deployed")
        if not os.path.exists(path):
            return ""
        with open(path) as file:
            return file.read()

    def open_prompt(self, sidecar: ckptsidecar.Sidecar) -> dict[str, Any]:
        found: list[dict[str, Any]] = until(lambda: list(sidecar.prompts(open=True)))
        self.assertEqual(len(found), 1)
        return found[0]

    def killed_while_it_waits(self, agent: Any, choice: str, data: Any) -> None:
        self.start()
        operator = self.sidecar()
        first = child(agent)
        prompt = self.open_prompt(operator)
        self.daemon.stop(signal.SIGKILL)  # the daemon dies while the agent waits, and the agent too
        self.start()
        os.kill(first, 9)
        self.assertEqual(wait(first), -9)
        operator.answer(prompt["id"], choice, data=data)
        self.assertEqual(self.deployed(), "")
        second = child(agent)
        self.assertEqual(wait(second), 0)
        self.assertEqual(len(list(operator.prompts())), 1, "it was asked once")
        self.daemon.sound(self)

    def test_killed_while_it_waits(self) -> None:
        self.killed_while_it_waits(self.agent, "approve", {"env": "prod"})
        self.assertEqual(self.deployed(), "approve prod\n")

    def test_killed_while_it_waits_async(self) -> None:
        self.killed_while_it_waits(lambda: asyncio.run(self.async_agent()), "approve", None)
        self.assertEqual(self.deployed(), "approve\n")

    def test_the_daemon_restarts_while_it_waits(self) -> None:
        self.start()
        operator = self.sidecar()
        pid = child(self.agent)
        prompt = self.open_prompt(operator)
        self.daemon.stop(signal.SIGKILL)
        self.start()
        with self.assertRaises(ckptsidecar.SchemaMismatch):
            operator.answer(prompt["id"], "approve", data={"env": "moon"})
        answered = operator.answer(prompt["id"], "approve", data={"env": "test"})
        self.assertEqual(operator.answer(prompt["id"], "approve", data={"env": "test"}), answered)
        with self.assertRaises(ckptsidecar.Conflict):
            operator.answer(prompt["id"], "reject", data={"env": "test"})
        self.assertEqual(wait(pid), 0)
        self.assertEqual(self.deployed(), "approve test\n")

    def test_suspended_until_somebody_answers(self) -> None:
        self.start()
        operator = self.sidecar()

        def work() -> str:
            with operator.agent("a").run() as run:
                run.save({"n": 1})
                return str(run.ask("Go on?", suspend=True).choice)

        with self.assertRaises(ckptsidecar.Unanswered) as caught:
            work()
        self.assertEqual(caught.exception.prompt["status"], "open")
        self.assertEqual(self.daemon.rows("SELECT status FROM audit_runs"), [("suspended",)])
        operator.answer(caught.exception.prompt["id"], "yes")
        with operator.agent("a").run() as run:
            self.assertEqual([q["choice"] for q in run.plan.questions], ["yes"])
            self.assertEqual(run.ask("Go on?").choice, "yes")
            answer = threading.Timer(0, lambda: operator.answer(self.open_prompt(operator)["id"], "no"))
            answer.start()
            self.assertEqual(run.ask("Go on?").choice, "no", "the same words again are another question")
            answer.join()
            with self.assertRaises(ckptsidecar.Unanswered) as caught:
                run.ask("Quick?", expires=0.05)
            self.assertEqual(caught.exception.prompt["status"], "expired")
            with self.assertRaises(TimeoutError):
                run.ask("Slow?", timeout=0.05)

    def test_sigterm_ends_the_wait(self) -> None:
        self.start()
        pid = child(self.agent)
        self.open_prompt(self.sidecar())
        os.kill(pid, signal.SIGTERM)
        self.assertEqual(wait(pid), 128 + signal.SIGTERM)
        self.assertEqual(self.daemon.rows("SELECT status FROM audit_runs"), [("interrupted",)])
