"""Runs: how they begin, go on and end."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from typing import Any

from .harness import ROOT, World, binary, child, ckptsidecar, until, wait


class Runs(World):
    def setUp(self) -> None:
        super().setUp()
        self.start()
        self.agent = self.sidecar().agent("a")

    def status(self, run: str = "main") -> str:
        return str(self.daemon.rows("SELECT status FROM audit_runs WHERE run = ?", run)[0][0])

    def test_from_beginning_to_end(self) -> None:
        with self.agent.run("r", workflow="w", goal="win", labels={"a": "b"}, external_session="x-1") as run:
            self.assertEqual((run.plan.verdict, run.state, run.epoch), ("fresh", None, 1))
            run.save({"i": 1})
            run.event("note", {"text": "ü", "when": (1, 2)})
            run.progress(0.5)
            self.assertEqual(self.status("r"), "running")
        row = self.daemon.rows("SELECT status, workflow, goal, labels, external_session, progress, pid FROM audit_runs")[0]
        self.assertEqual(row[:6], ("completed", "w", "win", '{"a":"b"}', "x-1", 0.5))
        self.assertEqual(self.daemon.rows("SELECT type, payload FROM audit_events"), [("note", '{"text":"ü","when":{"$ckpt":"tuple","value":[1,2]}}')])
        with self.agent.run("r") as run:  # what has ended begins anew
            self.assertEqual((run.plan.verdict, run.plan.attempt), ("fresh", 2))
        self.daemon.sound(self)

    def test_steps(self) -> None:
        calls: list[Any] = []

        def work(x: int, y: int = 0) -> dict[str, Any]:
            calls.append((x, y))
            return {"sum": (x, y)}

        with self.agent.run() as run:
            self.assertEqual(run.step("one", args={"x": 1})(work, 1, y=2), {"sum": (1, 2)})
            self.assertEqual(run.step("one")(work, 5), {"sum": (1, 2)})
            stepped = run.step(work)
            self.assertEqual(stepped.__name__, "work")
            self.assertEqual([stepped(1), stepped(1), stepped(2), stepped(x=2)], [{"sum": (1, 0)}] * 2 + [{"sum": (2, 0)}] * 2)
            self.assertIsNone(run.step("nothing")(lambda: None))
            self.assertIsNone(run.step("nothing")(lambda: 1 / 0))
            with self.assertRaises(ZeroDivisionError):
                run.step("fails")(lambda: 1 / 0)
            self.assertEqual(run.step("fails")(lambda: "later"), "later")
            measured = run.step("measured", measure=lambda r: {"input_tokens": r, "output_tokens": 2, "cost_usd": 0.5, "progress": 3})
            measured(lambda: 7)
            with self.assertRaises(ckptsidecar.NotSerializable):
                stepped(object())
            with self.quiet():
                run.step("odd")(lambda: {"fine": 1, "not": object()})
        self.assertEqual(calls, [(1, 2), (1, 0), (2, 0), (2, 0)])
        rows = {r[0]: r[1:] for r in self.daemon.rows("SELECT key, name, status, attempt, args, error, input_tokens, cost_usd, progress, duration_ms FROM audit_steps")}
        self.assertEqual(rows["one"][:4], ("work", "succeeded", 1, '{"x":1}'))
        self.assertEqual(rows["fails"][1:3], ("succeeded", 2))
        self.assertEqual(rows["measured"][5:8], (7, 0.5, 3.0))
        self.assertIsNotNone(rows["measured"][8])
        self.assertEqual(len(rows), 8)

    def test_turns_and_negative_answers(self) -> None:
        def nothing(answer: Any) -> bool:
            return answer == "" or isinstance(answer, LookupError)

        with self.agent.run() as run:
            run.step("grep", turn="msg_1", negative=nothing)(lambda: "")
            run.step("read", turn="msg_1", negative=nothing)(lambda: "text")
            with self.assertRaises(KeyError):
                run.step("find", turn="msg_2", negative=nothing)(lambda: {}["a"])
            find = run.step(lambda: "", name="found", turn="msg_3", negative=nothing)
            self.assertEqual(find(), "")
            with self.quiet() as log:
                self.assertEqual(run.step("odd", negative=lambda a: 1 / 0)(lambda: "kept"), "kept")
            self.assertIn("division by zero", log.output[0])
            with self.assertRaises(ckptsidecar.Invalid):
                run.step("long", turn="x" * 257)(lambda: 1)
        rows = self.daemon.rows("SELECT name, status, turn, outcome FROM audit_steps ORDER BY started_at, key")
        want = {
            ("grep", "succeeded", "msg_1", "negative"), ("read", "succeeded", "msg_1", None), ("find", "failed", "msg_2", "negative"),
            ("found", "succeeded", "msg_3", "negative"), ("odd", "succeeded", None, None),
        }  # fmt: skip
        self.assertEqual(set(rows), want)

    def test_operations(self) -> None:
        with self.agent.run() as run:
            run.save({"newest": True})
            with run.operation("push", {"before": (1,)}) as push:
                push.result = {"sha": b"\x01"}
            with self.assertRaises(ckptsidecar.AlreadyDone) as done:
                with run.operation("push", {"before": 2}):
                    self.fail("what succeeded is done again")
            self.assertEqual(done.exception.result, {"sha": b"\x01"})
            self.assertEqual(run.operation("push")(lambda: 1 / 0), {"sha": b"\x01"})
            with self.assertRaises(ZeroDivisionError):
                with run.operation("deploy", {"before": (3,)}, key="deploy-1", labels={"x": "y"}, not_done=ZeroDivisionError) as deploy:
                    1 / 0
            assert deploy.restore is not None
            self.assertEqual((deploy.restore.state, deploy.restore.kind, deploy.restore.labels), ({"before": (3,)}, "pre_operation", {"x": "y"}))
            self.assertEqual(run.operation("deploy", key="deploy-1")(lambda n: n * 2, 4), 8)
            self.assertEqual(run.operation("deploy", key="deploy-1")(lambda: 1 / 0), 8)
        rows = self.daemon.rows("SELECT key, attempt, status, error FROM audit_operations ORDER BY started_at, attempt")
        self.assertEqual([r[:3] for r in rows], [("push", 1, "succeeded"), ("deploy-1", 1, "failed"), ("deploy-1", 2, "succeeded")])
        self.assertIn("ZeroDivisionError", rows[1][3])
        self.daemon.sound(self)

    def test_the_result_of_an_operation_is_never_refused(self) -> None:
        """What it came from has happened."""
        with self.quiet() as log, self.sidecar(refuse=True).agent("a").run() as run:
            self.assertEqual(run.operation("odd")(lambda: {"fine": 1, "not": threading.Lock}), {"fine": 1, "not": threading.Lock})
            run.operation("bytes")(lambda: b"raw")
        self.assertIn("of the result of operation odd, /not", log.output[0])
        self.assertEqual(len(log.output), 2)
        rows = self.daemon.rows("SELECT key, status, json_extract(result, '$.fine') FROM audit_operations ORDER BY key")
        self.assertEqual(rows, [("bytes", "succeeded", None), ("odd", "succeeded", 1)])

    def test_after_a_crash(self) -> None:
        def first() -> None:
            with ckptsidecar.Sidecar(self.daemon.socket).agent("a").run("r") as run:
                run.save({"i": 1})
                run.step("done")(lambda: "result")
                run.save({"i": 2})
                run.step("since")(lambda: {"x": (1,)})
                run._steps.begin("open", "tool", {"path": "x"})
                os.kill(os.getpid(), 9)

        self.assertEqual(wait(child(first)), -9)
        with self.agent.run("r") as run:
            self.assertEqual((run.plan.verdict, run.plan.attempt, run.state), ("repair", 2, {"i": 2}))
            self.assertEqual([s["key"] for s in run.plan.completed_steps], ["since"])
            self.assertEqual([s["key"] for s in run.plan.interrupted_steps], ["open"])
            for key, result in (("done", "result"), ("since", {"x": (1,)})):
                self.assertEqual(run.step(key)(lambda: 1 / 0), result)
        self.daemon.sound(self)

    def test_an_operation_that_nobody_knows_the_end_of(self) -> None:
        world = os.path.join(self.folder, "world")

        def first(effect: bool) -> None:
            with ckptsidecar.Sidecar(self.daemon.socket).agent("a").run("r", resolve=lambda o: "failed") as run:
                run.save({"i": 1})
                with run.operation("deploy", {"i": 1}):
                    if effect:
                        open(world, "w").close()
                    os.kill(os.getpid(), 9)

        self.assertEqual(wait(child(lambda: first(False))), -9)
        with self.assertRaises(ckptsidecar.NeedsOperator) as caught:
            self.agent.run("r").begin()
        self.assertEqual(caught.exception.plan.uncertain_operations[0]["key"], "deploy")
        self.assertIn("\nckptsidecar operation resolve a deploy it_did|it_did_not|repeat --run r", str(caught.exception))
        with self.assertRaises(ckptsidecar.NeedsOperator):  # it does not know either
            self.agent.run("r", resolve=lambda o: None).begin()
        self.assertEqual(wait(child(lambda: first(True))), -9)
        asked = []

        def resolve(operation: dict[str, Any]) -> str:
            asked.append(operation["key"])
            return "succeeded" if os.path.exists(world) else "failed"

        with self.agent.run("r", resolve=resolve) as run:
            self.assertIn(run.plan.verdict, ("resume", "repair"))
            self.assertIsNone(run.operation("deploy")(lambda: self.fail("it took effect")))
        self.assertEqual(asked, ["deploy"])
        self.daemon.sound(self)

    def test_a_live_owner(self) -> None:
        with self.agent.run("r", heartbeat=0.1) as run:
            run.save(1)

            def other() -> None:
                agent = ckptsidecar.Sidecar(self.daemon.socket).agent("a")
                try:
                    agent.run("r").begin()
                except ckptsidecar.Unsafe as error:
                    assert error.plan.verdict == "unsafe", error.plan
                else:
                    raise AssertionError("a live owner's run was resumed")
                with agent.run("r", force=True) as taken:
                    assert taken.state == 1
                    taken.end("suspended")

            with self.quiet():
                self.assertEqual(wait(child(other)), 0)
                self.assertTrue(until(lambda: run._session._lost))  # the heartbeat learns it
            with self.assertRaises(ckptsidecar.Fenced):
                run.save(2)
            run._ended = True

    def test_the_heartbeat(self) -> None:
        with self.agent.run("r", heartbeat=0.05, heartbeat_timeout=3.0) as run:
            run.save(1)
            time.sleep(5)
            self.assertEqual(self.status("r"), "running")
        with self.agent.run("s", heartbeat=0, heartbeat_timeout=1.0) as run:
            run.save(1)
            self.assertTrue(until(lambda: self.status("s") == "timed_out", 15))
            run.save(2)  # it lives after all
            self.assertEqual(self.status("s"), "running")

    def test_an_exception(self) -> None:
        state = {"i": 1, "log": ["fine"]}
        with self.assertRaises(KeyError):
            with self.agent.run("r") as run:
                kept = run.save(state)
                state["log"].append("half done")
                raise KeyError("lost")
        self.assertEqual(self.status("r"), "interrupted")
        [aside] = self.agent.list(run="r", kind="recovery")
        self.assertEqual(self.agent.get(aside.id).state["log"], ["fine", "half done"])
        self.assertEqual((aside.labels, aside.metadata), ({"reason": "exception"}, {"error": "KeyError"}))
        with self.agent.run("r") as run:  # it goes on from what the agent saved, not from the middle of things
            self.assertEqual((run.state, run.plan.checkpoint and run.plan.checkpoint.id), ({"i": 1, "log": ["fine"]}, kept.id))
        with self.assertRaises(KeyError):
            with self.agent.run("s", on_error="failed") as run:
                run.save(1)
                raise KeyError("lost")
        self.assertEqual(self.status("s"), "failed")
        [aside] = self.agent.list(run="s", kind="recovery")  # also where the state is as it was last saved
        self.assertEqual(self.agent.get(aside.id).state, 1)
        with self.assertRaises(KeyboardInterrupt):
            with self.agent.run("t", state=lambda: {"now": 2}) as run:
                run.save({"now": 1})
                raise KeyboardInterrupt()
        self.assertEqual(self.status("t"), "interrupted")
        self.assertEqual(self.agent.restore(run="t").state, {"now": 2})
        self.daemon.sound(self)

    def test_an_exception_after_an_operation_is_over(self) -> None:
        """The agent began with the state before an operation, which retention removes when a newer state is put aside."""
        with self.assertRaises(KeyError):
            with self.agent.run("r") as run:
                with run.operation("pay", state={"i": 1}):
                    pass
                raise KeyError("lost")
        state = {"i": 1}
        with self.assertRaises(KeyError):
            with self.agent.run("r", state=lambda: state) as run:
                self.assertEqual(run.state, {"i": 1})
                state["half"] = 1
                raise KeyError("lost")
        with self.agent.run("r") as run:
            self.assertEqual(run.state, {"i": 1})
        self.daemon.sound(self)

    def test_an_exception_whose_state_cannot_be_saved(self) -> None:
        """The run ends all the same, and the exception is what comes out."""
        self.agent.set_policy(schema={"properties": {"i": {"type": "integer"}}})
        state: dict[str, Any] = {"i": 1}
        with self.quiet() as log, self.assertRaises(ckptsidecar.SchemaMismatch):
            with self.agent.run("refused", on_error="failed") as run:
                run.save(state)
                state["i"] = "one"
                run.save(state)
        self.assertIn("could not be saved", log.output[0])
        with self.quiet(), self.assertRaises(KeyError):
            with self.agent.run("raises", state=lambda: 1 / 0, on_error="failed") as run:
                run.save({"i": 1})
                raise KeyError("lost")
        with self.quiet(), self.assertRaises(KeyboardInterrupt):
            with self.agent.run("interrupt", state=lambda: 1 / 0) as run:
                raise KeyboardInterrupt()
        self.assertEqual([self.status(run) for run in ("refused", "raises", "interrupt")], ["failed", "failed", "interrupted"])

    def test_an_exception_while_the_daemon_is_away(self) -> None:
        """The state at the exception does not come into the spool: nobody could go back from it."""
        agent = self.sidecar(deadline=1.0).agent("a")
        state = {"i": 1}
        with self.quiet(), self.assertRaises(KeyError):
            with agent.run("r", heartbeat=0) as run:
                run.save(state)
                state["i"] = 2
                self.daemon.stop()
                raise KeyError("lost")
        self.start()
        self.sidecar().replay()
        self.assertEqual(self.status("r"), "interrupted")
        with self.sidecar().agent("a").run("r") as run:
            self.assertEqual((run.plan.verdict, run.state), ("resume", {"i": 1}))

    @unittest.skipUnless(hasattr(signal, "setitimer"), "there are no timers that interrupt")
    def test_an_interrupt_waits_for_the_write_in_hand(self) -> None:
        """What is saved after an interrupt must not be overtaken by the save that was interrupted."""
        answered = threading.Event()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                time.sleep(0.4)
                answered.set()
                connection.sendall(b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n")

        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.folder + "/slow")
            listener.listen()
            threading.Thread(target=serve).start()
            before = signal.signal(signal.SIGALRM, signal.default_int_handler)
            try:
                with ckptsidecar.Sidecar(self.folder + "/slow") as slow, self.assertRaises(KeyboardInterrupt):
                    signal.setitimer(signal.ITIMER_REAL, 0.1)
                    slow.agent("a").save(1)
                self.assertTrue(answered.is_set())
            finally:
                signal.signal(signal.SIGALRM, before)

    def test_ending_by_its_own_word(self) -> None:
        with self.agent.run("r") as run:
            run.save({"i": 1})
            run.end("awaiting_continuation", continuation_prompt="go on with the parser", state={"i": 2}, result={"x": 1})
        self.assertEqual(self.status("r"), "awaiting_continuation")
        with self.agent.run("r") as run:
            self.assertEqual((run.state, run.plan.continuation_prompt), ({"i": 2}, "go on with the parser"))
            self.assertGreaterEqual(run.plan.accumulated_ms, 0)

    def test_a_fork(self) -> None:
        with self.agent.run("main") as run:
            first = run.save({"i": 1})
            run.save({"i": 2})
        for _ in range(2):
            with self.agent.run("branch", fork_from=first.id) as run:
                self.assertIn(run.state, ({"i": 1}, {"i": "branch"}))
                run.save({"i": "branch"})
                run.end("suspended")
        self.assertEqual([c.parent for c in self.agent.list(run="branch")][-1], first.id)

    def test_an_exception_before_the_first_save_of_a_fork(self) -> None:
        """The run goes on from the checkpoint that it was forked from, not from the middle of things."""
        first = self.agent.save({"i": 1}, program={"source": "a;b", "executed": 2})
        state: dict[str, Any] = {}
        with self.assertRaises(KeyError):
            with self.agent.run("branch", fork_from=first.id, state=lambda: state) as run:
                state = {**run.state, "half": True}
                raise KeyError("lost")
        self.assertEqual(list(self.agent.list(run="branch")), [])
        with self.agent.run("branch") as run:
            self.assertEqual((run.state, run.plan.program), ({"i": 1}, {"executed": 2, "remaining": "b"}))


PROGRAM = """
import json, sys, time
import ckptsidecar
folder, how = sys.argv[1:]
with ckptsidecar.Sidecar(folder + "/s").agent("term").run("r", grace=1.0) as run:
    state = run.state or {"i": 0}
    print("ready", flush=True)
    if how == "loop":
        while True:
            state["half"] = True
            time.sleep(0.01)
            state["i"] += 1
            del state["half"]
            run.save(state)
    if how == "step":
        run.save(state)
        run.step("long")(lambda: time.sleep(0.7) or "finished")
        run.step("next")(lambda: print("too much", flush=True))
    if how == "hang":
        run.save(state)
        run.step("hangs")(time.sleep, 60)
