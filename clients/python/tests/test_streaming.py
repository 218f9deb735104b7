"""Generated code, statement by statement, through crashes at every place."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import traceback
from pathlib import Path
from typing import Any, AsyncIterator, Callable, Optional

from ckptsidecar import streaming
from ckptsidecar.streaming import StreamingExecutor
from ckptsidecar.streaming.source import Source

from .harness import World, binary, child, ckptsidecar, report, wait

PROGRAM = (Path(__file__).parent / "program.py.txt").read_text(encoding="utf-8")


class Host(World):
    """An executor's host: tools with effects in a file."""

    def setUp(self) -> None:
        super().setUp()
        self.start()

    def tools(self, name: str) -> dict[str, Callable[..., Any]]:
        path = os.path.join(self.folder, name)

        def effect(text: str) -> int:
            with open(path, "a", encoding="utf-8") as file:
                file.write(text + "\n")
            return len(text)

        async def emit(text: str) -> int:
            await asyncio.sleep(0)
            return effect("emit " + text)

        async def fetch(what: str) -> dict[str, Any]:
            await asyncio.sleep(0)
            effect("fetch " + what)
            return {"what": what, "tuple": (1, what)}

        async def work(what: str) -> int:
            return effect("work " + what)

        return {"emit": emit, "fetch": fetch, "work": work}

    def effects(self, name: str) -> list[str]:
        path = os.path.join(self.folder, name)
        return Path(path).read_text(encoding="utf-8").splitlines() if os.path.exists(path) else []

    def execute(
        self, run: str, source: Optional[str] = PROGRAM, after: Callable[[StreamingExecutor], Any] = lambda ex: None,
        before: Callable[[StreamingExecutor], Any] = lambda ex: None, **options: Any,
    ) -> Any:  # fmt: skip
        async def main() -> Any:
            async with ckptsidecar.AsyncSidecar(self.daemon.socket) as sidecar:
                async with sidecar.agent("p").run(run, heartbeat=0) as entered:
                    options.setdefault("tools", self.tools(run))
                    executor = StreamingExecutor(entered, on_statement=lambda _: after(executor), **options)
                    save = executor._save

                    async def watched(statement: Any) -> None:
                        before(executor)
                        await save(statement)

                    executor._save = watched  # type: ignore[method-assign]
                    value = await executor.execute(executor.source if source is None else source)
                    return value, executor

        return asyncio.run(main())


def summary(value: Any) -> str:
    return repr(value)


class Show1(Host):
    """Show 1: killed after every statement in turn, and before every checkpoint."""

    def test_killed_everywhere(self) -> None:
        value, executor = self.execute("whole")
        wanted, effects, count = summary(value), self.effects("whole"), executor.number
        self.assertGreaterEqual(count, 60)
        self.assertEqual([t.path for t in executor.lost], [])

        def finish(run: str) -> None:
            value, executor = self.execute(run)
            assert summary(value) == wanted, f"{run}: {summary(value)}\nis not\n{wanted}"
            assert executor.executed == len(PROGRAM.encode()) and executor.number == count

        def killed_after(run: str, number: int) -> None:
            self.execute(run, after=lambda ex: os.kill(os.getpid(), 9) if ex.number == number else None)

        for number in range(1, count):
            run = f"after{number}"
            self.assertEqual(wait(child(lambda: killed_after(run, number))), -9)
            self.assertEqual(wait(child(lambda: finish(run))), 0, run)
            self.assertEqual(self.effects(run), effects, run)
        # And one run that dies after every statement, before its checkpoint: each is executed twice.

        def killed_before(seen: set[int]) -> None:
            path = os.path.join(self.folder, "died")

            def before(ex: StreamingExecutor) -> None:
                if ex.number not in seen:
                    with open(path, "a") as file:
                        file.write(f"{ex.number}\n")
                    os.kill(os.getpid(), 9)

            self.execute("before", before=before)

        for _ in range(count):
            seen = {int(n) for n in self.effects("died")}
            self.assertEqual(wait(child(lambda: killed_before(seen))), -9)
        finish("before")
        self.assertEqual(self.effects("before"), effects)
        self.daemon.sound(self)
        report(
            f"show 1, StreamingExecutor: {count} statements; {count - 1} programs killed after one each, and one killed {count} times "
            f"before a checkpoint: results equal, all {len(effects)} effects there exactly once and in order"
        )


