#!/usr/bin/env python3
"""Tests an adapter of any language against a real daemon: kill, resume, fence, remove, drift.

    python3 clients/conformance/conformance.py -- PROGRAM [ARGUMENT…]

PROGRAM uses the adapter as its framework would. It reads commands from its standard input, one line of JSON
each, and answers each with one line of JSON on its standard output, when what was asked is on disk. The daemon
is in CKPTSIDECAR_SOCKET; a call must wait at least 30 seconds for one that is away. docs/ADAPTERS.md says more.

    {"do": "hello"}                                      {"adapter": …, "agent": …, "shared": …, "remove": …}
    {"do": "append", "session": "s", "value": "text"}    {}
    {"do": "read", "session": "s"}                       {"values": ["text", …]}
    {"do": "remove", "session": "s"}                     {}

It needs Python 3.9 and nothing else. The daemon's program is --bin, $CKPTSIDECAR_BIN, or ckptsidecar on the PATH.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Optional


class Failed(Exception):
    """What a test found wrong."""


class Daemon:
    """A daemon in a folder of its own, which can be killed and started again."""

    def __init__(self, program: str, folder: str) -> None:
        self.program = program
        self.folder = folder
        self.socket = os.path.join(folder, "s")
        self.database = os.path.join(folder, "ckpt.db")
        # Nothing of the user's own is touched: neither daemon nor spool.
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("CKPTSIDECAR_", "XDG_"))}
        self.environment.update(HOME=folder, XDG_STATE_HOME=folder, XDG_RUNTIME_DIR=folder, CKPTSIDECAR_SOCKET=self.socket)
        self.process: Optional[subprocess.Popen[str]] = None

    def start(self) -> None:
        command = [self.program, "serve", "--db", self.database, "--socket", self.socket]
        self.process = subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        said = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            said.append(line)
            if "msg=ready" in line:
                break
        else:
            raise Failed("the daemon did not start:\n" + "".join(said))
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def command(self, *arguments: str) -> Any:
        """What a command of the daemon's program says as JSON."""
        done = subprocess.run([self.program, *arguments, "--json"], env=self.environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"ckptsidecar {' '.join(arguments)} ended with {done.returncode}: {done.stderr or done.stdout}")
        return json.loads(done.stdout)

    def rows(self, query: str, *values: Any) -> list[Any]:
        """What an auditor sees."""
        db = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)
        try:
            return db.execute(query, values).fetchall()
        finally:
            db.close()