"""


class Stopping(World):
    def program(self, how: str) -> subprocess.Popen[str]:
        env = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python/src")}
        made = subprocess.Popen([sys.executable, "-c", PROGRAM, self.folder, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        self.addCleanup(made.stdout.close)  # type: ignore[union-attr]
        self.addCleanup(made.stderr.close)  # type: ignore[union-attr]
        assert made.stdout is not None
        self.assertEqual(made.stdout.readline(), "ready\n")
        time.sleep(0.3)
        made.send_signal(signal.SIGTERM)
        return made

    def test_sigterm(self) -> None:
        """L8: it finishes the state, saves and ends as interrupted."""
        self.start()
        program = self.program("loop")
        self.assertEqual(program.wait(20), 143)
        self.assertEqual(self.daemon.rows("SELECT status FROM audit_runs"), [("interrupted",)])
        state = self.sidecar().agent("term").restore(run="r").state
        self.assertGreater(state["i"], 0)
        self.assertNotIn("half", state)
        self.assertEqual(list(self.sidecar().agent("term").list(kind="recovery")), [])

    def test_sigterm_in_a_step(self) -> None:
        self.start()
        program = self.program("step")
        self.assertEqual(program.wait(20), 143)
        assert program.stdout is not None
        self.assertEqual(program.stdout.read(), "")
        self.assertEqual(self.daemon.rows("SELECT key, status, result FROM audit_steps"), [("long", "succeeded", '"finished"')])
        self.assertEqual(self.daemon.rows("SELECT status FROM audit_runs"), [("interrupted",)])

    def test_sigterm_that_cannot_wait(self) -> None:
        self.start()
        began = time.monotonic()
        program = self.program("hang")
        self.assertEqual(program.wait(20), 143)
        self.assertLess(time.monotonic() - began, 15)
        self.assertEqual(self.daemon.rows("SELECT key, status FROM audit_steps"), [("hangs", "interrupted")])
        self.assertEqual(self.daemon.rows("SELECT status FROM audit_runs"), [("interrupted",)])

    def test_a_handler_of_the_programs_own_stays(self) -> None:
        self.start()
        got = []
        before = signal.signal(signal.SIGTERM, lambda *_: got.append(1))
        try:
            with self.assertRaises(ckptsidecar.Terminated), self.sidecar().agent("a").run() as run:
                os.kill(os.getpid(), signal.SIGTERM)
                run.save(1)
                self.assertEqual(got, [1])
                run.stop()
                run.save(2)
        finally:
            signal.signal(signal.SIGTERM, before)
        self.assertEqual(self.sidecar().agent("a").restore().state, 2)

    def test_exec(self) -> None:
        """Under a supervisor the plan is handed over, and nobody is fenced."""
        self.start()
        script = os.path.join(self.folder, "agent.py")
        with open(script, "w") as file:
            file.write(
                "import os, sys, ckptsidecar\n"
                "with ckptsidecar.agent('sup').run() as run:\n"
                "    state = run.state or {'i': 0, 'seen': (1,)}\n"
                "    assert run._session.supervised and state['seen'] == (1,)\n"
                "    for i in range(state['i'], 6):\n"
                "        run.step(f's{i}')(lambda: i)\n"
                "        state['i'] = i + 1\n"
                "        run.save(state)\n"
                "        if i % 2 and run.plan.attempt <= 3:\n"
                "            os.kill(os.getpid(), 9)\n"
            )
        env = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python/src")}
        command = [binary(), "--socket", self.daemon.socket, "exec", "--agent", "sup", "--run", "r", "--backoff", "10ms", "--", sys.executable, script]
        out = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        self.assertEqual(out.returncode, 0, out.stderr)
        self.assertEqual(self.daemon.rows("SELECT status, attempt FROM audit_runs"), [("completed", 4)])
        self.assertEqual(self.daemon.rows("SELECT key, attempt FROM audit_steps ORDER BY key"), [(f"s{i}", 1) for i in range(6)])
        self.daemon.sound(self)


    def test_exec_after_an_exception(self) -> None:
        """The supervisor starts an agent again that has failed. The agent may run under another program, and says what its run is for."""
        self.start()
        script = os.path.join(self.folder, "agent.py")
        with open(script, "w") as file:
            file.write(
                "import ckptsidecar, subprocess, sys\n"
                "if len(sys.argv) > 1:\n"
                "    ckptsidecar.agent('sup').run().begin()\n"
                "    sys.exit()\n"
                "with ckptsidecar.agent('sup').run(goal='count', progress_timeout=3600) as run:\n"
                "    second = subprocess.run([sys.executable, __file__, 'second owner'], capture_output=True, text=True)\n"
                "    assert 'ckptsidecar.errors.Unsafe' in second.stderr, second.stderr\n"
                "    tries = (run.state or 0) + 1\n"
                "    run.save(tries)\n"
                "    assert tries == 3, 'again'\n"
            )
        env = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python/src")}
        program = ["sh", "-c", '"$0" "$@"; exit $?', sys.executable, script]
        command = [binary(), "--socket", self.daemon.socket, "exec", "--agent", "sup", "--heartbeat-timeout", "7m", "--backoff", "10ms", "--", *program]
        out = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        self.assertEqual(out.returncode, 0, out.stderr)
        columns = "status, attempt, epoch, goal, heartbeat_timeout_ms, progress_timeout_ms"
        self.assertEqual(self.daemon.rows(f"SELECT {columns} FROM runs"), [("completed", 3, 3, "count", 420_000, 3_600_000)])
        self.daemon.sound(self)

    def test_what_names_no_run_under_exec(self) -> None:
        """It is about the run of exec, also after the first run of the process has ended."""
        self.start()
        self.sidecar().agent("sup").save("of main")
        script = os.path.join(self.folder, "agent.py")
        with open(script, "w") as file:
            file.write(
                "import ckptsidecar, sys\n"
                "agent = ckptsidecar.agent('sup')\n"
                "for _ in range(2):\n"
                "    with agent.run() as run:\n"
                "        print(run.name, run.plan.attempt, run.plan.verdict, agent.save(run.plan.attempt).run, agent.drift().run)\n"
                "        restored = agent.restore()\n"
                "        with agent.autosave(lambda: 'auto') as autosave:\n"
                "            pass\n"
                "        print(restored.run, restored.state, agent.restore(sys.argv[1]).state, agent.latest(run='r').state)\n"
                "print(agent.clear()['run'])\n"
                "print(ckptsidecar.agent('other').save(1).run)\n"
            )
        env = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python/src")}
        [main] = self.sidecar().agent("sup").list()
        for before in ([], ["sh", "-c", '"$0" "$@"; exit $?']):
            command = [binary(), "--socket", self.daemon.socket, "exec", "--agent", "sup", "--run", "r", "--", *before, sys.executable, script, main.id]
            out = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
            self.assertEqual(out.returncode, 0, out.stderr)
            first = 3 if before else 1
            said = [line for n in (first, first + 1) for line in (f"r {n} fresh r r", f"r {n} of main auto")]
            self.assertEqual(out.stdout.splitlines(), [*said, "r", "main"])
        self.daemon.sound(self)

    def test_a_fork_under_exec(self) -> None:
        """A new run begins with the checkpoint that the agent names. Once it has begun, it goes on from its own checkpoints."""
        self.start()
        base = self.sidecar().agent("sup").save({"n": 41}, run="trunk", program={"source": "a;b", "executed": 2})
        script = os.path.join(self.folder, "agent.py")
        with open(script, "w") as file:
            file.write(
                "import ckptsidecar, sys\n"
                "with ckptsidecar.agent('sup').run(fork_from=sys.argv[1]) as run:\n"
                "    program = run.plan.program and run.plan.program['remaining']\n"
                "    print(run.plan.claimed, run.plan.attempt, run.plan.epoch, run.epoch, program, run.state, flush=True)\n"
                "    assert run.plan.attempt > 1, 'again before the first save'\n"
                "    run.save({'n': run.state['n'] + 1})\n"
                "    assert run.plan.attempt > 2, 'again after it'\n"
            )
        env = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python/src")}
        columns = "status, attempt, forked_from, heartbeat_timeout_ms"
        for run, before in (("direct", []), ("shell", ["sh", "-c", '"$0" "$@"; exit $?'])):
            command = [binary(), "--socket", self.daemon.socket, "exec", "--agent", "sup", "--run", run, "--heartbeat-timeout", "7m"]
            command += ["--backoff", "10ms", "--", *before, sys.executable, script, base.id]
            out = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
            self.assertEqual(out.returncode, 0, out.stderr)
            said = ["True 1 1 1 b {'n': 41}", "True 2 2 2 b {'n': 41}", "True 3 3 3 None {'n': 42}"]
            self.assertEqual(out.stdout.splitlines(), said, run)
            self.assertEqual(self.daemon.rows(f"SELECT {columns} FROM runs WHERE name = ?", run), [("completed", 3, base.id, 420_000)])
        self.daemon.sound(self)

    def test_a_fork_under_exec_that_cannot_be(self) -> None:
        """It does not begin with nothing instead."""
        self.start()
        script = os.path.join(self.folder, "agent.py")
        with open(script, "w") as file:
            file.write("import ckptsidecar\nwith ckptsidecar.agent('sup').run(fork_from=ckptsidecar._ids.new_id()):\n    print('begun')\n")
        env = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python/src")}
        command = [binary(), "--socket", self.daemon.socket, "exec", "--agent", "sup", "--restart", "never", "--", sys.executable, script]
        out = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        self.assertEqual((out.returncode, out.stdout), (1, ""), out.stderr)
        self.assertIn("ckptsidecar.errors.NotFound", out.stderr)
        self.assertEqual(self.daemon.rows("SELECT status FROM audit_runs"), [("interrupted",)])


class Automatic(World):
    def test_autosave(self) -> None:
        """D10, T5: a routine one every so often, and a forced one after a while; the agent's code is not changed."""
        self.start()
        agent = self.sidecar().agent("auto")
        agent.set_policy(routine_keep=0)
        state = {"i": 0}
        with agent.autosave(lambda: dict(state), every=0.1, refresh_after=3.0) as autosave:
            self.assertTrue(until(lambda: autosave.saves == 1))
            time.sleep(0.5)
            self.assertEqual(autosave.saves, 1)  # nothing changed
            state["i"] = 1
            self.assertTrue(until(lambda: autosave.saves == 2))
            self.assertTrue(until(lambda: autosave.saves == 3))  # refreshed
            state["i"] = 2
        states = [agent.get(c.id).state for c in agent.list()]
        self.assertEqual((states[0], states[-1]), ({"i": 2}, {"i": 0}))
        self.assertEqual({c.labels["autosave"] for c in agent.list()}, {"true"})

    def test_in_a_run(self) -> None:
        self.start()
        agent = self.sidecar().agent("auto")
        with agent.run("r") as run:
            run.autosave(lambda: {"t": 1}, every=0.05)
            self.assertTrue(until(lambda: agent.latest(run="r")))
        self.assertEqual(self.daemon.rows("SELECT DISTINCT run FROM audit_checkpoints"), [("r",)])

    def test_trouble_is_told(self) -> None:
        self.start()
        agent = self.sidecar().agent("auto")

        def state() -> Any:
            raise ValueError("no state")

        with self.quiet() as log:
            autosave = agent.autosave(state, every=0.02)
            self.assertTrue(until(lambda: autosave.error))
            autosave.stop()
        self.assertTrue(any("no state" in line for line in log.output))
        with self.assertRaises(ValueError):
            agent.autosave(state, every=0)




