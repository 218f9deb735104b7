"""Parts of a release that need no tool but Python 3.9: see dist.sh.

python3 release.py set VERSION                writes a version into every file that names it, and begins its part of CHANGELOG.md
python3 release.py check [VERSION]            ends with 1 where these files disagree, or are not of this version
python3 release.py wheel OUT                  the Python client as a wheel
python3 release.py sbom VERSION BINARY FILE   what a program is made of, as CycloneDX 1.5
python3 release.py provenance VERSION OUT     how the files of OUT were made, as in-toto

The same commit gives the same bytes: times come from SOURCE_DATE_EPOCH.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))


# Where a version stands, and how often.
VERSIONS = {
    "version.go": (r'(?m)^(const Release = ")([^"]+)"$', 1),
    "clients/python/src/ckptsidecar/_version.py": (r'(?m)^(__version__ = ")([^"]+)"$', 1),
    "clients/typescript/package.json": (r'(?m)^(  "version": ")([^"]+)"', 1),
    "clients/typescript/package-lock.json": (r'("name": "ckptsidecar",\n +"version": ")([^"]+)"', 2),
    "clients/typescript/src/version.ts": (r"(?m)^(export const version = ')([^']+)'", 1),
}
CHANGES = "CHANGELOG.md"


def set_versions(version):
    """Writes the version into all files, after it has found its place in each."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        sys.exit(f"release.py: a version is three numbers, such as 1.2.3, for npm and PyPI alike; got {version}")
    texts = {}
    for name, (pattern, times) in VERSIONS.items():
        texts[name], found = re.subn(pattern, lambda m: m[0].replace(m[2], version), (ROOT / name).read_text(encoding="utf-8"))
        if found != times:
            sys.exit(f"release.py: {name} names its version {found} times, not {times}: mend VERSIONS in packaging/release.py")
    changes = (ROOT / CHANGES).read_text(encoding="utf-8")
    if not heading(changes, version):
        texts[CHANGES] = re.sub(r"(?m)^## (?!Unreleased$)", f"## {version}\n\n## ", changes, count=1)
    for name, text in texts.items():
        (ROOT / name).write_text(text, encoding="utf-8")
    check(version)


def check(version=None):
    """All files name one version. Where it is given, as for a release, the change-log has a part about it too."""
    stand = {name: [found[1] for found in re.findall(pattern, (ROOT / name).read_text(encoding="utf-8"))] for name, (pattern, _) in VERSIONS.items()}
    want = version or next(iter(stand.values()))[0]
    wrong = [f"{name} says {' and '.join(says) or 'nothing'}, not {want}" for name, says in stand.items() if says != [want] * VERSIONS[name][1]]
    if version and not heading((ROOT / CHANGES).read_text(encoding="utf-8"), version):
        wrong.append(f"{CHANGES} has no part \"## {version}\"")
    if wrong:
        sys.exit("\n".join([*(f"release.py: {line}" for line in wrong), f"packaging/release.py set {want} mends this"]))
    print(want)


def heading(changes, version):
    return re.search(rf"(?m)^## {re.escape(version)}$", changes)


def wheel(out):
    """The Python client as a wheel, from the backend that `pip install ./clients/python` uses."""
    sys.path.insert(0, str(ROOT / "clients/python/backend"))
    import ckptsidecar_build

    ckptsidecar_build.build_wheel(out)


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
    {"set": set_versions, "check": check, "wheel": wheel, "sbom": sbom, "provenance": provenance}[sys.argv[1]](*sys.argv[2:])
