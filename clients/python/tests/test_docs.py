"""Every example of the documentation runs, and prints what it says; the examples survive kill -9."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import ckptsidecar

from .harness import ROOT, World

SNIPPET = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)


class Documentation(World):
    def run_python(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *arguments], env=self.environment(), cwd=self.folder, capture_output=True, text=True, timeout=60
        )

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT / "clients/python/src"), "CKPTSIDECAR_SOCKET": self.daemon.socket}

    def test_every_snippet(self) -> None:
        self.start()
        count = 0
        for file in ("docs/PYTHON.md", "docs/OPERATIONS_ONCE.md", "docs/QUICKSTART.md", "docs/COMING_FROM.md", "clients/python/README.md", "README.md"):
            for agent in self.sidecar().agents():
                self.sidecar().agent(agent["agent"]).erase()
            text = (ROOT / file).read_text(encoding="utf-8")
            self.assertEqual(len(SNIPPET.findall(text)), text.count("```python"))
            for code, said in SNIPPET.findall(text):
                count += 1
                with self.subTest(file, line=text[: text.index(code)].count("\n") + 1):
                    done = self.run_python("-W", "error", "-c", code)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    if said:
                        self.assertEqual(done.stdout, said)
        self.assertGreaterEqual(count, 12)
        self.daemon.sound(self)

    def test_the_ported_loop_of_a_checkpoint_manager(self) -> None:
        """The loop of the page, word for word, through a lost key, a recovery, a secret, and kill -9; only its work is another."""
        text = (ROOT / "docs/COMING_FROM.md").read_text(encoding="utf-8")
        code = next(code for code, _ in SNIPPET.findall(text) if "def work(state):" in code)
        self.assertLessEqual(len([line for line in code.splitlines() if line]), 14)
        loop = code.index("agent = ")
        work = """
import os
def work(state):
    i = state["i"]
    def once(name):
        fresh = not os.path.exists(name)
        open(name, "w").close()
        return fresh
    if i == 15 and once("killed"):
        os.kill(os.getpid(), 9)
    notes = [*state["notes"], "key AKIAQ7ZPMX3WVN5KTR2D" if i == 11 else f"note {i}"]
    new = {"i": i + 1} if i == 7 and once("lost") else {"i": i + 1, "notes": notes}
    print(i, flush=True)
    return new