class Executor(Host):
    def test_what_a_checkpoint_holds(self) -> None:
        source = "a = [1]\nb = a  # the same\nc = await emit('x')\n"
        _, executor = self.execute("r", source, context={"answer": "the model's whole answer", "agents": ("x",)})
        [newest, *_] = self.sidecar().agent("p").list(run="r", limit=1)
        checkpoint = self.sidecar().agent("p").get(newest.id)
        self.assertEqual(checkpoint.program, {"source": source, "executed": len(source)})
        assert checkpoint.state_bytes is not None
        state = json.loads(checkpoint.state_bytes)
        self.assertEqual(state["format"], "ckptsidecar.statements/1")
        self.assertEqual(state["statement"], {"number": 3, "line": 3, "text": "c = await emit('x')\n"})
        ref = {"$ckpt": "ref", "id": 1}
        self.assertEqual((state["namespace"]["variables"]["a"], state["namespace"]["variables"]["b"]), (ref, ref))
        self.assertEqual((state["namespace"]["shared"], state["namespace"]["variables"]["c"]), ({"1": [1]}, 6))
        self.assertEqual(state["context"]["answer"], "the model's whole answer")

    def test_offsets_not_texts(self) -> None:
        """A repeated statement confuses nobody, nor do characters of several bytes, semicolons, comments and blank lines."""
        source = "n = 0\n\n# ünï\nn += 1; n += 1 ; n += 1\n\n\nn += 1 # x\nn += 1\nt = 'é'; n += len(t)\n@emit\ndef f(): pass\n# end"
        seen: list[tuple[int, str]] = []
        self.execute("r", source, after=lambda ex: seen.append((ex.executed, ex.remaining)), tools={}, names={"emit": lambda f: f})
        self.assertEqual([len(source.encode()) - len(r.encode()) for _, r in seen], [e for e, _ in seen])
        self.assertEqual(
            [r.split("\n")[0] for _, r in seen],
            ["", "n += 1 ; n += 1", "n += 1", "", "n += 1", "t = 'é'; n += len(t)", "n += len(t)", "@emit", ""],
        )
        for number in range(1, len(seen)):

            def dies() -> None:
                self.execute(f"o{number}", source, after=lambda ex: os.kill(os.getpid(), 9) if ex.number == number else None, tools={}, names={"emit": lambda f: f})

            self.assertEqual(wait(child(dies)), -9)
            _, executor = self.execute(f"o{number}", source, tools={}, names={"emit": lambda f: f})
            self.assertEqual(executor.namespace["n"], 6)

    def test_as_it_streams(self) -> None:
        seen: list[str] = []

        async def main(run: str, parts: list[str], die_at: int = -1) -> StreamingExecutor:
            async with ckptsidecar.AsyncSidecar(self.daemon.socket) as sidecar:
                async with sidecar.agent("p").run(run, heartbeat=0) as entered:
                    executor = StreamingExecutor(entered, self.tools(run), on_statement=lambda s: seen.append(s.text.strip()))

                    async def stream() -> AsyncIterator[str]:
                        for n, part in enumerate(parts):
                            if n == die_at:
                                os.kill(os.getpid(), 9)
                            yield part
                            await asyncio.sleep(0)

                    await executor.stream(stream())
                    return executor

        text = "x = 1\nif x:\n    y = 2\nelse:\n    y = 3\nz = '''\na = 5\n'''\nawait emit('s')\ndef f():\n\n    return y\nw = f()"
        executor = asyncio.run(main("letters", list(text)))
        self.assertEqual(executor.namespace["w"], 2)
        self.assertEqual(len(seen), 6)
        seen.clear()

        async def early() -> None:
            async with ckptsidecar.AsyncSidecar(self.daemon.socket) as sidecar:
                async with sidecar.agent("p").run("early", heartbeat=0) as entered:
                    executor = StreamingExecutor(entered, self.tools("early"))
                    for part, value in (("x = 1\nx +", 1), ("= 1\n", 2), ("if x:\n  x = 5\n", 2), ("  x += 1\n", 2), ("y = 0\n", 6)):
                        await executor.feed(part)
                        self.assertEqual(executor.namespace["x"], value)
                    with self.assertRaises(SyntaxError):
                        await executor.feed("y = = 3")
                        await executor.finish()
                    executor.amend("y = 3")
                    await executor.finish()
                    self.assertEqual((executor.namespace["y"], executor.source[-6:]), (3, "\ny = 3"))

        asyncio.run(early())
        self.assertEqual(wait(child(lambda: asyncio.run(main("dies", list(text), 90)))), -9)
        _, executor = self.execute("dies", text)
        self.assertEqual((executor.namespace["w"], self.effects("dies")), (2, ["emit s"]))

    def test_a_program_that_fails_and_is_amended(self) -> None:
        async def main() -> None:
            async with ckptsidecar.AsyncSidecar(self.daemon.socket) as sidecar:
                async with sidecar.agent("p").run("r", heartbeat=0) as run:
                    executor = StreamingExecutor(run, self.tools("r"))
                    try:
                        await executor.execute("await emit('once')\nx = 1\nprint(nope)\nx = 2\n")
                        self.fail("nothing was raised")
                    except NameError:
                        self.assertIn("    print(nope)", traceback.format_exc())  # the line of the program
                    self.assertEqual((executor.namespace["x"], executor.remaining), (1, "print(nope)\nx = 2\n"))
                    executor.amend("x += 10\nx")
                    self.assertEqual(await executor.execute(executor.source), 11)

        asyncio.run(main())
        self.assertEqual(self.effects("r"), ["emit once"])

    def test_nothing_runs_of_what_is_no_program(self) -> None:
        with self.assertRaises(SyntaxError):
            self.execute("r", "await emit('x')\nif:\n")
        self.assertEqual(self.effects("r"), [])

    def test_another_program_is_refused(self) -> None:
        def dies() -> None:
            self.execute("r", "x = 1\ny = 2\n", after=lambda ex: os.kill(os.getpid(), 9))

        self.assertEqual(wait(child(dies)), -9)
        with self.assertRaises(streaming.ProgramChanged):
            self.execute("r", "x = 9\ny = 2\n")
        _, executor = self.execute("r", None)  # the run remembers it
        self.assertEqual((executor.namespace["x"], executor.namespace["y"]), (1, 2))

    def test_what_cannot_be_saved_is_named(self) -> None:
        source = "import threading\nf = open('/dev/null')\nbox = {'lock': [threading.Lock()], 'fine': 1}\nit = iter([1])\nx = 1\n"
        names: list[Any] = []

        def dies(rest: str) -> None:
            self.execute("r" + rest[:1], source + rest, after=lambda ex: os.kill(os.getpid(), 9) if ex.number == 5 else None)

        _, executor = self.execute("whole", source)
        names = [(t.path, t.type) for t in executor.lost]
        self.assertEqual(sorted(names), [("box/lock/0", "_thread.lock"), ("f", "_io.TextIOWrapper"), ("it", "list_iterator")])
        self.assertEqual(wait(child(lambda: dies("y = x + box['fine']\n"))), -9)
        _, executor = self.execute("ry", source + "y = x + box['fine']\n")
        self.assertEqual(executor.namespace["y"], 2)
        self.assertIn("TextIOWrapper", repr(executor.namespace["f"]))
        self.assertEqual(sorted((t.path, t.type) for t in executor.lost), sorted(names))  # still named
        self.assertEqual(wait(child(lambda: dies("next(it)\n"))), -9)
        with self.assertRaises(streaming.LostValue) as caught:
            self.execute("rn", source + "next(it)\n")
        self.assertIn("it was a value of type list_iterator", str(caught.exception))
        with self.assertRaises(streaming.LossRefused) as refused:
            self.execute("refused", source, on_lost="refuse")
        self.assertIn("f (_io.TextIOWrapper)", str(refused.exception))

    def test_holding_on(self) -> None:
        """With on_lost="hold" a program resumes exactly though it has a live generator: it is executed again from before it."""
        source = "x = 1\nawait emit('a')\ng = (n * n for n in range(5))\na = next(g)\nb = next(g)\nawait emit('b')\nc = next(g)\ndel g\nd = a + b + c\n"
        for number in range(1, 9):
            run = f"r{number}"

            def dies() -> None:
                self.execute(run, source, on_lost="hold", after=lambda ex: os.kill(os.getpid(), 9) if ex.number == number else None)

            self.assertEqual(wait(child(dies)), -9)
            _, executor = self.execute(run, source, on_lost="hold")
            self.assertEqual((executor.namespace["d"], self.effects(run)), (5, ["emit a", "emit b"]))

    def test_a_codec(self) -> None:
        class Matrix:
            def __init__(self, rows: list[list[int]]) -> None:
                self.rows = rows

        codec = streaming.Codec(Matrix, "matrix", lambda m: {"rows": m.rows}, lambda plain: Matrix(plain["rows"]))
        source = "m = Matrix([[1, (2, 3)]])\nn = m\nx = m.rows[0][1]\n"

        def dies() -> None:
            self.execute("r", source, after=lambda ex: os.kill(os.getpid(), 9) if ex.number == 2 else None, names={"Matrix": Matrix}, codecs=[codec])

        self.assertEqual(wait(child(dies)), -9)
        _, executor = self.execute("r", source, names={"Matrix": Matrix}, codecs=[codec])
        self.assertEqual((executor.namespace["x"], executor.namespace["m"] is executor.namespace["n"], executor.lost), ((2, 3), True, []))

    def test_a_statement_that_diverges(self) -> None:
        source = "for i in range(2):\n    await emit(str(stamp()))\n"
        stamps = iter(range(100, 200))

        def dies() -> None:
            self.execute("r", source, before=lambda ex: os.kill(os.getpid(), 9), names={"stamp": lambda: 1})

        self.assertEqual(wait(child(dies)), -9)
        with self.assertRaises(streaming.Diverged):
            self.execute("r", source, names={"stamp": lambda: next(stamps)})

    def test_switched_off(self) -> None:
        """B3: on or off by configuration."""
        value, _ = self.execute("off", "x = await emit('a')\nx", checkpoints=False)
        self.assertEqual(value, 6)
        self.assertEqual(self.daemon.rows("SELECT 1 FROM audit_checkpoints UNION ALL SELECT 1 FROM audit_steps"), [])

    def test_in_a_run_that_is_not_async(self) -> None:
        async def main(run: ckptsidecar.Run) -> Any:
            executor = StreamingExecutor(run, self.tools("r"))
            return await executor.execute("x = await emit('a')\nx + 1")

        with self.sidecar().agent("p").run("r") as run:
            self.assertEqual(asyncio.run(main(run)), 7)

    def test_no_code_from_a_checkpoint(self) -> None:
        """Only what the program itself imports and defines can come out of a state."""
        source = "x = 1\ny = 2\n"
        for node in (
            {"$ckpt": "import", "module": "os", "name": "system"}, {"$ckpt": "module", "module": "subprocess"},
            {"$ckpt": "function", "at": 0, "path": [["evil", 0]], "name": "e", "qualname": "e", "doc": None, "value": [None, None, None]},
            {"$ckpt": "class", "at": 0, "line": 1, "name": "Evil", "value": [{}]}, {"$ckpt": "host", "name": "root"},
            {"$ckpt": "from-the-future"},
        ):  # fmt: skip
            agent = self.sidecar().agent("p")
            state = {"format": "ckptsidecar.statements/1", "python": "3", "statement": {"number": 1, "line": 1, "text": ""},
                     "namespace": {"variables": {"x": node}, "shared": {}, "classes": []}, "lost": [], "value": None, "context": None}  # fmt: skip
            name = "r" + str(node["$ckpt"]) + str(node.get("module", ""))
            agent.save(json.dumps(state).encode(), content_type="application/json", run=name, program={"source": source, "executed": 6})
            with self.subTest(name), self.assertRaises((streaming.CannotRebuild, Exception)) as caught:
                self.execute(name, source)
            self.assertIn(type(caught.exception).__name__, ("CannotRebuild", "NeedsClass"))

    def test_statements_of_a_part(self) -> None:
        for cut in range(len(PROGRAM)):
            if PROGRAM[cut] != "\n" and cut % 7:
                continue
            part = Source(PROGRAM[:cut]).statements(0, False)
            whole = Source(PROGRAM).statements(0, True)
            self.assertEqual([(s.at, s.next, s.text) for s in part], [(s.at, s.next, s.text) for s in whole[: len(part)]])


