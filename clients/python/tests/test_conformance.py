"""Each adapter under clients/conformance, and an adapter that lies, which must not pass."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest

from .conform import ADAPTERS
from .harness import ROOT, binary

# It acknowledges what it has not written.
LIAR = """
import json, sys
values = {}
for line in sys.stdin:
    c = json.loads(line)
    kept = values.setdefault(c.get("session"), [])
    if c["do"] == "append": kept.append(c["value"])
    answers = {"hello": {"adapter": "liar", "agent": "liar", "shared": True, "remove": True}, "read": {"values": kept}}
    print(json.dumps(answers.get(c["do"], {})), flush=True)
"""


def conformance(*program: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "clients/conformance/conformance.py"), "--bin", binary(), "--", *program]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, env=env, cwd=ROOT / "clients/python", capture_output=True, text=True)


class Conformance(unittest.TestCase):
    def test_all_adapters_conform(self) -> None:
        for name in ADAPTERS:
            with self.subTest(name):
                done = conformance(sys.executable, "-W", "ignore", "-m", "tests.conform", name)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual(done.stdout.count("\nok "), 6, done.stdout)

    def test_an_adapter_that_lies_does_not(self) -> None:
        done = conformance(sys.executable, "-c", LIAR)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("FAILED")]
        self.assertEqual(failed, ["kill:", "daemon_dies:", "fence:", "remove:", "sound:"])
