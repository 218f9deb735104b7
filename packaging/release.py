"""Parts of a release that need no tool but Python 3.9: see dist.sh.

python3 release.py wheel OUT                  the Python client as a wheel
python3 release.py sbom VERSION BINARY FILE   what a program is made of, as CycloneDX 1.5
python3 release.py provenance VERSION OUT     how the files of OUT were made, as in-toto

The same commit gives the same bytes: times come from SOURCE_DATE_EPOCH.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))


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
    {"wheel": wheel, "sbom": sbom, "provenance": provenance}[sys.argv[1]](*sys.argv[2:])
