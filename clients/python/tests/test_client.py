"""Saving, restoring and looking, over a real daemon."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time

from .harness import ROOT, World, binary, child, ckptsidecar, report, until, wait


class Client(World):
    def test_three_lines(self) -> None:
        self.start()
        os.environ["CKPTSIDECAR_SOCKET"] = self.daemon.socket
        out = subprocess.run(
            [sys.executable, "-c", 'import ckptsidecar\na = ckptsidecar.agent("fixer")\na.save({"step": 1})\nprint(a.restore().state)'],
            env={**os.environ, "PYTHONPATH": str(ROOT / "clients/python/src")}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        self.assertEqual((out.stdout, out.stderr), ("{'step': 1}\n", ""))

    def test_everything_of_a_save(self) -> None:
        self.start()
        agent = self.sidecar().agent("a.b-c_1")
        first = agent.save({"x": 1}, run="night:1@2+3")
        saved = agent.save(
            [1, "ü"], kind="recovery", run="night:1@2+3", parent=first.id, step="st/ep ü%", labels={"branch": "main=x&y", "a/b": "ü"},
            metadata={"tokens": 812, "text": "ü\n😀"}, program={"source": "ä = 1\nb = 2\n", "executed": 7}, content_type="application/json; v=1",
        )  # fmt: skip
        read = agent.get(saved.id)
        for one in (saved, read):
            self.assertEqual((one.agent, one.run, one.kind, one.seq, one.parent), ("a.b-c_1", "night:1@2+3", "recovery", 2, first.id))
            self.assertEqual((one.step, one.labels), ("st/ep ü%", {"branch": "main=x&y", "a/b": "ü"}))
            self.assertEqual(one.metadata, {"tokens": 812, "text": "ü\n😀"})
            self.assertEqual((one.program, one.content_type), ({"source": "ä = 1\nb = 2\n", "executed": 7}, "application/json; v=1"))
        self.assertEqual((read.state, read.state_bytes), ([1, "ü"], '[1,"ü"]'.encode()))
        self.assertEqual(saved.size, len('[1,"ü"]'.encode()))
        self.assertEqual((saved.spooled, saved.lost, saved.replayed, saved.pruned), (False, False, False, []))

    def test_bytes(self) -> None:
        self.start()
        agent = self.sidecar().agent("bytes")
        for state in (b"", b"\x00\xff\n", os.urandom(300_000)):
            saved = agent.save(state, content_type="image/x-odd", allow_empty=True)
            latest = agent.latest()
            assert latest is not None
            self.assertEqual((latest.id, latest.state, latest.content_type), (saved.id, state, "image/x-odd"))
        raw = agent.save(b'{ "spaced" :1.50 }', content_type="application/json")
        self.assertEqual(agent.get(raw.id).state_bytes, b'{ "spaced" :1.50 }')
        with self.assertRaises(ckptsidecar.Invalid):
            agent.save(b"{not json", content_type="application/json")
        with self.assertRaises(ValueError):
            _ = agent.get(raw.id, state=False).state

    def test_large_states(self) -> None:
        self.start()
        agent = self.sidecar().agent("large")
        big = os.urandom(20 << 20)
        agent.save(big)
        self.assertEqual(agent.restore().state, big)
        with self.assertRaises(ckptsidecar.TooLarge):
            agent.save(bytes(70 << 20))
        self.assertEqual(agent.restore().state, big)
        self.assertEqual(self.waiting(), [])

    def test_an_empty_state_is_refused_unless_asked_for(self) -> None:
        """Three empty states would push out every good one."""
        self.start()
        agent = self.sidecar().agent("empty")
        agent.save({"n": 1})
        with self.assertRaisesRegex(ValueError, "allow_empty=True"):
            agent.save(b"")
        with agent.run("r") as run:
            with self.assertRaisesRegex(ValueError, "the state is empty"):
                run.save(b"", content_type="text/plain")
            run.save(b"", allow_empty=True)
        self.assertEqual(agent.restore(run="main").state, {"n": 1})
        self.assertEqual(agent.save(b"", allow_empty=True).size, 0)
        self.assertEqual(agent.restore(run="main").state, b"")

    def test_finding(self) -> None:
        self.start()
        agent = self.sidecar().agent("finding")
        self.assertIsNone(agent.latest())
        with self.assertRaises(ckptsidecar.NotFound):
            agent.restore()
        agent.set_policy(routine_keep=0)
        saves = [agent.save({"n": n}, labels={"even": str(n % 2 == 0).lower()}, run=f"r{n % 2}") for n in range(120)]
        self.assertEqual([c.id for c in agent.list()], [s.id for s in reversed(saves)])
        self.assertEqual([c.id for c in agent.list(run="r1", limit=2)], [saves[119].id, saves[117].id])
        self.assertEqual(len(list(agent.list(labels={"even": "true"}))), 60)
        self.assertEqual(len(list(agent.list(kind="recovery"))), 0)
        latest = agent.latest(run="r0", state=False)
        assert latest is not None
        self.assertEqual(latest.id, saves[118].id)
        restored = agent.restore(saves[3].id, run="r1", reason="a test")
        self.assertEqual(restored.state, {"n": 3})
        self.assertEqual(agent.save({"n": "after"}, run="r1").parent, saves[3].id)
        diff = agent.diff(saves[0].id, saves[1].id)
        self.assertEqual(diff.patch, [{"op": "replace", "path": "/n", "value": 1}])
        self.assertEqual(diff.summary["changed"][0]["path"], "/n")

    def test_changing_and_removing(self) -> None:
        self.start()
        sidecar = self.sidecar()
        agent = sidecar.agent("changes")
        saved = agent.save(1)
        changed = sidecar.change(saved.id, labels={"good": "yes"}, pinned=True)
        self.assertEqual((changed.labels, changed.pinned), ({"good": "yes"}, True))
        with self.assertRaises(ckptsidecar.Conflict):
            sidecar.delete(saved.id)
        sidecar.change(saved.id, pinned=False)
        agent.save(2)
        sidecar.delete(saved.id)
        with self.assertRaises(ckptsidecar.NotFound):
            sidecar.checkpoint(saved.id)
        self.assertEqual(agent.set_policy(routine_keep=7)["routine_keep"], 7)
        self.assertEqual(agent.set_policy(secrets="off")["routine_keep"], 7)
        self.assertEqual(agent.policy_layers()["agent"], {"routine_keep": 7, "secrets": "off"})
        sidecar.set_policy_for_all(routine_keep=9, recovery_keep="2d")
        self.assertEqual(sidecar.set_policy_for_all(routine_keep=8)["agents"], 0)
        self.assertEqual(agent.set_policy(secrets=None)["recovery_keep"], "2d")
        self.assertEqual(agent.set_policy(routine_keep=None)["routine_keep"], 8)
        self.assertEqual(agent.policy_layers()["from"]["routine_keep"], "owner")
        self.assertEqual(sidecar.set_policy_for_all(routine_keep=None, recovery_keep=None)["owner"], {})
        self.assertEqual([a["agent"] for a in sidecar.agents()], ["changes"])
        with agent.run("found", workflow="w", goal="Deploy it", labels={"part": "x"}):
            pass
        found = list(sidecar.runs(workflow="w", goal="deplo*", labels={"part": "x"}, sort="started"))
        self.assertEqual([r["run"] for r in found], ["found"])
        self.assertEqual(list(agent.runs(goal="other")), [])
        with agent.run("found", goal="Deploy it again") as run:
            run.save({"n": 2})
        self.assertEqual([r["run"] for r in agent.runs(goal="deploy")], ["found"])
        lives = {r["run"]: (r["life"], r["goal"]) for r in agent.runs(lives=True, goal="deploy")}
        self.assertEqual(lives, {"found": (2, "Deploy it again"), "found~1": (1, "Deploy it")})
        self.assertEqual(agent.delete_run("found~1")["run"], "found~1")
        with self.assertRaises(ckptsidecar.Invalid):
            agent.delete_run("found~0")
        self.assertEqual(agent.erase()["checkpoints"], 2)
        self.assertEqual(list(sidecar.agents()), [])
        self.assertEqual(sidecar.status()["state"], "ready")
        self.assertEqual(sidecar.version()["name"], "ckptsidecar")
        self.assertEqual(sidecar.request("GET", "/v1/audit", query={"limit": 1})["audit"][0]["n"], 1)

    def test_errors_have_their_words(self) -> None:
        self.start()
        sidecar = self.sidecar()
        agent = sidecar.agent("errors")
        for call in (
            lambda: sidecar.agent("bad/name"), lambda: agent.save(1, run="../x"), lambda: agent.save(1, kind="hourly"),
            lambda: agent.get("nonsense"), lambda: agent.save(1, metadata={"x": float("nan")}), lambda: agent.save(1, id="X"),
            lambda: agent.save(1, labels={"a b": "c"}), lambda: agent.save(b"x", content_type="a\r\nX-Evil: 1"),
        ):  # fmt: skip
            with self.assertRaises(ckptsidecar.Invalid) as caught:
                call()
            self.assertEqual(caught.exception.outcome, "not_saved")
            self.assertFalse(caught.exception.retryable)
        saved = agent.save(1)
        self.assertTrue(agent.save(1, id=saved.id).replayed)
        with self.assertRaises(ckptsidecar.IdempotencyMismatch):
            agent.save(2, id=saved.id)
        self.assertEqual(self.waiting(), [])

    def test_an_owner_for_administrators(self) -> None:
        if os.geteuid() != 0:
            self.skipTest("only root may name another owner")
        self.start()
        self.sidecar().agent("mine").save({"a": 1})
        self.assertEqual(self.sidecar(owner="uid:0").agent("mine").restore().state, {"a": 1})
        with self.assertRaises(ckptsidecar.NotFound):
            self.sidecar(owner="uid:4242").agent("mine").restore()
        with self.sidecar(owner="uid:4242").agent("theirs").run() as run:
            run.progress(0.5)
        self.assertEqual(self.daemon.rows("SELECT owner, progress FROM audit_runs WHERE agent = 'theirs'"), [("uid:4242", 0.5)])


class Connecting(World):
    def test_the_endpoint_is_found(self) -> None:
        runtime = os.path.join(self.folder, "run")
        os.mkdir(runtime)
        os.environ["XDG_RUNTIME_DIR"] = runtime
        self.daemon.socket = os.path.join(runtime, "ckptsidecar.sock")
        self.start()
        with ckptsidecar.Sidecar() as sidecar:
            sidecar.agent("a").save(1)
            self.assertEqual(sidecar.endpoint, self.daemon.socket)
        os.environ["CKPTSIDECAR_SOCKET"] = self.daemon.socket
        os.environ["XDG_RUNTIME_DIR"] = "relative"
        with ckptsidecar.Sidecar() as sidecar:
            self.assertEqual(sidecar.agent("a").restore().state, 1)

    def test_an_endpoint_that_was_named_never_falls_back(self) -> None:
        """Who names a staging daemon that is away does not write into another one."""
        os.environ["XDG_RUNTIME_DIR"] = self.folder
        self.daemon.socket = os.path.join(self.folder, "ckptsidecar.sock")
        self.start()
        staging = os.path.join(self.folder, "staging")
        for told, name in ((staging, "the argument socket"), (None, "CKPTSIDECAR_SOCKET")):
            os.environ["CKPTSIDECAR_SOCKET"] = "" if told else staging
            for autostart in (False, True):
                os.environ["PATH"] = self.folder  # nothing can be started
                with self.subTest(name, autostart=autostart), self.assertRaises(ckptsidecar.NoDaemon) as caught:
                    ckptsidecar.Sidecar(told, deadline=0, fail_open=False, autostart=autostart).agent("a").save(1)
                if not autostart:
                    self.assertIn(f"{staging} (named by {name})", str(caught.exception))
        self.assertEqual(self.daemon.rows("SELECT * FROM audit_checkpoints"), [])

    def test_a_user_with_a_database_does_not_get_the_systems_daemon_without_a_word(self) -> None:
        from ckptsidecar._stream import dial_first

        self.start()
        state = os.path.join(self.folder, "state")
        os.environ["XDG_STATE_HOME"] = state
        paths = [os.path.join(self.folder, "own"), self.daemon.socket]
        dial_first(paths, 10.0)[0].close()
        database = os.path.join(state, "ckptsidecar", "ckpt.db")
        os.makedirs(os.path.dirname(database))
        with open(database, "wb"):
            pass
        with self.assertRaisesRegex(ckptsidecar.NoDaemon, f"your own database {database} exists.*CKPTSIDECAR_SOCKET"):
            dial_first(paths, 10.0)
        dial_first([self.daemon.socket], 10.0)[0].close()

    def test_the_runtime_folder_of_a_user_is_found_without_its_variable(self) -> None:
        from ckptsidecar import _endpoint

        self.assertEqual(_endpoint.runtime_folder(self.folder, os.getuid()), "")
        own, others = (os.path.join(self.folder, str(uid)) for uid in (os.getuid(), 4242))
        os.mkdir(own)
        os.mkdir(others)
        self.assertEqual(_endpoint.runtime_folder(self.folder, os.getuid()), own)
        self.assertEqual(_endpoint.runtime_folder(self.folder, 4242), "")  # it is another user's
        self.assertEqual(_endpoint.runtime_folder("", os.getuid()), "")

    def test_no_daemon_says_what_to_do(self) -> None:
        with self.assertRaises(ckptsidecar.NoDaemon) as caught:
            ckptsidecar.Sidecar(deadline=0).agent("a").restore()
        text = str(caught.exception)
        self.assertIn(os.path.join(self.folder, "ckptsidecar", "ckptsidecar.sock"), text)
        self.assertIn("/run/ckptsidecar/ckptsidecar.sock", text)
        self.assertIn("go install github.com/ckptsidecar", text)  # it is not on the PATH
        os.environ["PATH"] = os.path.dirname(self.installed()) + os.pathsep + os.environ["PATH"]
        with self.assertRaises(ckptsidecar.NoDaemon) as caught:
            ckptsidecar.Sidecar(deadline=0, fail_open=False).agent("a").save(1)
        self.assertIn('"ckptsidecar serve"', str(caught.exception))
        self.start()
        self.daemon.stop(9)
        with self.assertRaises(ckptsidecar.NoDaemon) as caught:
            self.sidecar(deadline=0).agent("a").restore()
        self.assertIn("a daemon that has ended", str(caught.exception))

    def installed(self) -> str:
        folder = os.path.join(self.folder, "bin")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "ckptsidecar")
        if not os.path.exists(path):
            shutil.copy(binary(), path)
        return path

    def test_not_allowed(self) -> None:
        if os.geteuid() != 0:
            self.skipTest("root can play another user")
        self.start()
        os.chmod(self.folder, stat.S_IRWXU | stat.S_IXOTH)

        def other() -> None:
            os.setgid(4242)
            os.setuid(4242)
            try:
                ckptsidecar.Sidecar(self.daemon.socket, deadline=0).agent("a").restore()
            except ckptsidecar.NoDaemon as error:
                assert "not allowed to connect" in str(error) and "only its owner may" in str(error), error
                return
            raise AssertionError("somebody else was let in")

        self.assertEqual(wait(child(other)), 0)

    def end_all(self, program: str) -> None:
        """Ends the daemons of a program: one that started late goes on when the one that had been faster has ended."""

        def found() -> bool:
            ended = False
            for pid in os.listdir("/proc") if os.path.isdir("/proc") else []:
                with contextlib.suppress(OSError):
                    if pid.isdigit() and os.readlink(f"/proc/{pid}/exe") == program:
                        os.kill(int(pid), signal.SIGKILL)
                        ended = True
            return ended

        until(lambda: not found())

    def test_autostart(self) -> None:
        program = self.installed()
        os.environ["PATH"] = os.path.dirname(program) + os.pathsep + os.environ["PATH"]
        self.addCleanup(self.end_all, program)

        def use(n: int) -> None:
            with ckptsidecar.Sidecar(autostart=True) as sidecar:
                sidecar.agent(f"auto{n}").save({"n": n})

        children = [child(lambda n=n: use(n)) for n in range(4)]  # type: ignore[misc]
        self.assertEqual([wait(pid) for pid in children], [0] * 4)
        with ckptsidecar.Sidecar(deadline=0) as sidecar:  # it stays when those who started it have gone
            status = sidecar.status()
            self.addCleanup(os.kill, status["pid"], 15)
            self.assertEqual([a["agent"] for a in sidecar.agents()], [f"auto{n}" for n in range(4)])
        self.assertTrue(status["database"]["path"].startswith(self.folder))

    def test_autostart_that_cannot(self) -> None:
        with self.assertRaises(ckptsidecar.NoDaemon) as caught:
            ckptsidecar.Sidecar(autostart=True, deadline=0).agent("a").restore()
        self.assertIn("not on the PATH", str(caught.exception))
        os.environ["PATH"] = os.path.dirname(self.installed()) + os.pathsep + os.environ["PATH"]
        os.environ["CKPTSIDECAR_LOG_LEVEL"] = "no such level"
        with self.assertRaises(ckptsidecar.NoDaemon) as caught:
            ckptsidecar.Sidecar(autostart=True, deadline=0).agent("a").restore()
        self.assertIn("exit code 78", str(caught.exception))
        self.assertIn("serve.log", str(caught.exception))

    def test_a_restart_is_not_noticed(self) -> None:
        self.start()
        agent = self.sidecar().agent("a")
        for n in range(6):
            agent.save({"n": n, "text": "x" * 10_000})
            self.daemon.stop()
            self.start()
        self.assertEqual(agent.restore().state["n"], 5)
        self.assertEqual(self.waiting(), [])

    def test_forks_have_connections_of_their_own(self) -> None:
        self.start()
        agent = self.sidecar().agent("forks")
        agent.set_policy(routine_keep=0)
        agent.save(0, run="parent")

        def work(n: int) -> None:
            for i in range(20):
                agent.save({"n": n, "i": i}, run=f"child{n}")

        children = [child(lambda n=n: work(n)) for n in range(3)]  # type: ignore[misc]
        for i in range(20):
            agent.save({"i": i}, run="parent")
        self.assertEqual([wait(pid) for pid in children], [0, 0, 0])
        for run in ("child0", "child1", "child2"):
            self.assertEqual([agent.get(c.id).state["i"] for c in agent.list(run=run)], list(range(19, -1, -1)))

    def test_sixteen_threads(self) -> None:
        """Show 8: one client shared by threads is safe and in order."""
        self.start()
        agent = self.sidecar().agent("threads")
        agent.set_policy(routine_keep=0)
        errors: list[BaseException] = []

        def work(n: int) -> None:
            try:
                for i in range(40):
                    agent.save({"n": n, "i": i, "pad": "x" * (20_000 if n % 2 else 10)}, run=f"t{n}")
                    agent.save({"n": n, "i": i}, run="shared")
                    if i % 10 == 0:
                        latest = agent.latest(run=f"t{n}")
                        assert latest is not None and latest.state["i"] == i
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - began
        self.assertEqual(errors, [])
        for n in range(16):
            states = [agent.get(c.id).state for c in agent.list(run=f"t{n}")]
            self.assertEqual([s["i"] for s in states], list(range(39, -1, -1)))
        rows = self.daemon.rows("SELECT state FROM audit_states WHERE run = 'shared' ORDER BY seq")
        order: dict[int, list[int]] = {}
        for (text,) in rows:
            state = json.loads(text)
            order.setdefault(state["n"], []).append(state["i"])
        self.assertEqual(order, {n: list(range(40)) for n in range(16)})
        self.daemon.sound(self)
        report(f"show 8, threads: 16 threads, 1280 saves over one connection in {took:.1f} s, each thread's in order")

    def test_turns_are_in_order(self) -> None:
        from ckptsidecar._turn import Turn

        turn, got = Turn(), []
        threads = []

        def work(n: int) -> None:
            with turn:
                got.append(n)

        with turn:
            for n in range(50):
                threads.append(threading.Thread(target=work, args=(n,)))
                threads[-1].start()
                until(lambda n=n: len(turn._waiting) == n + 1)  # type: ignore[misc]
            with self.assertRaises(RuntimeError):  # as from a signal handler
                turn.__enter__()
        for thread in threads:
            thread.join()
        self.assertEqual(got, list(range(50)))