"""
        self.start()
        for secrets in ("warn", "redact"):
            with self.subTest(secrets):
                self.sidecar().agent("worker").set_policy(secrets=secrets)
                for name in ("killed", "lost"):
                    if os.path.exists(os.path.join(self.folder, name)):
                        os.remove(os.path.join(self.folder, name))
                program = "import ckptsidecar\n" + work + code[loop:]
                first, second = self.run_python("-c", program), self.run_python("-c", program)
                self.assertEqual((first.returncode, second.returncode), (-9, 0), first.stderr + second.stderr)
                self.assertEqual(first.stdout.split(), [str(i) for i in (*range(8), *range(7, 15))])
                self.assertEqual(second.stdout.splitlines(), [*(str(i) for i in range(15, 20)), "done with 20 notes"])
                latest = self.sidecar().agent("worker").latest()
                assert latest is not None
                self.assertEqual((latest.state["i"], latest.suspect), (20, False))
                found = {(f["rule"], f["closed"]) for f in self.sidecar().agent("worker").drift().secrets}
                self.assertEqual(found, {("secret", None)})
                self.sidecar().agent("worker").erase()
        self.daemon.sound(self)

    def test_the_loop_survives(self) -> None:
        self.start()
        script = str(ROOT / "examples/python/loop.py")
        outbox = os.path.join(self.folder, "outbox.txt")
        ends = []
        for kill in (True, True, True, False):
            agent = subprocess.Popen([sys.executable, script, "20", "0.02"], env=self.environment(), cwd=self.folder, stdout=subprocess.PIPE, text=True)
            assert agent.stdout is not None
            lines = []
            for line in agent.stdout:
                lines.append(line)
                if kill and len(lines) == 5:
                    agent.send_signal(signal.SIGKILL)
            agent.stdout.close()
            ends.append(agent.wait())
        self.assertEqual(ends, [-9, -9, -9, 0])
        self.assertEqual(lines[-1], "finished with 20 thoughts\n")
        self.assertEqual(Path(outbox).read_text().split("\n")[:-1], [f"mail mail-{n}" for n in (4, 9, 14, 19)])
        self.daemon.sound(self)

    def test_generated_code_survives(self) -> None:
        self.start()
        script = str(ROOT / "examples/python/generated.py")
        printed = []
        for kill in (True, False):
            agent = subprocess.Popen([sys.executable, script, "0.05"], env=self.environment(), cwd=self.folder, stdout=subprocess.PIPE, text=True)
            assert agent.stdout is not None
            for line in agent.stdout:
                printed.append(line.strip())
                if kill and len(printed) == 4:
                    time.sleep(0.01)
                    agent.send_signal(signal.SIGKILL)
            agent.stdout.close()
            agent.wait()
        for topic in ("checkpoints", "sidecars", "resume", "fencing"):
            self.assertEqual(printed.count("searching " + topic), 1, printed)
        self.assertEqual(printed[-1], "pages: 25")
        self.daemon.sound(self)


class Shape(World):
    def test_python_3_9_is_enough(self) -> None:
        """Nothing of a newer grammar, and nothing imported but the standard library.

        The checkpointer imports LangGraph; two adapters import their framework where it is first used, never when they are imported.
        """
        later = {"claude_agent.py": {"claude_agent_sdk"}, "pydantic_ai.py": {"pydantic_ai"}}
        standard = {"ckptsidecar", *getattr(sys, "stdlib_module_names", ())}
        for path in (ROOT / "clients/python/src").rglob("*.py"):
            known = standard | ({"langgraph"} if path.parent.name == "langgraph" else set())
            tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
            self.assertIsInstance(tree.body[0], ast.Expr, f"{path} has no docstring")
            at_use = {id(node) for work in ast.walk(tree) if isinstance(work, (ast.FunctionDef, ast.AsyncFunctionDef)) for node in ast.walk(work)}
            checked = [work for work in ast.walk(tree) if isinstance(work, ast.If) and ast.unparse(work.test) == "TYPE_CHECKING"]
            never = {id(node) for work in checked for node in ast.walk(work)}  # only a checker of types reads these
            for node in ast.walk(tree):
                if id(node) in never:
                    continue
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module or ""]
                allowed = known | (later.get(path.name, set()) if id(node) in at_use else set())
                if len(standard) > 1:
                    self.assertLessEqual({n.split(".")[0] for n in names} - {"_winapi"}, allowed, str(path))

    def test_what_is_public_is_documented(self) -> None:
        for name in ckptsidecar.__all__:
            thing = getattr(ckptsidecar, name)
            if isinstance(thing, type) and thing.__module__.startswith("ckptsidecar"):
                self.assertTrue(thing.__doc__, name)
                for attribute, value in vars(thing).items():
                    if not attribute.startswith("_") and (callable(value) or isinstance(value, property)):
                        self.assertTrue(getattr(value, "__doc__", ""), f"{name}.{attribute} has no docstring")

    def test_one_version(self) -> None:
        text = (ROOT / "clients/python/pyproject.toml").read_text()
        self.assertIn('dynamic = ["version"]', text)
        self.assertNotRegex(text, r'(?m)^version = "')
        self.assertRegex(ckptsidecar.__version__, r"^\d+\.\d+\.\d+$")

    def test_settings_are_documented(self) -> None:
        import inspect

        text = (ROOT / "docs/PYTHON.md").read_text()
        table = text[text.index("## Settings of Sidecar") : text.index("## Errors")]
        for name in list(inspect.signature(ckptsidecar.Sidecar.__init__).parameters)[1:]:
            self.assertIn(f"`{name}`", table)