class Program:
    """The adapter's program, as a process that can be killed."""

    def __init__(self, command: list[str], daemon: Daemon) -> None:
        self.process = subprocess.Popen(
            command, env=daemon.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", bufsize=1
        )

    def send(self, do: str, **members: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **members}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"the program ended with {self.process.wait()} instead of answering")
        found = json.loads(line)
        if not isinstance(found, dict) or "error" in found:
            raise Failed(f"the program answered {line.strip()}")
        return found

    def ask(self, do: str, **members: Any) -> dict[str, Any]:
        self.send(do, **members)
        return self.answer()

    def append(self, session: str, value: str) -> None:
        self.ask("append", session=session, value=value)

    def read(self, session: str) -> list[str]:
        return self.ask("read", session=session)["values"]  # type: ignore[no-any-return]

    def kill(self) -> int:
        """Kills it, and answers how many of the answers had come that nobody has read."""
        self.process.send_signal(signal.SIGKILL) if hasattr(signal, "SIGKILL") else self.process.kill()
        assert self.process.stdout is not None and self.process.stdin is not None
        unread = sum(1 for line in self.process.stdout if line.endswith("\n"))
        self.process.wait()
        self.process.stdout.close()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        return unread

    def end(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.read()
        if self.process.wait() != 0:
            raise Failed(f"the program ended with {self.process.returncode} when its input ended")
        self.process.stdout.close()


class Conformance:
    """The tests, in order."""

    def __init__(self, command: list[str], daemon: Daemon, seed: int) -> None:
        self.new = lambda: Program(command, daemon)
        self.daemon = daemon
        self.random = random.Random(seed)
        program = self.new()
        self.about = program.ask("hello")
        program.end()

    def kill(self) -> str:
        """What was acknowledged before kill -9 is there, once and in order, and the next process goes on."""
        acknowledged = again = 0
        for life in range(6):
            program = self.new()
            values = program.read("count")
            self.check_count(values, acknowledged)
            again += len(values) - acknowledged
            acknowledged = len(values)
            for _ in range(1 + life):
                program.append("count", str(acknowledged))
                acknowledged += 1
            program.send("append", session="count", value=str(acknowledged))  # it dies in this one
            time.sleep(self.random.random() * 0.02)
            acknowledged += program.kill()
        program = self.new()
        values = program.read("count")
        self.check_count(values, acknowledged)
        program.end()
        return f"{len(values)} values over 6 kills, {again} of them written and not acknowledged"

    def daemon_dies(self) -> str:
        """A call waits for a daemon that is killed, and what was acknowledged is there afterwards."""
        program = self.new()
        values = program.read("daemon")
        for n in range(len(values), 12):
            if n % 4 == 1:
                program.send("append", session="daemon", value=str(n))  # it is on its way
                time.sleep(self.random.random() * 0.01)
                self.daemon.kill()
                self.daemon.start()
                program.answer()
            elif n % 4 == 3:
                self.daemon.kill()
                program.send("append", session="daemon", value=str(n))  # nobody is there
                self.daemon.start()
                program.answer()
            else:
                program.append("daemon", str(n))
        self.check_count(program.read("daemon"), 12)
        program.end()
        program = self.new()
        self.check_count(program.read("daemon"), 12)
        program.end()
        return "12 values over 6 kills of the daemon"

    def fence(self) -> str:
        """Two processes use one session: what either has written is seen by the other, and nothing is lost."""
        one, other = self.new(), self.new()
        for n in range(4):  # in turns
            (one if n % 2 == 0 else other).append("turns", str(n))
            self.check_count((other if n % 2 == 0 else one).read("turns"), n + 1)
        if not self.about.get("shared"):
            one.end()
            other.end()
            return "in turns; the framework has one session written by one process at a time"
        wrong: list[BaseException] = []

        def write(program: Program, who: str) -> None:
            try:
                for n in range(10):
                    program.append("crowd", f"{who}{n}")
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=write, args=pair) for pair in ((one, "a"), (other, "b"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if wrong:
            raise wrong[0]
        for program in (one, other):
            values = program.read("crowd")
            for who in "ab":
                own = [v for v in values if v.startswith(who)]
                if own != [f"{who}{n}" for n in range(10)]:
                    raise Failed(f"of what {who} has written at once with another, there is {own}")
            program.end()
        return "in turns, and 20 values at once"

    def remove(self) -> str:
        """A session that was removed is empty for everybody, is gone from the disk, and begins anew."""
        if not self.about.get("remove"):
            return "skipped: the framework removes none"
        one, other = self.new(), self.new()
        secret = "to be removed 7f3a"
        one.append("removed", secret)
        before = other.read("removed")
        other.ask("remove", session="removed")
        after = one.read("removed")
        if before != [secret] or after != []:
            raise Failed(f"before it was removed it held {before}, and afterwards {after}")
        left = self.daemon.command("list", self.about["agent"], "--limit", "1000")["checkpoints"]
        for checkpoint in left:
            shown = json.dumps(self.daemon.command("show", checkpoint["id"]))
            if secret in shown:
                raise Failed(f"checkpoint {checkpoint['id']} still holds what was removed")
        one.append("removed", "anew")
        if other.read("removed") != ["anew"]:
            raise Failed(f"after it has begun anew it holds {other.read('removed')}")
        one.end()
        other.end()
        return f"nothing of it is in the {len(left)} checkpoints that are left"

    def drift(self) -> str:
        """A history that is rewritten is no drift: no finding was made of all this."""
        found = self.daemon.rows("SELECT rule, severity FROM audit_findings")
        serious = [f for f in found if f[1] != "info"]
        if serious:
            raise Failed(f"there are findings: {serious}")
        return f"{len(found)} findings"

    def sound(self) -> str:
        """The database is sound, and auditors see no violation."""
        violations = self.daemon.rows("SELECT * FROM audit_violations")
        if violations:
            raise Failed(f"audit_violations: {violations}")
        runs = self.daemon.rows("SELECT count(*) FROM audit_runs WHERE agent = ?", self.about["agent"])[0][0]
        if runs == 0:
            raise Failed(f"agent {self.about['agent']} has no runs: what the program says as its agent is not what it uses")
        done = subprocess.run([self.daemon.program, "verify", "--db", self.daemon.database], capture_output=True, text=True, env=self.daemon.environment)
        if done.returncode != 0:
            raise Failed(f"ckptsidecar verify: {done.stdout}{done.stderr}")
        return f"{runs} runs"

    def check_count(self, values: list[str], least: int) -> None:
        if values != [str(n) for n in range(len(values))]:
            raise Failed(f"the values are not each there once and in order: {values}")
        if not least <= len(values) <= least + 1:
            raise Failed(f"{least} values were acknowledged, and {len(values)} are there")


def main() -> int:
    """Runs all tests, and answers an exit code."""
    words = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    words.add_argument("--bin", default=os.environ.get("CKPTSIDECAR_BIN") or "ckptsidecar", help="the daemon's program")
    words.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="to make the same pauses again")
    words.add_argument("program", nargs="+", help="the adapter's program and its arguments")
    given = words.parse_args()
    folder = tempfile.mkdtemp(prefix="ckpt-c-")
    daemon = Daemon(shutil.which(given.bin) or given.bin, folder)
    failed = 0
    try:
        daemon.start()
        tests = Conformance(given.program, daemon, given.seed)
        print(f"{tests.about['adapter']}, seed {given.seed}")
        for test in (tests.kill, tests.daemon_dies, tests.fence, tests.remove, tests.drift, tests.sound):
            try:
                print(f"ok      {test.__name__}: {test()}", flush=True)
            except Failed as error:
                failed += 1
                print(f"FAILED  {test.__name__}: {error}", flush=True)
    finally:
        daemon.kill()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