class Drifting(World):
    """What the daemon says of a run's drift reaches the agent that runs."""

    def setUp(self) -> None:
        super().setUp()
        self.start()

    def test_the_loop_that_stops_when_it_drifts(self) -> None:
        """The next start goes on from the newest clean checkpoint, not from what was saved while it ran in circles."""
        agent = self.sidecar().agent("d")
        state: dict[str, Any] = {"turns": 0}
        with self.assertRaises(RuntimeError) as stopped, agent.run("r", heartbeat=0) as run:
            while state["turns"] < 50:
                run.step(f"search{state['turns']}", name="search", args={"q": "the same"})(lambda: "nothing new")
                state["turns"] += 1
                run.save(state)
                if run.drift().critical:
                    raise RuntimeError(run.drift().advice)
        self.assertLess(state["turns"], 50)
        self.assertTrue(run.drift())
        self.assertTrue(str(stopped.exception))
        with agent.run("r") as again:
            assert again.plan.checkpoint is not None
            self.assertEqual((again.plan.verdict, again.plan.checkpoint.id), ("repair", run.drift().clean))
            self.assertLess(again.state["turns"], state["turns"])

    def test_ten_equal_calls_in_each_form_of_the_documents(self) -> None:
        def search(q: str) -> str:
            return "nothing"

        def decorated(run: ckptsidecar.Run) -> Any:
            call = run.step(search)
            return lambda k: call("x")

        known, unknown = ("critical", {"repeat"}), ("warn", {"repeated_result"})
        forms: dict[str, tuple[Any, tuple[str, set[str]]]] = {
            "key": (lambda run: lambda k: run.step(f"s{k}")(search, "x"), known),
            "key-and-args": (lambda run: lambda k: run.step(f"search-{k}", args={"q": "x"})(lambda: search("x")), known),
            "key-name-and-args": (lambda run: lambda k: run.step(f"c{k}", name="search", args=["x"])(lambda: "nothing"), known),
            "decorator": (decorated, known),
            "key-alone": (lambda run: lambda k: run.step(f"search-{k}")(lambda: search("x")), unknown),
            "key-and-name": (lambda run: lambda k: run.step(f"c{k}", name="search")(lambda: search("x")), unknown),
        }
        for form, (begin, (verdict, rules)) in forms.items():
            agent = self.sidecar().agent(form)
            with self.subTest(form), agent.run(heartbeat=0) as run:
                call = begin(run)
                for k in range(10):
                    call(k)
                self.assertEqual(run.drift().verdict, verdict)
                self.assertEqual({f["rule"] for f in agent.drift().findings}, rules)

    def test_a_step_notes_the_arguments_of_its_call(self) -> None:
        agent = self.sidecar().agent("d")
        with agent.run("r", heartbeat=0) as run:
            run.step("a-1")(functools.partial(lambda q, limit=3: q, "x"), limit=5)
            run.step("b-1")(len, "y" * 100_000)
            run.step("c-2026-11-28")(lambda: 1)
        said = subprocess.check_output([binary(), "steps", "d", "--run", "r", "--json", "--socket", self.daemon.socket], text=True)
        steps = json.loads(said)["steps"]
        self.assertEqual([s["name"] for s in steps], ["a", "len", "c"])
        self.assertEqual(steps[0]["args"], {"q": "x", "limit": 5})
        self.assertEqual((steps[1]["args"]["cut"], steps[2]["args"]), (True, None))

    def test_an_agent_that_is_not_known_has_no_drift(self) -> None:
        drift = self.sidecar().agent("nobody").drift()
        self.assertIsInstance(drift, ckptsidecar.Drift)
        self.assertFalse(drift)
        self.assertEqual(drift.verdict, "none")

    def test_steps_that_say_too_little_are_told_so(self) -> None:
        agent = self.sidecar().agent("d")
        with agent.run("r", heartbeat=0) as run:
            for k in range(20):
                run.step(f"search-{k}")(lambda k=k: f"page {k}")
            self.assertEqual(run.drift().verdict, "info")
            self.assertIn("give steps a name and arguments", run.drift().advice or "")
        self.assertFalse(agent.drift())

    def test_callbacks_reports_and_dismissals(self) -> None:
        told: list[ckptsidecar.Drift] = []
        agent = self.sidecar().agent("d")
        with agent.run("r", heartbeat=0.05, on_drift=told.append) as run:
            clean = run.save({"n": 1})
            self.assertFalse(run.drift())
            found = run.report("wrong-file", "not its file", severity="critical", evidence={"file": "x"})
            self.assertTrue(run.drift().critical)
            self.assertEqual(run.drift().clean, clean.id)
            self.assertEqual([d.verdict for d in told], ["critical"])
            self.assertEqual(told[0].findings[0]["rule"], "wrong-file")
            answer = run.dismiss(found["id"], reason="it was its own")
            self.assertEqual(answer["dismissed_by"], f"uid:{os.getuid()}")
            self.assertFalse(run.drift())
            heard = threading.Event()
            run.on_drift(lambda drift: heard.set() if drift.critical else None)
            self.sidecar().agent("d").sidecar.request(  # somebody else reports
                "POST", "/v1/agents/d/drift/findings",
                json_body={"run": "r", "rule": "seen", "severity": "critical", "message": "m"},
            )  # fmt: skip
            self.assertTrue(heard.wait(30), "the heartbeat brings what others have found")
        self.daemon.sound(self)

    def test_asyncio_hears_in_the_loop(self) -> None:
        async def main() -> tuple[list[str], bool]:
            told: list[str] = []
            heard = asyncio.Event()

            async def on_drift(drift: ckptsidecar.Drift) -> None:
                told.append(drift.verdict)
                heard.set()

            async with ckptsidecar.AsyncSidecar(self.daemon.socket) as sidecar:
                async with sidecar.agent("d").run("a", heartbeat=0, on_drift=on_drift) as run:
                    await run.save({"n": 1})
                    found = await run.report("mine", "m", severity="warn")
                    await heard.wait()
                    warned = run.drift().warn
                    await run.dismiss(found["id"])
                    return told, warned and not run.drift()

        self.assertEqual(asyncio.run(main()), (["warn"], True))


class Tidying(World):
    def setUp(self) -> None:
        super().setUp()
        self.start()

    def test_fork_clear_and_delete(self) -> None:
        agent = self.sidecar().agent("t")
        with agent.run("r", heartbeat=0) as run:
            saved = run.save({"n": 1, "plan": ["a"]})
        forked = agent.fork(saved.id, {"n": 1, "plan": ["b"]}, run="other")
        self.assertEqual((forked.parent, forked.seq, forked.metadata["fork"]["run"]), (saved.id, 1, "r"))
        with self.assertRaises(ckptsidecar.Conflict):
            agent.fork(saved.id, {}, run="other")
        self.assertIsNone(agent.fork(saved.id, {"n": 2}, run="r", agent="u").parent)
        with agent.run("other", heartbeat=0) as run:
            self.assertEqual(run.state["plan"], ["b"])
            with self.assertRaises(ckptsidecar.Conflict):
                agent.delete_run("other")
        self.assertEqual(agent.clear("other")["removed"], 1)
        self.assertEqual(agent.delete_run("other")["run"], "other")
        self.assertEqual([r["run"] for r in agent.runs()], ["r"])
        self.daemon.sound(self)
