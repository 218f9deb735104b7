"""Parts of a release that need no tool but Python 3.11: see dist.sh.

python3 release.py wheel OUT                  the Python client as a wheel
python3 release.py sbom VERSION BINARY FILE   what a program is made of, as CycloneDX 1.5
python3 release.py provenance VERSION OUT     how the files of OUT were made, as in-toto

The same commit gives the same bytes: times come from SOURCE_DATE_EPOCH.
"""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import time
import tomllib
import uuid
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))


def wheel(out):
    """A wheel as PEP 427 describes it. The client is Python alone, so there is nothing to build."""
    folder = ROOT / "clients/python"
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = re.search(r'__version__ = "([^"]+)"', (folder / "src/ckptsidecar/_version.py").read_text(encoding="utf-8"))
    name, version = project["name"], found.group(1)
    info = f"{name}-{version}.dist-info"
    files = {}
    for path in sorted((folder / "src" / name).rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            files[path.relative_to(folder / "src").as_posix()] = path.read_bytes()
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", f"Summary: {project['description']}", f"License: {project['license']['text']}"]
    metadata += [f"Keywords: {','.join(project['keywords'])}", f"Requires-Python: {project['requires-python']}"]
    metadata += [f"Classifier: {c}" for c in project["classifiers"]]
    for extra, needs in project.get("optional-dependencies", {}).items():
        metadata += [f"Provides-Extra: {extra}"] + [f'Requires-Dist: {need}; extra == "{extra}"' for need in needs]
    metadata += [f"Project-URL: {what}, {url}" for what, url in project["urls"].items()]
    metadata += ["Description-Content-Type: text/markdown", "", (folder / project["readme"]).read_text(encoding="utf-8")]
    files[f"{info}/METADATA"] = "\n".join(metadata).encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: ckptsidecar\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    if project.get("scripts"):
        lines = ["[console_scripts]"] + [f"{command} = {target}" for command, target in project["scripts"].items()]
        files[f"{info}/entry_points.txt"] = ("\n".join(lines) + "\n").encode()
    files[f"{info}/LICENSE"] = (folder / "LICENSE").read_bytes()
    record = []
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(data)}")
    files[f"{info}/RECORD"] = ("\n".join([*record, f"{info}/RECORD,,"]) + "\n").encode()
    moment = time.gmtime(EPOCH)[:6]
    with zipfile.ZipFile(Path(out) / f"{name}-{version}-py3-none-any.whl", "w") as z:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, moment)
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            z.writestr(entry, data)


def sbom(version, binary, file):
    """The modules that the linker put into the program, each with its line of go.sum."""
    components, main = [], None
    for line in subprocess.run(["go", "version", "-m", binary], check=True, capture_output=True, text=True).stdout.splitlines():
        part = line.split("\t")[1:]
        if not part or part[0] not in ("mod", "dep", "=>"):
            continue
        module = {"type": "library", "name": part[1], "version": part[2], "purl": f"pkg:golang/{part[1]}@{part[2]}", "bom-ref": f"{part[1]}@{part[2]}"}
        if len(part) > 3 and part[3].startswith("h1:"):
            module["properties"] = [{"name": "golang:go.sum", "value": part[3]}]
        if part[0] == "mod":
            main = module
        else:
            components.append(module)
    main.update(type="application", version=version, purl=f"pkg:golang/{main['name']}@{version}")
    go = subprocess.run(["go", "version", binary], check=True, capture_output=True, text=True).stdout.split()[-1].removeprefix("go")
    components.append({"type": "library", "name": "std", "version": go, "purl": f"pkg:golang/std@{go}", "bom-ref": f"std@{go}"})
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, f"{main['name']}@{version}").urn,
        "version": 1,
        "metadata": {"timestamp": when(), "component": main},
        "components": components,
        "dependencies": [{"ref": main["bom-ref"], "dependsOn": [c["bom-ref"] for c in components]}],
    }
    write(file, document)


def provenance(version, out):
    """A statement of in-toto with the predicate of SLSA 1.0. It is not signed."""
    subjects = []
    for path in sorted(Path(out).iterdir()):
        subjects.append({"name": path.name, "digest": {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}})
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    go = subprocess.run(["go", "env", "GOVERSION"], check=True, capture_output=True, text=True).stdout.strip()
    source = "git+https://github.com/ckptsidecar/ckptsidecar"
    document = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{source}/packaging/dist.sh",
                "externalParameters": {"version": version},
                "internalParameters": {"SOURCE_DATE_EPOCH": EPOCH},
                "resolvedDependencies": [{"uri": source, "digest": {"gitCommit": commit}}, {"uri": f"pkg:generic/go@{go.removeprefix('go')}"}],
            },
            "runDetails": {"builder": {"id": f"{source}/packaging/dist.sh"}, "metadata": {"finishedOn": when()}},
        },
    }
    write(Path(out) / "provenance.intoto.json", document)


def when():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH))


def write(file, document):
    Path(file).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    {"wheel": wheel, "sbom": sbom, "provenance": provenance}[sys.argv[1]](*sys.argv[2:])
