"""Daemons that are stopped, frozen or never there: no exception reaches the agent, and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from unittest import mock

from ckptsidecar import _delivery, _replay

from .harness import World, binary, child, ckptsidecar, percentile, report, until, wait


NAMES = {  # of step_name_test.go
    "search": "search", "search-3": "search", "s1": "s", "fetch_page_12": "fetch_page", "step/7": "step", "call_7": "call",
    "search-018f3a52-7b2c-7e11-9d4e-2b7a61c0ffee": "search", "toolu_01AbCdEf9xyz": "toolu", "report-2026-11-28": "report",
    "report-2026-11-28T10:00:00Z": "report", "17": "step", "018f3a52-7b2c-7e11-9d4e-2b7a61c0ffee": "step", "read file 3": "read file",
    "utf8": "utf", "größe-4": "größe", "try-2-of-3": "try-2-of", "a": "a", "-": "step",
}  # fmt: skip


class Away(World):
    def test_steps_without_a_name_have_the_name_that_the_daemon_gives(self) -> None:
        with self.quiet(), self.sidecar(deadline=0.0).agent("names").run("r") as run:
            for key in NAMES:
                run.step(key)(lambda: 1)
            run.end("suspended")
        with self.quiet(), self.sidecar(deadline=0.0).agent("names").run("r") as run:
            self.assertEqual({s["key"]: s["name"] for s in run.plan.completed_steps}, NAMES)
            run.end("suspended")
        self.start()
        self.sidecar().replay()
        self.assertEqual(dict(self.daemon.rows("SELECT key, name FROM audit_steps")), NAMES)

    def states(self, agent: str, run: str = "main") -> list[dict[str, object]]:
        rows = self.daemon.rows("SELECT state FROM audit_states WHERE agent = ? AND run = ? ORDER BY seq", agent, run)
        return [json.loads(text) for (text,) in rows]

    def test_ten_seconds(self) -> None:
        """Show 2: stopped for ten seconds under three clients."""
        self.start()
        for n in range(3):
            self.sidecar().agent(f"c{n}").set_policy(routine_keep=0)

        def work(n: int) -> None:
            with ckptsidecar.Sidecar(self.daemon.socket, deadline=1.0) as sidecar:
                agent = sidecar.agent(f"c{n}")
                end, i, spooled = time.monotonic() + 14, 0, 0
                while time.monotonic() < end:
                    saved = agent.save({"n": n, "i": i, "pad": "x" * (15_000 if n == 1 else 100)})
                    assert not saved.lost
                    spooled += saved.spooled
                    i += 1
                    time.sleep(0.01)
                with open(os.path.join(self.folder, f"count{n}"), "w") as file:
                    json.dump([i, spooled], file)

        children = [child(lambda n=n: work(n)) for n in range(3)]  # type: ignore[misc]
        time.sleep(2)
        self.daemon.stop()
        time.sleep(10)
        self.start()
        self.assertEqual([wait(pid) for pid in children], [0, 0, 0])
        self.sidecar().replay()  # what they had no time for
        told = []
        for n in range(3):
            with open(os.path.join(self.folder, f"count{n}")) as file:
                count, spooled = json.load(file)
            self.assertGreater(spooled, 0)
            self.assertEqual([s["i"] for s in self.states(f"c{n}")], list(range(count)))
            told.append(f"{count} saves ({spooled} by way of the spool)")
        self.assertEqual(self.waiting(), [])
        self.daemon.sound(self)
        report("show 2, ten seconds away: " + ", ".join(told) + "; every one there once and in order, no exception")

    def test_nothing_twice(self) -> None:
        """What an earlier process of the run has done is not done again while the daemon is away."""
        self.start()

        def first() -> None:
            with ckptsidecar.Sidecar(self.daemon.socket).agent("a").run("r") as run:
                run.operation("pay")(lambda: {"paid": (1,)})
                run.step("fetch")(lambda: 1)
                run.save({"i": 1})
                os.kill(os.getpid(), 9)

        self.assertEqual(wait(child(first)), -9)
        with self.quiet(), self.sidecar(deadline=1.0).agent("a").run("r") as run:
            self.daemon.stop(signal.SIGKILL)
            self.assertEqual(run.operation("pay")(lambda: 1 / 0), {"paid": (1,)})
            self.assertEqual(run.step("fetch")(lambda: 1 / 0), 1)
            self.assertEqual(run.operation("new", offline="allow")(lambda: 2), 2)
            self.start()

    def test_never_there(self) -> None:
        """Show 3: absent from start to end; replayed later exactly once."""
        deadline, told = 0.1, []
        with self.quiet():
            sidecar = self.sidecar(deadline=deadline)
            for n in range(2):
                agent, took = sidecar.agent(f"n{n}"), []
                with agent.run() as run:
                    self.assertEqual((run.plan.verdict, run.state, run.epoch), ("offline", None, None))
                    for i in range(300):
                        began = time.perf_counter()
                        saved = run.save({"i": i, "pad": "x" * 2000})
                        took.append(time.perf_counter() - began)
                        self.assertTrue(saved.spooled)
                        if i % 100 == 0:
                            self.assertEqual(run.step(f"s{i}")(lambda i=i: {"i": i}), {"i": i})  # type: ignore[misc]
                beyond = [max(0.0, t - deadline) for t in took]
                told.append(
                    f"p50 {percentile(took, 0.5):.2f}, p99 {percentile(took, 0.99):.2f} ms in all, "
                    f"p99 {percentile(beyond, 0.99):.2f}, at most {max(beyond) * 1000:.2f} ms beyond the deadline"
                )
            sidecar._delivery.close(flush=False)
        self.start()
        replayed = [0, 0]
        for n in range(2):
            self.sidecar().agent(f"n{n}").set_policy(routine_keep=0)
        for _ in range(2):  # twice does no harm
            done = self.sidecar().replay()
            replayed.append(done.sent)
            self.assertEqual((done.rejected, done.left), (0, 0))
        for n in range(2):
            self.assertEqual([s["i"] for s in self.states(f"n{n}")], list(range(300)))
            steps = self.daemon.rows("SELECT key, status FROM audit_steps WHERE agent = ? ORDER BY key", f"n{n}")
            self.assertEqual(steps, [("s0", "succeeded"), ("s100", "succeeded"), ("s200", "succeeded")])
            self.assertEqual(self.daemon.rows("SELECT status FROM audit_runs WHERE agent = ?", f"n{n}"), [("completed",)])
        self.daemon.sound(self)
        report(f"show 3, never there, a save of 2 KiB, deadline 100 ms: {'; '.join(told)}; {sum(replayed)} writes replayed once")

    def test_what_the_deadline_costs(self) -> None:
        """The same, where each save waits the whole deadline, because the daemon is there and silent."""
        self.start()
        sidecar = self.sidecar(deadline=0.15)
        agent = sidecar.agent("frozen")
        agent.set_policy(routine_keep=0)
        agent.save({"i": 0})
        self.daemon.pause()
        beyond, waited = [], 0
        with self.quiet():
            for i in range(1, 120):
                began = time.perf_counter()
                self.assertTrue(agent.save({"i": i, "pad": "x" * 2000}).spooled)
                took = time.perf_counter() - began
                waited += took > 0.15
                beyond.append(max(0.0, took - 0.15))
                time.sleep(0.005)
            self.daemon.go_on()
            agent.save({"i": 120})
            self.sidecar().replay()
        self.assertEqual([s["i"] for s in self.states("frozen")], list(range(121)))
        report(f"show 3, frozen: {waited} of 119 saves waited; beyond the deadline p99 {percentile(beyond, 0.99):.2f} ms")

    def test_killed_in_the_middle(self) -> None:
        """Saves with an unknown outcome are there once: the daemon is killed again and again under load."""
        self.start()
        agent = self.sidecar(deadline=2.0).agent("killed")
        agent.set_policy(routine_keep=0)
        stop = threading.Event()
        sent: list[int] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                while not stop.is_set():
                    agent.save({"i": len(sent), "pad": "x" * (len(sent) % 3 * 10_000)})
                    sent.append(len(sent))
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(8):
            time.sleep(0.15)
            self.daemon.stop(signal.SIGKILL)
            self.start()
        stop.set()
        thread.join()
        self.sidecar().replay()
        self.assertEqual(errors, [])
        self.assertEqual([s["i"] for s in self.states("killed")], sent)
        self.daemon.sound(self)

    def test_a_client_that_dies_leaves_its_spool(self) -> None:
        def work() -> None:
            agent = ckptsidecar.Sidecar(self.daemon.socket, deadline=0.0).agent("dies")
            with agent.run("r") as run:
                for i in range(5):
                    run.save({"i": i})
                with contextlib.suppress(ZeroDivisionError):
                    run.operation("fails", {"i": 5, "before": ("ü",)}, offline="allow", not_done=ZeroDivisionError)(lambda: 1 / 0)
                run.step("done")(lambda: "effect")
                run.operation("pay", offline="allow")(lambda: {"paid": (1,)})
                run._session.send(("operations",), {"key": "pay", "name": "pay", "state": 0})  # as the TypeScript client asks again
                with contextlib.suppress(ZeroDivisionError):
                    run.step("broken")(lambda: 1 / 0)
                run._steps.begin("half", "half", None)
                os.kill(os.getpid(), 9)

        self.assertEqual(wait(child(work)), -9)
        # The next one starts without the daemon too: it goes on from the spool.
        with self.quiet(), self.sidecar(deadline=0.0).agent("dies").run("r") as run:
            self.assertEqual((run.plan.verdict, run.state), ("offline", {"i": 5, "before": ("ü",)}))
            self.assertEqual([s["key"] for s in run.plan.completed_steps], ["done"])
            self.assertEqual([s["key"] for s in run.plan.interrupted_steps], ["half"])
            self.assertEqual(run.step("done")(lambda: 1 / 0), "effect")
            self.assertEqual(run.operation("pay")(lambda: 1 / 0), {"paid": (1,)})
            self.assertEqual(run.operation("fails", offline="allow")(lambda: "later"), "later")
            run.end("suspended")
        self.start()
        # And one with the daemon gets all of it, before its plan is made.
        with self.sidecar().agent("dies").run("r") as run:
            self.assertEqual(run.state, {"i": 5, "before": ("ü",)})
            self.assertEqual([s["key"] for s in run.plan.completed_steps], ["done"])
            self.assertEqual(run.step("done")(lambda: 1 / 0), "effect")
            self.assertEqual(run.operation("pay")(lambda: 1 / 0), {"paid": (1,)})
        self.daemon.sound(self)

    def test_what_the_agent_has_found_out(self) -> None:
        """An operation that died in the middle, without a daemon, and took effect, as its agent knows."""

        def work() -> None:
            with ckptsidecar.Sidecar(self.daemon.socket, deadline=0.0).agent("dies").run("r") as run:
                with run.operation("pay", offline="allow"):
                    os.kill(os.getpid(), 9)

        self.assertEqual(wait(child(work)), -9)
        agent = self.sidecar(deadline=0.0).agent("dies")
        with self.quiet(), agent.run("r", resolve=lambda o: ("succeeded", {"paid": 1})) as run:
            self.assertEqual(run.operation("pay")(lambda: 1 / 0), {"paid": 1})
            run.end("suspended")
        self.start()
        with self.sidecar().agent("dies").run("r") as run:
            self.assertEqual(run.operation("pay")(lambda: 1 / 0), {"paid": 1})
        self.daemon.sound(self)

    def test_a_daemon_that_only_the_environment_names(self) -> None:
        """What is spooled for it is sent to it, by the command and by any client."""
        os.environ["CKPTSIDECAR_SOCKET"] = self.daemon.socket
        for n in (1, 2):
            with self.quiet():
                client = ckptsidecar.Sidecar(deadline=0.0)
                client.agent("named").save({"n": n})
                client._delivery.close(flush=False)
            self.start()
            if n == 1:
                done = subprocess.run([binary(), "spool", "replay"], capture_output=True, text=True)
                self.assertTrue(done.stdout.startswith("1 sent, "), done)
            else:
                with ckptsidecar.Sidecar() as other:
                    self.assertEqual(other.replay().sent, 1)
            self.assertEqual(self.states("named")[-1], {"n": n})
            self.daemon.stop()

    def test_what_to_do_about_an_operation_in_the_spool(self) -> None:
        """The error says which command sends it to the daemon, and that command says how to answer."""
        os.environ["CKPTSIDECAR_SOCKET"] = self.daemon.socket

        def first() -> None:
            with ckptsidecar.Sidecar(deadline=0.0).agent("dies").run("r") as run:
                with run.operation("pay", {"i": 1}, offline="allow"):
                    os.kill(os.getpid(), 9)

        def command(*args: str) -> "subprocess.CompletedProcess[str]":
            return subprocess.run([binary(), *args], capture_output=True, text=True)

        with ckptsidecar.Sidecar(deadline=0.0) as sidecar:
            self.assertEqual(wait(child(first)), -9)
            with self.assertRaises(ckptsidecar.NeedsOperator) as caught:
                sidecar.agent("dies").run("r").begin()
        self.assertEqual(caught.exception.plan.verdict, "offline")
        answer = "ckptsidecar operation resolve dies pay it_did|it_did_not|repeat --run r"
        self.assertEqual(str(caught.exception).split("\n")[2], answer)
        self.start()
        plan = command("resume", "dies", "--run", "r")
        self.assertEqual((plan.returncode, self.waiting()), (20, []), plan.stderr)
        self.assertIn("ckptsidecar operation resolve dies pay ", plan.stdout)
        done = command("operation", "resolve", "dies", "pay", "it_did_not", "--run", "r")
        self.assertEqual(done.returncode, 0, done.stderr)
        with ckptsidecar.Sidecar() as sidecar, sidecar.agent("dies").run("r") as run:
            self.assertEqual(run.state, {"i": 1})
        self.daemon.sound(self)

    def test_a_plan_from_a_folder_that_others_may_write(self) -> None:
        """Who starts without the daemon takes no state from it."""
        with self.quiet():
            self.sidecar(deadline=0.0).agent("a").save({"planted": True})
        os.chmod(self.spool, 0o777)
        with self.quiet(), self.assertRaises(ckptsidecar.SpoolError):
            with self.sidecar(deadline=0.0).agent("a").run() as run:
                self.assertEqual((run.plan.verdict, run.state), ("offline", None))
                self.assertIn("chmod 700", " ".join(run.plan.reasons))
                run.save({"n": 1})
        os.chmod(self.spool, 0o700)
        with self.quiet(), self.sidecar(deadline=0.0).agent("a").run() as run:
            self.assertEqual(run.state, {"planted": True})

    def test_a_folder_that_others_may_write(self) -> None:
        """Nothing of it is sent. A daemon that is there gets what is new."""
        with self.quiet():
            writer = self.sidecar(deadline=0.0)
            writer.agent("a").save({"planted": True})
            writer._delivery._closed.set()  # it replays nothing itself
        os.chmod(self.spool, 0o777)
        self.start()
        with self.quiet() as log, self.sidecar().agent("a").run() as run:
            self.assertEqual((run.plan.verdict, run.state), ("fresh", None))
            self.assertFalse(run.save({"n": 1}).spooled)
            self.assertEqual(run.agent.latest().state, {"n": 1})
        self.assertEqual(len([line for line in log.output if "chmod 700" in line]), 1)
        with self.assertRaises(ckptsidecar.SpoolError):
            self.sidecar().replay()
        self.assertEqual(len(self.waiting()), 1)

    def test_fenced_is_never_spooled(self) -> None:
        self.start()
        agent = self.sidecar().agent("fenced")
        run = agent.run("r", heartbeat=0)
        run.begin()
        run.save(1)
        other = self.sidecar().agent("fenced").run("r", force=True, heartbeat=0, sigterm=False)
        other.begin()
        began = time.perf_counter()
        with self.assertRaises(ckptsidecar.Fenced):
            run.save(2)
        with self.assertRaises(ckptsidecar.Fenced):
            run.step("s")(lambda: self.fail("a fenced run goes on"))
        self.assertLess(time.perf_counter() - began, 2.0)
        self.assertEqual(self.waiting(), [])
        other.save(3)
        with self.assertRaises(ckptsidecar.Fenced):
            run.__exit__(None, None, None)  # it cannot end a run that is not its own
        self.assertEqual(self.daemon.rows("SELECT status FROM audit_runs"), [("running",)])
        other.__exit__(None, None, None)

    def test_fenced_while_away(self) -> None:
        """Who was taken over while it spooled learns it, and its late writes are put aside."""
        self.start()
        agent = self.sidecar(deadline=0.5).agent("taken")
        run = agent.run("r", heartbeat=0)
        run.begin()
        run.save({"i": 1})
        self.daemon.stop()
        with self.quiet():
            self.assertTrue(run.save({"i": 2}).spooled)
            agent.sidecar._delivery._closed.set()  # no background replay: the other one is first
            time.sleep(0.6)
            self.start()
            taken = ckptsidecar.Sidecar(self.daemon.socket, spool=self.folder + "/other")
            self.addCleanup(taken.close)
            other = taken.agent("taken").run("r", force=True, heartbeat=0, sigterm=False)
            other.begin()
            with self.assertRaises(ckptsidecar.Fenced):
                run.save({"i": 3})
        self.assertEqual(self.waiting(), [])
        self.assertEqual(len(os.listdir(os.path.join(self.spool, "rejected"))), 2)
        self.assertEqual([s["i"] for s in self.states("taken", "r")], [1])
        other.__exit__(None, None, None)

    def test_a_start_waits_while_the_spool_empties(self) -> None:
        """What an earlier process has spooled takes longer to send than the deadline: it is waited for, and not done again."""
        with self.quiet():
            first = self.sidecar(deadline=0.0)
            run = first.agent("a").run("r", heartbeat=0)
            run.begin()
            for n in range(4):
                run.step(f"s{n}")(lambda n=n: n)  # type: ignore[misc]
            first._delivery._closed.set()  # it replays nothing itself
        self.assertEqual(len(self.waiting()), 8)
        self.start()
        replay = _replay._replay
        with mock.patch.object(_replay, "_replay", lambda *args: replay(*args[:-1], 0.0)):  # one file a call
            with self.sidecar().agent("a").run("r") as run:
                self.assertEqual((run.plan.verdict, run.plan.claimed), ("resume", True))
                for n in range(4):
                    self.assertEqual(run.step(f"s{n}")(lambda: 1 / 0), n)
        self.assertEqual(self.waiting(), [])

    def test_a_heartbeat_overtakes_what_waits(self) -> None:
        """A run whose writes wait in the spool, because the daemon does not take them now, is alive all the same."""
        self.start()
        with self.quiet(), self.sidecar(deadline=60.0).agent("a").run("r", heartbeat=0.05) as run:
            run.save({"n": 1})
            full = ckptsidecar.StorageFull("no room")
            with mock.patch.object(_delivery, "replay", lambda *args: _replay.Replayed(0, 0, 1)):
                with mock.patch.object(run._session._delivery.link, "ask", side_effect=full):
                    with mock.patch.object(run._session._delivery, "settings", _delivery.Settings(deadline=0.0)):
                        self.assertTrue(run.save({"n": 2}).spooled)
                run._session.progress = 0.5  # for the next heartbeat
                self.assertTrue(until(lambda: self.daemon.rows("SELECT progress FROM audit_runs") == [(0.5,)], 60))
            self.assertEqual(len(self.waiting()), 1)

    def test_claimed_late(self) -> None:
        with self.quiet():
            run = self.sidecar(deadline=0.05).agent("late").run("r", heartbeat=0.1)
            run.begin()
            self.assertIsNone(run.epoch)
            run.save({"i": 0})
            self.start()
            self.assertTrue(until(lambda: run.epoch))  # the heartbeat does it
        run.save({"i": 1})
        run.__exit__(None, None, None)
        self.sidecar().replay()  # with so short a deadline they may lie there
        self.assertEqual([s["i"] for s in self.states("late", "r")], [0, 1])
        self.assertEqual(self.daemon.rows("SELECT status, epoch FROM audit_runs"), [("completed", run.epoch)])

    def test_claimed_after_an_answer(self) -> None:
        """A run that a person must decide about first is claimed once that was done."""
        self.start()

        def work() -> None:
            with ckptsidecar.Sidecar(self.daemon.socket).agent("a").run("r") as run, run.operation("pay"):
                os.kill(os.getpid(), 9)

        self.assertEqual(wait(child(work)), -9)
        self.daemon.stop()
        with self.quiet() as log:
            run = self.sidecar(deadline=0.05).agent("a").run("r", heartbeat=0.05)
            run.begin()
            self.start()
            query = "SELECT status FROM audit_operations"
            self.assertTrue(until(lambda: "a person must decide before run r of agent a" in "".join(log.output), 60))
            self.assertEqual(self.daemon.rows(query), [("uncertain",)])
            self.assertIsNone(run.epoch)
            command = [binary(), "--socket", self.daemon.socket, "operation", "resolve", "a", "--run", "r", "pay", "it_did"]
            subprocess.run(command, check=True, capture_output=True)
            self.assertTrue(until(lambda: run.epoch, 60))
        run.__exit__(None, None, None)

    def test_a_run_that_needs_the_daemon(self) -> None:
        with self.assertRaises(ckptsidecar.NoDaemon):
            self.sidecar(deadline=0.0).agent("a").run(require_daemon=True).begin()
        with self.assertRaises(ckptsidecar.NoDaemon):
            self.sidecar(deadline=0.0, fail_open=False).agent("a").run().begin()
