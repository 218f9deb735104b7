"""Operations that must not happen twice: a provider that counts, and every way in which an operation can end."""

from __future__ import annotations

import asyncio
import contextlib
import html
import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time
import unittest
import urllib.parse
from typing import Any, Callable

import ckptsidecar

from .harness import World, binary, child, until, wait

PAY = "pay-42"


class Provider:
    """Takes payments, and counts them in a file: also those of processes that die."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, "payments")

    def charge(self, amount: int = 5, key: str = "") -> dict[str, Any]:
        with open(self._path, "a") as file:
            file.write(f"{amount} {key}\n")
        return {"receipt": amount}

    def charge_once(self, key: str) -> dict[str, Any]:
        """With an idempotency key it charges once."""
        if key not in self.keys():
            self.charge(5, key)
        return {"receipt": key}

    def keys(self) -> list[str]:
        if not os.path.exists(self._path):
            return []
        with open(self._path) as file:
            return [line.split(" ")[1].strip() for line in file]

    @property
    def charged(self) -> int:
        return len(self.keys())


class Once(World):
    def setUp(self) -> None:
        super().setUp()
        self.provider = Provider(self.folder)

    def agent(self, **options: Any) -> ckptsidecar.Agent:
        return self.sidecar(deadline=0.5, **options).agent("shop")

    def attempts(self) -> list[str]:
        return [status for (status,) in self.daemon.rows("SELECT status FROM audit_operations ORDER BY attempt")]

    def killed_in_it(self, **declared: Any) -> None:
        """An agent that charges, and is killed before it can say so."""

        def work() -> None:
            with ckptsidecar.Sidecar(self.daemon.socket).agent("shop").run(heartbeat=1) as run:
                run.save({"order": 42})
                with run.operation(PAY, **declared):
                    self.provider.charge()
                    os.kill(os.getpid(), signal.SIGKILL)

        self.assertEqual(wait(child(work)), -signal.SIGKILL)

    def command(self, *args: str) -> str:
        done = subprocess.run([binary(), "--socket", self.daemon.socket, *args], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def answer(self, choice: str, *more: str) -> None:
        self.command("operation", "resolve", "shop", PAY, choice, *more)

    # The whole story, by hand: `python3 -m unittest tests.test_once.Once.test_the_story`

    AGENT = """import os, signal, sys
import ckptsidecar

payments, die, when = sys.argv[1:]

def charge():
    dies = os.path.exists(die)
    if dies:
        os.unlink(die)
    if dies and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    with open(payments, "a") as file:
        file.write("5 x\\n")
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"receipt": 5}

with ckptsidecar.agent("shop").run() as run:
    print("paid", run.operation("pay-42")(charge), flush=True)
