"""The spool as docs/SPOOL.md describes it, and what happens to it when things go wrong."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import stat
import subprocess
import threading
import time
from typing import Any
from unittest import mock

from ckptsidecar import _spool as spool_module
from ckptsidecar._ids import new_id
from ckptsidecar._lock import Lock
from ckptsidecar._replay import replay
from ckptsidecar._spool import Spool
from ckptsidecar._transport import Link

from .harness import World, binary, child, ckptsidecar, until, wait

FORM = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\.ckpt\Z")


class TheForm(World):
    def away(self, **options: Any) -> ckptsidecar.Sidecar:
        return self.sidecar(deadline=0.0, **options)

    def read(self, name: str) -> tuple[dict[str, Any], bytes]:
        with open(os.path.join(self.spool, name), "rb") as file:
            line, body = file.read().split(b"\n", 1)
        return json.loads(line), body

    def test_a_file(self) -> None:
        state = {"step": 1, "text": "ü"}
        with self.quiet():
            saved = self.away().agent("fixer").save(state, run="r1", labels={"a": "b c"}, metadata={"m": "ü"}, epoch=3)
        self.assertTrue(saved.spooled)
        [name] = self.waiting()
        self.assertTrue(FORM.match(name), name)
        self.assertEqual(name[17:53], saved.id)
        header, body = self.read(name)
        self.assertEqual(body, json.dumps(state, separators=(",", ":"), ensure_ascii=False).encode())
        self.assertEqual(header.pop("sha256"), hashlib.sha256(body).hexdigest())
        self.assertRegex(header.pop("created_at"), r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertEqual(
            header,
            {
                "version": 1, "method": "PUT", "path": f"/v1/agents/fixer/checkpoints/{saved.id}",
                "query": "kind=routine&run=r1&epoch=3&label=a%3Db+c",
                "headers": {"Content-Type": "application/json", "Ckpt-Metadata": '{"m":"\\u00fc"}'},
                "agent": "fixer", "run": "r1", "endpoint": self.daemon.socket, "size": len(body),
                "client": f"python/{ckptsidecar.__version__}",
            },
        )  # fmt: skip
        self.assertEqual(stat.S_IMODE(os.stat(self.spool).st_mode), 0o700)
        self.assertEqual(stat.S_IMODE(os.stat(os.path.join(self.spool, name)).st_mode), 0o600)
        self.assertEqual([n for n in os.listdir(self.spool) if n.endswith(".tmp")], [])

    def test_changes_are_spooled_whole(self) -> None:
        self.start()
        agent = self.sidecar(deadline=1.0, send="changes").agent("a")
        state = {"n": 0, "text": "x" * 50_000}
        agent.save(state)
        self.daemon.stop()
        state["n"] = 1
        with self.quiet():
            agent.save(state)
        header, body = self.read(self.waiting()[0])
        self.assertEqual(json.loads(body), state)
        self.assertEqual(header["headers"]["Content-Type"], "application/json")
        self.start()
        self.assertTrue(until(lambda: not self.waiting()))  # by itself, though nothing more is saved
        latest = agent.latest()
        assert latest is not None
        self.assertEqual(latest.state, state)

    def test_where_it_is(self) -> None:
        for env, want in (
            ({"CKPTSIDECAR_SPOOL": self.folder + "/mine"}, self.folder + "/mine"),
            ({"XDG_STATE_HOME": self.folder + "/st"}, self.folder + "/st/ckptsidecar/spool"),
            ({"XDG_STATE_HOME": "relative"}, self.folder + "/.local/state/ckptsidecar/spool"),
        ):
            with mock.patch.dict(os.environ, env), self.quiet():
                self.away().agent("a").save(1)
                self.assertEqual(len(os.listdir(want)), 1)

    def test_orders_only_grow(self) -> None:
        with self.quiet():
            agent = self.away().agent("a")
            with mock.patch.object(spool_module, "_clock", side_effect=[500, 400, 400, 900, 100]):
                for n in range(5):
                    agent.save(n)
        orders = [int(name[:16], 16) for name in self.waiting()]
        self.assertEqual(orders, [500, 501, 502, 900, 901])
        self.assertEqual([json.loads(self.read(name)[1]) for name in self.waiting()], list(range(5)))
        later = Spool(self.spool, 1 << 20)
        spool_module._orders.clear()
        with mock.patch.object(spool_module, "_clock", return_value=7):  # another process, by a clock set back
            name = later.write("PUT", "/v1/agents/a/checkpoints/x", "", {}, b"", ("a", "main"), "i" * 36, "")
        self.assertEqual(int(name[:16], 16), 902)

    def test_a_folder_that_others_may_write(self) -> None:
        os.makedirs(self.spool)
        os.chmod(self.spool, 0o777)
        with self.quiet(), self.assertRaises(ckptsidecar.SpoolError) as caught:
            self.away().agent("a").save(1)
        self.assertIn("chmod 700", str(caught.exception))
        os.chmod(self.spool, 0o700)
        with self.quiet():
            self.assertTrue(self.away().agent("a").save(1).spooled)

    def test_a_spool_that_cannot_be_written(self) -> None:
        """Show 3, in part: an unwritable spool is a clear error, as the user chose."""
        os.makedirs(os.path.dirname(self.spool))
        with open(self.spool, "w"):
            pass
        with self.quiet() as log, self.assertRaises(ckptsidecar.SpoolError) as caught:
            self.away().agent("a").save(1)
        self.assertIn(self.spool, str(caught.exception))
        self.assertIn("no daemon answers", str(caught.exception))
        with self.quiet() as log:
            saved = self.away(on_spool_error="drop").agent("a").save(1)
        self.assertEqual((saved.lost, saved.spooled), (True, False))
        self.assertIsInstance(saved.why, ckptsidecar.SpoolError)
        self.assertTrue(any("was dropped" in line for line in log.output))

    def test_a_full_spool(self) -> None:
        """Show 3, in part: a full spool is a clear error, as the user chose."""
        agent = self.away(spool_bytes=100_000).agent("a")
        with self.quiet():
            saves = 0
            with self.assertRaises(ckptsidecar.SpoolError) as caught:
                for saves in range(100):
                    agent.save("x" * 9_000)
        self.assertIn("is full", str(caught.exception))
        self.assertIn("spool replay", str(caught.exception))
        self.assertEqual(saves, 10)
        with self.quiet():
            self.assertTrue(self.away(spool_bytes=100_000, on_spool_error="drop").agent("a").save("x" * 9_000).lost)
            self.assertTrue(self.away(spool_bytes=1 << 20).agent("a").save("x" * 9_000).spooled)

    def test_a_disk_that_is_full(self) -> None:
        with self.quiet(), mock.patch.object(spool_module.os, "fsync", side_effect=OSError(28, "No space left on device")):
            with self.assertRaises(ckptsidecar.SpoolError) as caught:
                self.away().agent("a").save(1)
        self.assertIn("No space left", str(caught.exception))
        self.assertEqual(os.listdir(self.spool), [])  # nothing half

    def test_what_is_remembered_is_bounded(self) -> None:
        delivery = self.sidecar()._delivery
        for n in range(10_000):
            delivery.settle(("a", str(n)))
        self.assertLessEqual(len(delivery._clean), 4096)
        self.assertIn(("a", "9999"), delivery._clean)

    def test_not_fail_open(self) -> None:
        with self.assertRaises(ckptsidecar.NoDaemon):
            self.away(fail_open=False).agent("a").save(1)
        self.assertEqual(self.waiting(), [])


class Replaying(World):
    def fill(self, count: int = 3, agent: str = "a", **options: Any) -> list[str]:
        with self.quiet():
            made = self.sidecar(deadline=0.0, **options).agent(agent)
            return [made.save({"n": n}).id for n in range(count)]

    def numbers(self, agent: str = "a") -> list[int]:
        rows = self.daemon.rows("SELECT state FROM audit_states WHERE agent = ? ORDER BY seq", agent)
        return [json.loads(text)["n"] for (text,) in rows]

    def keep_all(self, agent: str = "a") -> None:
        self.sidecar().agent(agent).set_policy(routine_keep=0)

    def test_an_operation_that_was_not_begun(self) -> None:
        """A person is asked only about what may have happened."""
        self.start()
        ask = Link.ask

        def unanswered(link: Link, what: Any, until: float) -> Any:
            reply = ask(link, what, until)
            if what.path.endswith("/operations"):
                raise ckptsidecar.Busy("the wait ended", outcome="unknown")
            return reply

        with self.sidecar(deadline=0.1, fail_open=False).agent("a").run("r") as run:
            with mock.patch.object(Link, "ask", unanswered), self.assertRaises(ckptsidecar.Offline):
                run.operation("pay")(lambda: self.fail("it was done"))
        self.assertEqual(self.daemon.rows("SELECT status FROM audit_operations"), [("failed",)])

    def test_what_waited_comes_first(self) -> None:
        self.fill()
        self.start()
        self.keep_all()
        self.sidecar().agent("a").save({"n": 3})
        self.assertEqual(self.numbers(), [0, 1, 2, 3])
        self.assertEqual(self.waiting(), [])
        reasons = self.daemon.rows("SELECT reason FROM audit_log WHERE action = 'save' ORDER BY n")
        self.assertEqual([bool(r) for (r,) in reasons], [True, True, True, False])
        self.daemon.sound(self)

    def test_one_warning_while_the_daemon_is_full(self) -> None:
        self.fill(1)
        self.start()
        sidecar = self.sidecar()
        ask = Link.ask

        def full(link: Link, what: Any, until: float) -> Any:
            if "/checkpoints/" in what.path:
                raise ckptsidecar.StorageFull("the disk has no room")
            return ask(link, what, until)

        with self.quiet() as log, mock.patch.object(Link, "ask", full):
            for _ in range(3):
                self.assertEqual(sidecar.replay().left, 1)
        self.assertEqual(sum("does not accept" in line for line in log.output), 1)

    def test_what_other_agents_have_spooled_is_sent(self) -> None:
        """The process that spooled may never start again, so the next one of any agent of the user sends its writes."""
        for i in range(3):
            self.fill(agent=f"gone{i}")
        self.start()
        with self.quiet():
            self.sidecar().agent("next").save(1)
            self.assertTrue(until(lambda: self.waiting() == [], 60))
        self.assertEqual(self.sidecar().agent("gone2").restore().state, {"n": 2})

    def test_what_another_client_has_spooled_since(self) -> None:
        """A client that has seen that nothing waits looks again before it reads or resumes the run."""
        self.start()
        first = self.sidecar().agent("a")
        first.save({"n": 0})
        other = self.sidecar(deadline=0.0)
        run = other.agent("a").run(heartbeat=0, sigterm=False)
        run.begin()
        with self.quiet():
            for n in (1, 2):
                self.daemon.stop()
                self.assertTrue((run.save if n == 2 else other.agent("a").save)({"n": n}).spooled)
                other._delivery.close(flush=False)
                self.start()
                if n == 1:
                    latest = first.latest()
                    assert latest is not None
                    self.assertEqual(latest.state, {"n": 1})
        with first.run(force=True, sigterm=False) as taken:
            self.assertEqual(taken.state, {"n": 2})
        self.assertEqual((self.waiting(), os.path.isdir(os.path.join(self.spool, "rejected"))), ([], False))

    def test_a_replayer_that_dies(self) -> None:
        """It is killed before and after each answer, and the next one goes on: each save is there once, in order."""
        ids = self.fill(4)
        self.start()
        self.keep_all()
        for when in ("before", "after") * 3:

            def replay(when: str = when) -> None:
                sidecar = ckptsidecar.Sidecar(self.daemon.socket)
                spool = sidecar._delivery.spool
                if when == "before":
                    read = spool.read
                    count = [0]

                    def second(name: str, with_body: bool = True) -> Any:
                        count[0] += 1
                        if count[0] > 1:
                            os.kill(os.getpid(), 9)
                        return read(name, with_body)

                    spool.read = second  # type: ignore[method-assign]
                else:
                    spool.remove = lambda name: os.kill(os.getpid(), 9)  # type: ignore[method-assign]
                sidecar.replay()

            self.assertIn(wait(child(replay)), (-9, 0))
        self.sidecar().replay()
        self.assertEqual(self.numbers(), [0, 1, 2, 3])
        self.assertEqual([i for (i,) in self.daemon.rows("SELECT id FROM audit_checkpoints ORDER BY seq")], ids)

    def test_two_at_once(self) -> None:
        self.fill(40)
        self.start()
        self.keep_all()
        errors: list[BaseException] = []

        def work() -> None:
            try:
                self.sidecar().replay()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((errors, self.numbers(), self.waiting()), ([], list(range(40)), []))

    def test_without_the_lock_nothing_is_wrong(self) -> None:
        self.fill(30)
        self.start()
        self.keep_all()
        with mock.patch.object(Lock, "take", return_value=True), mock.patch.object(Lock, "release"):
            threads = [threading.Thread(target=self.sidecar().replay) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual((self.numbers(), self.waiting()), (list(range(30)), []))

    def test_a_folder_that_cannot_be_read(self) -> None:
        """A daemon that is there gets what is new. Who asks for a replay is told, and no error of the system comes out."""
        self.fill(1)
        self.start()
        self.keep_all()
        with mock.patch.object(Spool, "names", side_effect=OSError(13, "Permission denied")), self.quiet() as log:
            made = self.sidecar()
            self.assertFalse(made.agent("a").save({"n": 1}).spooled)
            run = made.agent("a").run("r", heartbeat=0, sigterm=False)
            self.assertEqual(run.begin().verdict, "fresh")
            with self.assertRaises(ckptsidecar.SpoolError) as caught:
                made.replay()
            self.assertIn("cannot be replayed: Permission denied", str(caught.exception))
            made.close()
        self.assertEqual(len([line for line in log.output if "is not replayed" in line]), 1)
        self.sidecar().replay()
        self.assertEqual(sorted(self.numbers()), [0, 1])

    def test_a_folder_that_cannot_be_written(self) -> None:
        """A daemon that is there gets all, once: the lock only saves work, and what it has answered waits no more."""
        with self.quiet():
            writer = self.sidecar(deadline=0.0)
            writer.agent("a").save({"n": 0})
            writer.agent("a").save(b"{no json", content_type="application/json")
            writer.agent("a").save({"n": 2})
            writer._delivery._closed.set()  # it replays nothing itself
        self.start()
        self.keep_all()
        names = self.waiting()
        asked: list[Any] = []
        ask = Link.ask

        def count(link: Link, what: Any, until: float) -> Any:
            asked.extend([what.path] if what.method == "PUT" else [])
            return ask(link, what, until)

        def fail(function: Any) -> Any:
            def failing(path: Any, *more: Any, **named: Any) -> Any:
                if str(path).startswith(self.spool) and (function.__name__ != "open" or more[0] & os.O_CREAT):
                    raise OSError(30, "Read-only file system", path)
                return function(path, *more, **named)

            return mock.patch.object(os, function.__name__, failing)

        with fail(os.open), fail(os.remove), fail(os.replace), fail(os.mkdir), mock.patch.object(Link, "ask", count), self.quiet() as log:
            made = self.sidecar()
            for n in (3, 4):
                self.assertFalse(made.agent("a").save({"n": n}).spooled)
            self.assertEqual(tuple(made.replay()), (0, 0, 0))
        self.assertEqual(len(asked), 5)
        self.assertEqual(self.numbers(), [0, 2, 3, 4])
        self.assertEqual(self.waiting(), names)
        self.assertIn("was sent, but cannot be removed: Read-only file system", "".join(log.output))
        self.assertIn("cannot be put aside: Read-only file system", "".join(log.output))
        self.assertNotIn("in rejected now", "".join(log.output))
        with self.quiet():
            self.assertEqual(tuple(self.sidecar().replay()), (2, 1, 0))  # another client sends it again, which does no harm
        self.assertEqual((self.numbers(), self.waiting()), ([0, 2, 3, 4], []))

    def test_a_lock_that_cannot_be_written(self) -> None:
        os.makedirs(self.spool, mode=0o700)
        path = os.path.join(self.spool, "replay.lock")
        with mock.patch("json.dump", side_effect=OSError(28, "No space left on device")):
            self.assertTrue(Lock(path).take())
        self.assertFalse(os.path.exists(path))  # or others would take it for held
        os.mkdir(path)  # it cannot be removed
        self.assertFalse(Lock(path).take())
        os.utime(path, (time.time() - 121,) * 2)
        self.assertTrue(Lock(path).take())

    def test_who_waits_for_another_replayer(self) -> None:
        """The daemon is not away: other runs go on."""
        self.fill(1)
        self.start()
        self.assertTrue(Lock(os.path.join(self.spool, "replay.lock")).take())
        made = self.sidecar(deadline=2.0)
        self.assertTrue(made.agent("a").save({"n": 1}).spooled)
        self.assertIsNone(made._delivery._away)
        self.assertFalse(made.agent("other").save({"n": 1}).spooled)

    def test_the_lock(self) -> None:
        self.fill(1)
        lock = Lock(os.path.join(self.spool, "replay.lock"))
        self.assertTrue(lock.take())
        self.assertFalse(Lock(os.path.join(self.spool, "replay.lock")).take())
        with open(os.path.join(self.spool, "replay.lock")) as file:
            self.assertEqual(json.load(file)["pid"], os.getpid())
        os.utime(lock._path, (time.time() - 121,) * 2)
        other = Lock(lock._path)
        self.assertTrue(other.take())  # it was stale
        lock.release()  # and is not the first one's any more
        self.assertTrue(os.path.exists(lock._path))
        other.release()
        self.assertFalse(os.path.exists(lock._path))

        def die() -> None:
            Lock(lock._path).take()

        wait(child(die))
        with open(lock._path) as file:
            holder = json.load(file)
        if os.path.exists("/proc/self/ns/pid"):
            with open(lock._path, "w") as file:
                json.dump({**holder, "host": socket.gethostname()}, file)
            self.assertFalse(Lock(lock._path).take())  # of a container with the same name: its numbers are its own
            with open(lock._path, "w") as file:
                json.dump(holder, file)
        self.assertTrue(Lock(lock._path).take())  # of a process that is gone

    def test_what_is_refused_is_put_aside(self) -> None:
        with self.quiet():
            agent = self.sidecar(deadline=0.0).agent("a")
            agent.save({"n": 0})
            agent.save(b"{no json", content_type="application/json")
            agent.save({"n": 2})
        self.start()
        self.keep_all()
        with self.quiet() as log:
            done = self.sidecar().replay()
        self.assertEqual(tuple(done), (2, 1, 0))
        self.assertEqual(self.numbers(), [0, 2])
        aside = sorted(os.listdir(os.path.join(self.spool, "rejected")))
        self.assertEqual([n[-5:] for n in aside], [".ckpt", ".json"])
        with open(os.path.join(self.spool, "rejected", aside[1])) as file:
            reason = json.load(file)
        self.assertEqual((reason["code"], reason["status"]), ("invalid", 400))
        self.assertIn("not JSON", reason["detail"])
        self.assertTrue(any("rejected" in line for line in log.output))

    def test_damaged_and_foreign_files(self) -> None:
        self.fill(4)
        names = self.waiting()
        path = os.path.join(self.spool, names[1])
        with open(path, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"!")
        with open(os.path.join(self.spool, names[2]), "r+b") as file:
            text = file.read().replace(b'"version":1', b'"version":9')
            file.seek(0)
            file.write(text)
        with open(os.path.join(self.spool, f"{5:016x}-{names[0][17:53]}.ckpt"), "wb") as file:
            file.write(b'{"version":1,"method":"DELETE","path":"/v1/agents/a","query":"","headers":{},"agent":"a",')
            file.write(b'"run":"main","endpoint":"","created_at":"","size":0,"sha256":"e3b0"}\n')
        open(os.path.join(self.spool, "notes.txt"), "w").close()
        self.start()
        self.keep_all()
        with self.quiet():
            done = self.sidecar().replay()
        self.assertEqual(self.numbers(), [0, 3])
        self.assertEqual((done.sent, done.rejected), (2, 2))
        self.assertEqual(self.waiting(), [names[2]])
        self.assertEqual(len(os.listdir(os.path.join(self.spool, "rejected"))), 4)

    def test_a_link_is_not_followed(self) -> None:
        self.fill(1)
        [name] = self.waiting()
        os.rename(os.path.join(self.spool, name), os.path.join(self.folder, "elsewhere"))
        os.symlink(os.path.join(self.folder, "elsewhere"), os.path.join(self.spool, name))
        self.start()
        with self.quiet():
            self.assertEqual(self.sidecar().replay().sent, 0)

    def test_another_daemons_files_stay(self) -> None:
        self.fill(2)
        self.daemon.socket = os.path.join(self.folder, "other")
        self.start()
        self.assertEqual(tuple(self.sidecar().replay()), (0, 0, 0))
        self.assertEqual(self.sidecar().agent("a").save({"n": 9}).spooled, False)
        self.assertEqual((self.numbers(), len(self.waiting())), ([9], 2))

    def test_runs_do_not_hold_up_one_another(self) -> None:
        self.fill(2, "quiet")
        self.fill(2, "full")
        self.start()
        self.keep_all("full")
        self.keep_all("quiet")
        link = ckptsidecar._transport.Link
        ask = link.ask

        def refuse(self_: Any, request: Any, until: float) -> Any:
            if "/full/" in request.path:
                raise ckptsidecar.StorageFull("the disk is full")
            return ask(self_, request, until)

        with mock.patch.object(link, "ask", refuse), self.quiet():
            self.assertEqual(tuple(self.sidecar().replay()), (2, 0, 2))
        self.assertEqual(self.numbers("quiet"), [0, 1])
        self.sidecar().replay()
        self.assertEqual(self.numbers("full"), [0, 1])

    def test_the_command_replays(self) -> None:
        """What this client has spooled, `ckptsidecar spool replay` sends, once and in order."""
        with self.quiet():
            agent = self.sidecar(deadline=0.0).agent("a")
            ids = [agent.save({"n": n, "text": "ü" * n}, labels={"n": str(n)}, metadata={"m": "ü"}).id for n in range(20)]
            with self.sidecar(deadline=0.0).agent("b").run("r-1", sigterm=False) as run:
                run.step("s/ü %")(lambda: {"done": (1,)})
                with run.operation("op", {"before": 1}, offline="allow"):
                    pass
                run.event("note", {"x": 1})
                run.save({"n": 1})
        command = [binary(), "--socket", self.daemon.socket, "spool", "replay"]
        if subprocess.run([*command, "--help"], capture_output=True).returncode != 0:
            self.skipTest("this program has no spool command")
        self.start()
        self.keep_all()
        for _ in range(2):
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.waiting(), os.path.isdir(os.path.join(self.spool, "rejected"))), ([], False))
        self.assertEqual([i for (i,) in self.daemon.rows("SELECT id FROM audit_checkpoints WHERE agent = 'a' ORDER BY seq")], ids)
        self.assertEqual(self.numbers(), list(range(20)))
        self.assertEqual(self.daemon.rows("SELECT key, status FROM audit_steps"), [("s/ü %", "succeeded")])
        self.assertEqual(self.daemon.rows("SELECT key, status FROM audit_operations"), [("op", "succeeded")])
        self.assertEqual(self.daemon.rows("SELECT run, status FROM audit_runs WHERE agent = 'b'"), [("r-1", "completed")])
        self.daemon.sound(self)

    def test_left_overs_go(self) -> None:
        self.fill(1)
        old, new = (os.path.join(self.spool, f".{n:016x}-1-1.tmp") for n in (1, 2))
        for path in (old, new):
            open(path, "w").close()
        os.utime(old, (time.time() - 4000,) * 2)
        self.start()
        self.sidecar().replay()
        self.assertEqual((os.path.exists(old), os.path.exists(new)), (False, True))


class ALargeSpool(World):
    def test_looks_are_not_the_daemons_time(self) -> None:
        """However long it takes to look into the folder, a replay sends as much as the daemon takes in its time."""
        spool = Spool(self.spool, 1 << 20)
        for _ in range(50):
            key = new_id()
            spool.write("POST", "/v1/agents/a/runs/r/events", "", {"Idempotency-Key": key}, b"[]", ("a", "r"), key, "s")
        now = 1000.0
        look = spool.waiting

        def slow(*args: Any) -> list[str]:
            nonlocal now
            now += 1.0
            return look(*args)

        def ask(*args: Any) -> None:
            nonlocal now
            now += 0.01

        link = mock.Mock(spec=Link, owns=lambda endpoint: True, ask=ask)
        with mock.patch.object(spool, "waiting", slow), mock.patch("ckptsidecar._replay.time.monotonic", lambda: now):
            done = replay(spool, link, ("a", "r"), now + 0.2, 0.2)
        self.assertGreaterEqual(done.sent, 15)
        self.assertEqual((done.rejected, done.left), (0, 50 - done.sent))
        self.assertEqual(len(self.waiting()), done.left)