class Imported(Host):
    """Programs that another system has begun."""

    CODE = """import math
def twice(n):
    return 2 * n
offers = await fetch("offers")
limit = math.floor(10.7)
client = object()
await emit(f"one {limit}")
await emit(f"two {offers['what']} {twice(limit)}")
await emit("three")
"""
    RAN = CODE.index("await emit(f\"one")

    def bring(self, run: str, **changes: Any) -> None:
        state: dict[str, Any] = {
            "checkpoint_id": "c6", "namespace": {"name": "p", "limit": 10},
            "execution_state": {
                "variables": {"offers": {"what": "offers"}}, "call_stack": [], "agents": [{"name": "buyer"}],
                "meetings": [{"id": "m1"}],
            },
            "metadata": {
                "statement": "client = object()", "counter": 6, "execution_id": run, "timestamp": "2026-06-30T08:00:00Z",
                "llm_response": self.CODE, "executed_code": self.CODE[: self.RAN],
            },
        }  # fmt: skip
        state["metadata"].update(changes)
        file = Path(self.folder) / (run + ".json")
        file.write_text(json.dumps(state), encoding="utf-8")
        command = [binary(), "import", "--socket", self.daemon.socket, "--format", "statement-checkpoint", str(file)]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_an_imported_program_goes_on_and_each_effect_is_there_once(self) -> None:
        self.bring("r1")
        _, executor = self.execute("r1", source=None)
        self.assertEqual(self.effects("r1"), ["emit one 10", "emit two offers 20", "emit three"])
        self.assertEqual(executor.context["meetings"], [{"id": "m1"}])
        self.assertEqual(executor.number, 8)
        self.daemon.sound(self)

    def test_an_imported_program_goes_on_after_a_crash_as_any_other(self) -> None:
        self.bring("r2")

        class Stop(Exception):
            pass

        def stop(executor: StreamingExecutor) -> None:
            if executor.number == 7:
                raise Stop()

        with self.assertRaises(Stop):
            self.execute("r2", source=None, after=stop)
        self.execute("r2", source=None)
        self.assertEqual(self.effects("r2"), ["emit one 10", "emit two offers 20", "emit three"])

    def test_what_the_import_does_not_hold_raises_at_its_use(self) -> None:
        self.bring("r3", llm_response=self.CODE + "client.call()\n")
        with self.assertRaises(streaming.LostValue):
            self.execute("r3", source=None)
        self.assertEqual(len(self.effects("r3")), 3)

    def test_an_import_that_does_not_say_what_has_run_is_refused(self) -> None:
        self.bring("r4", executed_code="something else")
        with self.assertRaises(streaming.CannotAdopt):
            self.execute("r4", source=None)
        self.assertEqual(self.effects("r4"), [])
