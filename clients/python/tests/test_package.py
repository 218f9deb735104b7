"""The build backend: what pip, uv and build call."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent
BUILD = "import sys; sys.path.insert(0, 'backend'); import ckptsidecar_build as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"


def build(hook: str, out: str, folder: Path = FOLDER) -> Path:
    """Calls a hook as pip does: in the folder of pyproject.toml, in a process of its own."""
    ran = subprocess.run([sys.executable, "-B", "-I", "-c", BUILD, hook, out], cwd=folder, check=True, capture_output=True, text=True)
    return Path(out) / ran.stdout.strip()


class Package(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = folder.name

    def test_the_wheel_holds_the_sources(self) -> None:
        with zipfile.ZipFile(build("build_wheel", self.out)) as wheel:
            held = {name: wheel.read(name) for name in wheel.namelist() if not name.split("/")[0].endswith(".dist-info")}
        files = [path for path in (FOLDER / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        self.assertEqual(held, {path.relative_to(FOLDER / "src").as_posix(): path.read_bytes() for path in files})
        self.assertIn("ckptsidecar/py.typed", held)

    def test_the_source_archive_builds_the_same_wheel(self) -> None:
        with tarfile.open(build("build_sdist", self.out)) as tar:
            for member in tar.getmembers():
                self.assertTrue(member.isfile() and ".." not in member.name and not member.name.startswith("/"), member.name)
            tar.extractall(self.out)
        again = Path(self.out) / "again"
        again.mkdir()
        unpacked = next(path for path in Path(self.out).iterdir() if (path / "PKG-INFO").exists())
        self.assertEqual(build("build_wheel", str(again), unpacked).read_bytes(), build("build_wheel", self.out).read_bytes())

    def test_an_editable_wheel_points_to_the_sources(self) -> None:
        with zipfile.ZipFile(build("build_editable", self.out)) as wheel:
            self.assertEqual(wheel.read("ckptsidecar.pth").decode(), f"{FOLDER / 'src'}\n")

    @unittest.skipIf(sys.version_info < (3, 11), "tomllib is new in Python 3.11")
    def test_the_settings_are_read_as_tomllib_reads_them(self) -> None:
        tomllib: Any = importlib.import_module("tomllib")
        sys.path.insert(0, str(FOLDER / "backend"))
        self.addCleanup(sys.path.remove, str(FOLDER / "backend"))
        backend: Any = importlib.import_module("ckptsidecar_build")
        text = (FOLDER / "pyproject.toml").read_text(encoding="utf-8")
        want = tomllib.loads(text)
        nested = {f"project.{name}": want["project"].pop(name) for name in ("optional-dependencies", "urls")}
        self.assertEqual(backend._toml(text), {"build-system": want["build-system"], "project": want["project"], **nested})
        self.assertEqual(want.keys(), {"build-system", "project", "tool"})
        self.assertEqual(backend._toml('[project]\nname = "x"\n\n[tool.other]\nfast = true\n'), {"project": {"name": "x"}})
        with self.assertRaisesRegex(ValueError, "keywords has no end"):
            backend._toml('[project]\nkeywords = [\n  "a",\n')
        with self.assertRaisesRegex(ValueError, "cannot read"):
            backend._toml("[project]\nname: x\n")
