"""Builds the package as PEP 517 asks, with the standard library only.

`pip install ./clients/python` needs no network: pip finds this module beside the sources (`backend-path` in
pyproject.toml) and fetches nothing. The client is Python alone, so building means packing. The same sources and the
same SOURCE_DATE_EPOCH give the same bytes.
"""

import ast
import base64
import gzip
import hashlib
import io
import os
import re
import tarfile
import time
import zipfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent
SOURCES = FOLDER / "src"
KNOWN = {
    "name", "description", "readme", "requires-python", "license", "keywords", "classifiers", "dependencies", "dynamic", "optional-dependencies", "urls",
}


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """A wheel as PEP 427 describes it."""
    return _wheel(wheel_directory, {path.relative_to(SOURCES).as_posix(): path.read_bytes() for path in _files(SOURCES)})


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """For `pip install -e`: a wheel that points to the sources, as PEP 660 describes it."""
    return _wheel(wheel_directory, {"ckptsidecar.pth": f"{SOURCES}\n".encode()})


def build_sdist(sdist_directory, config_settings=None):
    """The sources and all that builds them."""
    project = _project()
    base = f"{project['name']}-{project['version']}"
    files = {"PKG-INFO": _metadata(project)}
    for path in [FOLDER / "LICENSE", FOLDER / "README.md", FOLDER / "pyproject.toml", *_files(FOLDER / "backend"), *_files(SOURCES)]:
        files[path.relative_to(FOLDER).as_posix()] = path.read_bytes()
    with gzip.GzipFile(Path(sdist_directory) / f"{base}.tar.gz", "wb", mtime=_epoch()) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for path, data in files.items():
            entry = tarfile.TarInfo(f"{base}/{path}")
            entry.size, entry.mtime, entry.mode = len(data), _epoch(), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return f"{base}.tar.gz"


def _wheel(folder, files):
    project = _project()
    base = f"{project['name']}-{project['version']}"
    info = f"{base}.dist-info"
    files[f"{info}/METADATA"] = _metadata(project)
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: ckptsidecar\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/LICENSE"] = (FOLDER / "LICENSE").read_bytes()
    record = []
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(data)}")
    files[f"{info}/RECORD"] = ("\n".join([*record, f"{info}/RECORD,,"]) + "\n").encode()
    with zipfile.ZipFile(Path(folder) / f"{base}-py3-none-any.whl", "w") as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, time.gmtime(_epoch())[:6])
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return f"{base}-py3-none-any.whl"


def _metadata(project):
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}", f"Summary: {project['description']}"]
    lines += [f"License: {project['license']['text']}", f"Keywords: {','.join(project['keywords'])}", f"Requires-Python: {project['requires-python']}"]
    lines += [f"Classifier: {c}" for c in project["classifiers"]]
    lines += [f"Requires-Dist: {need}" for need in project["dependencies"]]
    for extra, needs in project["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}"] + [f'Requires-Dist: {need}; extra == "{extra}"' for need in needs]
    lines += [f"Project-URL: {what}, {url}" for what, url in project["urls"].items()]
    lines += ["Description-Content-Type: text/markdown", "", (FOLDER / project["readme"]).read_text(encoding="utf-8")]
    return "\n".join(lines).encode()


def _project():
    """The table [project] of pyproject.toml, with its two sub-tables and the version."""
    tables = _toml((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))
    project = {**tables["project"], **{name[8:]: table for name, table in tables.items() if name.startswith("project.")}}
    if set(project) != KNOWN:
        raise ValueError(f"pyproject.toml: backend/ckptsidecar_build.py does not write {sorted(set(project) ^ KNOWN)} into the metadata yet")
    found = re.search(r'(?m)^__version__ = "([^"]+)"$', (SOURCES / "ckptsidecar/_version.py").read_text(encoding="utf-8"))
    return {**project, "version": found.group(1)}


def _toml(text):
    """The tables of a TOML file that has nothing but strings, arrays, and tables of one member. Python has tomllib since 3.11 only."""
    tables, table, key, value = {}, {}, "", ""
    for line in text.splitlines():
        if line.startswith("[tool."):
            break  # what follows is for other programs
        header = re.match(r"\[([\w.-]+)\]", line)
        if header and not value:
            table = tables.setdefault(header.group(1), {})
        elif value or re.match(r"[\w-]+ = ", line):
            key, value = (key, f"{value}\n{line}") if value else line.split(" = ", 1)
            try:
                table[key] = ast.literal_eval(re.sub(r"^\{ (\w+) = ", r'{"\1": ', value))
                value = ""
            except SyntaxError:
                pass  # the array goes on in the next line
        elif line.strip() and not line.startswith("#"):
            raise ValueError(f"pyproject.toml: cannot read {line!r}")
    if value:
        raise ValueError(f"pyproject.toml: {key} has no end")
    return tables


def _files(folder):
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]


def _epoch():
    return int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))