"""

    def test_the_story(self) -> None:
        """Killed in the operation, restarted without the daemon, answered by the command or in the console, gone on by exec alone."""
        program = os.path.join(self.folder, "agent.py")
        with open(program, "w") as file:
            file.write(self.AGENT)
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src")
        env = {**os.environ, "PYTHONPATH": source, "CKPTSIDECAR_SOCKET": self.daemon.socket}
        for when, choice, by, left in (
            ("after", "it_did", self.by_command, ["succeeded"]),
            ("after", "it_did", self.by_console, ["succeeded"]),
            ("before", "it_did_not", self.by_command, ["failed", "succeeded"]),
            ("before", "it_did_not", self.by_console, ["failed", "succeeded"]),
            ("before", "repeat", self.by_command, ["superseded", "succeeded"]),
            ("before", "repeat", self.by_console, ["superseded", "succeeded"]),
        ):
            with self.subTest(f"killed {when} the charge, {choice} {by.__name__}"):
                payments, die = self.provider._path, os.path.join(self.folder, "die")
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(payments)
                open(die, "w").close()
                agent = ["python3", program, payments, die, when]
                self.start()
                self.assertEqual(subprocess.run(agent, env=env).returncode, -signal.SIGKILL)
                self.daemon.stop()
                before = self.provider.charged
                without = subprocess.run(agent, env={**env, "CKPTSIDECAR_AUTOSTART": "0"}, capture_output=True, text=True)
                self.assertNotEqual(without.returncode, 0)
                self.assertIn("Offline", without.stderr)
                self.assertEqual(self.provider.charged, before)
                self.start()
                supervised = subprocess.Popen(
                    [binary(), "exec", "--agent", "shop", "--", *agent], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
                )
                self.assertTrue(until(lambda: "will go on" in self.shown(), 60))
                self.assertEqual(self.provider.charged, before)
                by(choice)
                said, told = supervised.communicate(timeout=120)
                self.assertEqual(supervised.returncode, 0, told)
                self.assertIn("paid", said)
                self.assertIn("ckptsidecar operation resolve shop pay-42", told)
                self.assertEqual((self.provider.charged, self.attempts()), (1, left))
                self.daemon.sound(self)
                self.command("run", "delete", "shop", "--run", "main")
                self.daemon.stop()

    def shown(self) -> str:
        done = subprocess.run([binary(), "--socket", self.daemon.socket, "run", "show", "shop"], capture_output=True, text=True)
        return done.stdout + done.stderr

    def by_command(self, choice: str) -> None:
        self.answer(choice)

    def by_console(self, choice: str) -> None:
        """Sends the form of the console that a person would send."""
        console = subprocess.Popen([binary(), "--socket", self.daemon.socket, "console", "--no-open"], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert console.stdout is not None
        with console, contextlib.ExitStack() as end:
            end.callback(console.terminate)
            origin, code = console.stdout.readline().strip().split("#")
            address = urllib.parse.urlsplit(origin)
            assert address.hostname is not None
            line = http.client.HTTPConnection(address.hostname, address.port)
            headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"http://{address.netloc}", "Sec-Fetch-Site": "same-origin"}

            def ask(method: str, path: str, form: Any = None, **more: str) -> tuple[http.client.HTTPResponse, str]:
                line.request(method, path, urllib.parse.urlencode(form) if form else None, {**headers, **more} if form else more)
                reply = line.getresponse()
                return reply, reply.read().decode()

            opened, _ = ask("POST", "/open", {"code": code})
            base, cookie = opened.headers["Location"], opened.headers["Set-Cookie"].split(";")[0]
            _, page = ask("GET", base, Cookie=cookie)
            form = next(html.unescape(h) for h in re.findall(r'href="([^"]*/ask/resolve[^"]*)"', page) if f"status={choice}" in html.unescape(h).split("&"))
            _, page = ask("GET", form, Cookie=cookie)
            fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', page.split('class="ask"', 1)[1])
            values = [(name, html.unescape(value)) for name, value in fields] + [("reason", "the bank says so")]
            reply, page = ask("POST", base + "act/resolve", values, Cookie=cookie, **{"Ckpt-Form": "1"})
            self.assertEqual(reply.status, 200, page)
            line.close()

    # Issue 45, 1 to 6

    def test_killed_in_it_and_the_daemon_away_at_the_restart(self) -> None:
        self.start()
        self.killed_in_it()
        self.daemon.stop()
        with self.quiet(), self.assertRaises(ckptsidecar.Offline) as caught:
            with self.agent().run() as run:
                self.assertEqual(run.plan.verdict, "offline")
                run.step("think")(lambda: 1)  # a step is spooled
                run.operation(PAY)(self.provider.charge)
        self.assertIn('offline="allow"', str(caught.exception))
        self.assertEqual(self.provider.charged, 1)
        self.start()
        self.sidecar().replay()
        with self.assertRaises(ckptsidecar.NeedsOperator):
            self.agent().run().begin()
        self.assertEqual(self.attempts(), ["uncertain"])
        self.answer("it_did", "--result", '{"receipt": 7}')
        with self.agent().run() as run:
            self.assertEqual(run.operation(PAY)(self.provider.charge), {"receipt": 7})
        self.assertEqual((self.provider.charged, self.attempts()), (1, ["succeeded"]))
        self.daemon.sound(self)

    def test_offline_allow_never_rewrites_an_earlier_attempt(self) -> None:
        """It may happen without the daemon, as its code says; what is then recorded is so."""
        self.start()
        self.killed_in_it()
        self.assertTrue(until(lambda: self.attempts() == ["uncertain"], 60))
        self.daemon.stop()
        with self.quiet(), self.agent().run() as run:
            run.operation(PAY, offline="allow")(self.provider.charge)
        self.start()
        self.sidecar().replay()
        self.assertEqual(self.attempts(), ["uncertain", "succeeded"])
        self.daemon.sound(self)

    def test_a_decision_about_the_run_is_no_answer(self) -> None:
        self.start()
        self.killed_in_it()
        with self.assertRaises(ckptsidecar.NeedsOperator) as caught:
            self.agent().run().begin()
        (prompt,) = self.sidecar().prompts(open=True)
        for choice in ("resume", "reinitialize", "abandon"):
            with self.assertRaises(ckptsidecar.CkptError):
                self.sidecar().answer(prompt["id"], choice)
        with self.assertRaises(ckptsidecar.NeedsOperator):
            self.agent().run().begin()
        self.assertEqual((self.provider.charged, self.attempts()), (1, ["uncertain"]))
        what, evidence, command = str(caught.exception).split("\n")
        self.assertIn("pay-42", what)
        self.assertIn("Attempt 1 began at ", evidence)
        self.assertEqual(command, "ckptsidecar operation resolve shop pay-42 it_did|it_did_not|repeat")
        assert caught.exception.plan is not None
        self.assertEqual([o["key"] for o in caught.exception.plan.uncertain_operations], [PAY])
        exact = command.replace("it_did|it_did_not|repeat", "it_did_not").split()[1:]  # what is printed works
        self.command(*exact)
        with self.agent().run() as run:
            run.operation(PAY)(self.provider.charge)
        self.assertEqual((self.provider.charged, self.attempts()), (2, ["failed", "succeeded"]))

    def ends_in(self, fails: Callable[[], Any], error: type[BaseException]) -> None:
        with self.assertRaises(error):
            with self.agent().run() as run:
                with run.operation(PAY):
                    self.provider.charge()
                    fails()

    def test_a_time_out_is_no_failure(self) -> None:
        self.start()

        def fails() -> None:
            raise TimeoutError("the provider did not answer")

        self.ends_in(fails, TimeoutError)
        rows = self.daemon.rows("SELECT status, error FROM audit_operations")
        self.assertEqual(rows, [("uncertain", "TimeoutError: the provider did not answer")])
        with self.assertRaises(ckptsidecar.NeedsOperator) as caught:
            self.agent().run().begin()
        self.assertIn("TimeoutError: the provider did not answer", str(caught.exception).split("\n")[1])
        self.assertEqual(self.provider.charged, 1)

    def test_every_way_out_leaves_it_uncertain(self) -> None:
        self.start()
        for n, error in enumerate((KeyboardInterrupt(), SystemExit(3), GeneratorExit(), asyncio.CancelledError(), ValueError("x"))):
            with self.subTest(type(error).__name__):
                with contextlib.suppress(type(error)):
                    with self.agent().run(f"r{n}") as run, run.operation(PAY):
                        raise error
                self.assertEqual(
                    self.daemon.rows("SELECT status, error FROM audit_operations WHERE run = ?", f"r{n}"),
                    [("uncertain", ckptsidecar._plans.error_text(error))],
                )

    def test_a_process_that_ends_in_another_thread_of_it(self) -> None:
        self.start()
        program = (
            "import ckptsidecar, sys, threading, time\n"
            "run = ckptsidecar.Sidecar(sys.argv[1]).agent('shop').run(heartbeat=0); run.begin()\n"
            "inside = threading.Event()\n"
            "def pay():\n"
            "    with run.operation('pay-42'):\n"
            "        inside.set(); time.sleep(600)\n"
            "threading.Thread(target=pay, daemon=True).start(); inside.wait()\n"
        )
        source = os.path.join(os.path.dirname(__file__), "..", "src")
        command = ["python3", "-c", program, self.daemon.socket]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": source})
        rows = self.daemon.rows("SELECT status, error FROM audit_operations")
        self.assertEqual(rows, [("uncertain", "SystemExit: the process ended in the operation")])

    def test_the_same_process_does_not_begin_it_again(self) -> None:
        self.start()
        with self.assertRaises(ckptsidecar.NeedsOperator):
            with self.agent().run() as run:
                for _ in range(2):
                    try:
                        run.operation(PAY)(self.charges_and_loses)
                    except ConnectionError:
                        pass
        self.assertEqual((self.provider.charged, self.attempts()), (1, ["uncertain"]))

    def charges_and_loses(self) -> None:
        self.provider.charge()
        raise ConnectionError("reset by peer")

    def test_ctrl_c_around_the_run_and_an_end_over_it(self) -> None:
        """The run is not completed over it, and the next start asks."""
        self.start()
        with contextlib.suppress(KeyboardInterrupt):
            with self.agent().run() as run, run.operation(PAY):
                self.provider.charge()
                raise KeyboardInterrupt
        with self.assertRaises(ckptsidecar.NeedsOperator):
            with self.agent().run("two") as run:
                with contextlib.suppress(KeyboardInterrupt):
                    with run.operation(PAY):
                        self.provider.charge()
                        raise KeyboardInterrupt
                with self.assertRaises(ckptsidecar.NeedsOperator) as caught:
                    run.end("completed")
                assert caught.exception.plan is not None
                self.assertEqual(len(str(caught.exception).split("\n")), 3)
        statuses = self.daemon.rows("SELECT run, status FROM audit_runs ORDER BY run")
        self.assertEqual(statuses, [("main", "interrupted"), ("two", "interrupted")])
        for name in ("main", "two"):
            with self.assertRaises(ckptsidecar.NeedsOperator):
                self.agent().run(name).begin()
        self.assertEqual(self.provider.charged, 2)

    def test_an_end_over_it_while_the_daemon_is_away(self) -> None:
        self.start()
        with self.quiet(), self.assertRaises(ckptsidecar.NeedsOperator):
            with self.agent().run() as run:
                with contextlib.suppress(ConnectionError):
                    run.operation(PAY)(self.charges_and_loses)
                self.daemon.stop()
        self.start()
        self.sidecar().replay()
        self.assertEqual(self.daemon.rows("SELECT status FROM audit_runs"), [("interrupted",)])

    def test_left_uncertain_with_a_reason(self) -> None:
        self.start()
        with self.agent().run() as run:
            with contextlib.suppress(ConnectionError):
                run.operation(PAY)(self.charges_and_loses)
            run.end("completed", leave_uncertain="the customer was told")
        self.assertEqual(self.daemon.rows("SELECT status FROM audit_runs"), [("completed",)])
        self.assertEqual(self.attempts(), ["uncertain"])
        with self.assertRaises(ckptsidecar.NeedsOperator) as caught:  # the key stays refused, in a later life of the run too
            with self.agent().run() as run:
                run.operation(PAY)(self.provider.charge)
        *_, command = lines = str(caught.exception).split("\n")
        self.assertEqual(len(lines), 3)
        self.assertEqual(command, "ckptsidecar operation resolve shop pay-42 it_did|it_did_not|repeat --run 'main~1'")
        assert caught.exception.plan is not None
        self.assertEqual(self.provider.charged, 1)

    def test_an_owner_that_was_taken_for_dead_says_how_it_ended(self) -> None:
        """Its heartbeats did not come, so the attempt became uncertain; its code knows better."""
        self.start()
        with self.agent().run(heartbeat=0, heartbeat_timeout=0.1) as run:
            with run.operation(PAY) as pay:
                pay.result = self.provider.charge()
                self.assertTrue(until(lambda: self.attempts() == ["uncertain"], 60))
        self.assertEqual((self.provider.charged, self.attempts()), (1, ["succeeded"]))

    def test_a_later_success_changes_nothing_about_an_earlier_attempt(self) -> None:
        self.start()
        self.killed_in_it()
        with self.assertRaises(ckptsidecar.NeedsOperator):
            self.agent().run().begin()
        self.answer("repeat")
        before = self.daemon.rows("SELECT * FROM audit_operations")
        with self.agent().run() as run:
            run.operation(PAY)(self.provider.charge)
        self.assertEqual(self.daemon.rows("SELECT * FROM audit_operations WHERE attempt = 1"), before)
        self.assertEqual((self.provider.charged, self.attempts()), (2, ["superseded", "succeeded"]))
        resolved = self.daemon.rows("SELECT count(*) FROM audit_log WHERE action = 'resolve_operation'")
        self.assertEqual(resolved, [(1,)])

    def test_a_resolved_success_gives_back_its_result(self) -> None:
        self.start()
        schema = {"type": "object", "required": ["receipt"]}
        self.killed_in_it(result_schema=schema)
        with self.assertRaises(ckptsidecar.NeedsOperator):
            self.agent().run().begin()
        for wrong in ([], ["--result", '{"paid": true}']):
            done = subprocess.run(
                [binary(), "--socket", self.daemon.socket, "operation", "resolve", "shop", PAY, "it_did", *wrong], capture_output=True
            )
            self.assertNotEqual(done.returncode, 0, wrong)
        self.answer("it_did", "--result", '{"receipt": 9}')
        with self.agent().run() as run:
            operation = run.operation(PAY, result_schema=schema)
            self.assertEqual(operation(self.provider.charge), {"receipt": 9})
            self.assertEqual(operation.resolved_by, f"uid:{os.getuid()}")
        self.assertEqual(self.provider.charged, 1)

    def test_a_resolved_success_without_a_result(self) -> None:
        self.start()
        self.killed_in_it()
        with self.assertRaises(ckptsidecar.NeedsOperator):
            self.agent().run().begin()
        self.answer("it_did")
        with self.agent().run() as run:
            operation = run.operation(PAY)
            self.assertIsNone(operation(self.provider.charge))
            self.assertEqual(operation.resolved_by, f"uid:{os.getuid()}")
            with self.assertRaises(ckptsidecar.AlreadyDone) as done, run.operation(PAY):
                self.fail("again")
            self.assertEqual(done.exception.resolved_by, f"uid:{os.getuid()}")

    # Without a person

    def test_only_who_knows_says_that_it_was_not_done(self) -> None:
        self.start()

        class CardRefused(Exception):
            pass

        def refused(kind: type[Exception]) -> Callable[[], Any]:
            def pay() -> None:
                raise kind("card refused")

            return pay

        with self.agent().run() as run:
            for kind in (ckptsidecar.NotDone, CardRefused):
                operation = run.operation(PAY, {"order": 42}, not_done=(CardRefused,))
                with self.assertRaises(kind):
                    operation(refused(kind))
                assert operation.restore is not None
                self.assertEqual(operation.restore.state, {"order": 42})
            self.assertEqual(run.operation(PAY)(self.provider.charge), {"receipt": 5})
        self.assertEqual((self.provider.charged, self.attempts()), (1, ["failed", "failed", "succeeded"]))

    def test_idempotent_is_repeated_with_its_key(self) -> None:
        self.start()

        def work() -> None:
            with ckptsidecar.Sidecar(self.daemon.socket).agent("shop").run(heartbeat=1) as run:
                with run.operation("pay", key=PAY, idempotent=True) as pay:
                    self.provider.charge_once(pay.key)
                    os.kill(os.getpid(), signal.SIGKILL)

        self.assertEqual(wait(child(work)), -signal.SIGKILL)
        with self.agent().run() as run:
            self.assertEqual(run.plan.verdict, "repair")
            with run.operation("pay", key=PAY, idempotent=True) as pay:
                pay.result = self.provider.charge_once(pay.key)
        self.assertEqual((self.provider.charged, self.attempts()), (1, ["superseded", "succeeded"]))

    def test_a_check_is_asked_before_a_person(self) -> None:
        self.start()
        asked: list[dict[str, Any]] = []

        def found(attempt: dict[str, Any]) -> Any:
            asked.append(attempt)
            return ckptsidecar.Done({"receipt": 5}) if self.provider.charged else ckptsidecar.NotDone()

        self.killed_in_it(check=found, args={"amount": 5})
        with self.agent().run() as run:
            operation = run.operation(PAY, check=found)
            self.assertEqual(operation(self.provider.charge), {"receipt": 5})
            self.assertEqual(operation.resolved_by, "check")
        self.assertEqual([(a["key"], a["attempt"], a["args"]) for a in asked], [(PAY, 1, {"amount": 5})])
        self.assertEqual((self.provider.charged, self.attempts()), (1, ["succeeded"]))

    def test_a_check_that_finds_nothing_done(self) -> None:
        self.start()

        def work() -> None:
            with ckptsidecar.Sidecar(self.daemon.socket).agent("shop").run(heartbeat=1) as run:
                with run.operation(PAY, check=lambda attempt: None):
                    os.kill(os.getpid(), signal.SIGKILL)

        self.assertEqual(wait(child(work)), -signal.SIGKILL)
        with self.agent().run() as run:
            run.operation(PAY, check=lambda attempt: ckptsidecar.NotDone())(self.provider.charge)
        self.assertEqual((self.provider.charged, self.attempts()), (1, ["failed", "succeeded"]))

    def test_a_check_that_cannot_tell_leaves_it_to_a_person(self) -> None:
        self.start()

        def fails(attempt: dict[str, Any]) -> Any:
            raise TimeoutError("no answer")

        self.killed_in_it(check=fails)
        for check in (lambda attempt: None, fails):
            with self.quiet_or_not(check is fails), self.assertRaises(ckptsidecar.NeedsOperator):
                with self.agent().run() as run:
                    run.operation(PAY, check=check)(self.provider.charge)
        self.answer("it_did")
        with self.agent().run() as run:
            self.assertIsNone(run.operation(PAY, check=fails)(self.provider.charge))
        self.assertEqual(self.provider.charged, 1)

    def quiet_or_not(self, quiet: bool) -> Any:
        return contextlib.nullcontext()

    def test_the_resolve_of_a_run_is_a_fallback(self) -> None:
        self.start()
        self.killed_in_it()
        with self.agent().run(resolve=lambda attempt: ckptsidecar.Done({"receipt": 1})) as run:
            operation = run.operation(PAY)
            self.assertEqual(operation(self.provider.charge), {"receipt": 1})
            self.assertEqual(operation.resolved_by, "check")
        self.assertEqual((self.provider.charged, self.attempts()), (1, ["succeeded"]))

    def test_an_operation_raises_at_once_while_the_daemon_is_away(self) -> None:
        """Also one of a run that began with the daemon, and whatever the key."""
        self.start()
        with self.quiet(), self.agent().run() as run:
            self.daemon.stop()
            for n in range(3):
                with self.assertRaises(ckptsidecar.Offline):
                    run.operation(f"pay-{n}")(self.provider.charge)
            self.assertEqual(run.operation("note", offline="allow")(lambda: 1), 1)
            self.start()
        self.sidecar().replay()
        self.assertEqual(self.daemon.rows("SELECT key, status FROM audit_operations"), [("note", "succeeded")])
        self.assertEqual(self.provider.charged, 0)

    def test_what_was_left_uncertain_here_is_not_spooled(self) -> None:
        self.start()
        with self.quiet(), self.assertRaises(ckptsidecar.NeedsOperator):
            with self.agent().run() as run:
                with contextlib.suppress(ConnectionError):
                    run.operation(PAY)(self.charges_and_loses)
                self.daemon.stop()
                run.operation(PAY, offline="allow")(self.provider.charge)
        self.assertEqual(self.provider.charged, 1)

    def test_a_run_that_is_removed(self) -> None:
        self.start()
        with contextlib.suppress(ConnectionError):
            with self.agent().run("r") as run:
                run.operation(PAY)(self.charges_and_loses)
        with self.assertRaises(ckptsidecar.NeedsOperator) as caught:
            self.agent().delete_run("r")
        self.assertIn(PAY, str(caught.exception))

    # asyncio

    def test_asyncio(self) -> None:
        self.start()
        asked: list[str] = []

        async def found(attempt: dict[str, Any]) -> Any:
            await asyncio.sleep(0)
            asked.append(attempt["key"])
            return ckptsidecar.Done({"receipt": 2})

        async def cancelled() -> None:
            async with ckptsidecar.AsyncSidecar(self.daemon.socket) as sidecar:
                async with sidecar.agent("shop").run() as run:
                    async with run.operation(PAY, check=found):
                        self.provider.charge()
                        await asyncio.sleep(600)

        async def first() -> None:
            task = asyncio.ensure_future(cancelled())
            while not self.provider.charged:
                await asyncio.sleep(0.01)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        async def second() -> None:
            async with ckptsidecar.AsyncSidecar(self.daemon.socket) as sidecar:
                async with sidecar.agent("shop").run() as run:
                    pay = run.operation(PAY, check=found)
                    self.assertEqual(await pay(self.provider.charge), {"receipt": 2})
                    self.assertEqual((pay.resolved_by, pay.key), ("check", PAY))
                    with self.assertRaises(ckptsidecar.NotDone):
                        async with run.operation("other"):
                            raise ckptsidecar.NotDone("refused")

        asyncio.run(first())
        self.assertEqual(self.daemon.rows("SELECT status, error FROM audit_operations"), [("uncertain", "CancelledError")])
        asyncio.run(second())
        self.assertEqual((asked, self.provider.charged), ([PAY], 1))
        rows = self.daemon.rows("SELECT key, status FROM audit_operations ORDER BY key")
        self.assertEqual(rows, [("other", "failed"), (PAY, "succeeded")])


if __name__ == "__main__":
    unittest.main()
