#!/usr/bin/env python3
"""What tools/package writes about a program, and the wheel: with the standard library alone, and the same bytes from the same commit.

usage:
  parts.py sbom NAME VERSION EPOCH PACKAGES OUT        software bill of materials (CycloneDX 1.5, JSON)
  parts.py copyright PACKAGES OUT TEXTS                Debian's copyright file; the licences' texts
  parts.py wheel NAME VERSION PLATFORM EPOCH TREE OUT  TREE/bin goes into scripts, TREE/share into data; OUT is a folder

PACKAGES is a file of `cargo tree --prefix none --format '{p}'` lines: what is linked into the program. `cargo metadata` is asked, offline, for the rest.
"""
import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import time
import uuid
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# A file with one of these names, at the top of a crate, has its licence.
LICENCE = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)


def metadata():
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--offline", "--all-features"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def linked(path):
    """Packages of the workspace's metadata that `path` lists, sorted by name and version."""
    wanted = set()
    with open(path) as lines:
        for line in lines:
            found = re.match(r"(\S+) v(\S+)", line)
            if found:
                wanted.add(found.groups())
    packages = [p for p in metadata()["packages"] if (p["name"], p["version"]) in wanted]
    missing = wanted - {(p["name"], p["version"]) for p in packages}
    if missing:
        sys.exit(f"parts.py: cargo metadata does not know {sorted(missing)}")
    return sorted(packages, key=lambda p: (p["name"], p["version"]))


def checksums():
    """Checksums of Cargo.lock: (name, version) -> sha256."""
    text = open(os.path.join(ROOT, "Cargo.lock")).read()
    found = {}
    for block in text.split("[[package]]")[1:]:
        fields = dict(re.findall(r'^(name|version|checksum) = "([^"]+)"$', block, re.MULTILINE))
        if "checksum" in fields:
            found[fields["name"], fields["version"]] = fields["checksum"]
    return found


def expression(package):
    # Old manifests have a slash where SPDX has OR.
    return (package["license"] or "").replace("/", " OR ").replace("  ", " ") or None


def sbom(name, version, epoch, packages, out):
    packages, sums = linked(packages), checksums()
    own = [p for p in packages if p["source"] is None]
    main = next(p for p in own if p["name"] == "takt")
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(epoch)))

    def component(package):
        purl = f"pkg:cargo/{package['name']}@{package['version']}"
        entry = {"type": "library", "bom-ref": purl, "name": package["name"], "version": package["version"], "purl": purl}
        if package["description"]:
            entry["description"] = " ".join(package["description"].split())
        if expression(package):
            entry["licenses"] = [{"expression": expression(package)}]
        if (package["name"], package["version"]) in sums:
            entry["hashes"] = [{"alg": "SHA-256", "content": sums[package["name"], package["version"]]}]
        if package["repository"]:
            entry["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
        return entry

    by_id = {p["id"]: f"pkg:cargo/{p['name']}@{p['version']}" for p in packages}
    graph = []
    for node in metadata()["resolve"]["nodes"]:
        if node["id"] in by_id:
            normal = [d["pkg"] for d in node["deps"] if any(k["kind"] is None for k in d["dep_kinds"])]
            graph.append({"ref": by_id[node["id"]], "dependsOn": sorted({by_id[d] for d in normal if d in by_id})})
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": "urn:uuid:" + str(uuid.uuid5(uuid.NAMESPACE_URL, f"{name} {version}")),
        "version": 1,
        "metadata": {
            "timestamp": stamp,
            "component": {
                "type": "application", "bom-ref": by_id[main["id"]], "name": name, "version": version,
                "licenses": [{"expression": expression(main)}],
            },
        },
        "components": [component(p) for p in packages if p is not main],
        "dependencies": sorted(graph, key=lambda node: node["ref"]),
    }
    with open(out, "w") as file:
        json.dump(bom, file, indent=1, sort_keys=True)
        file.write("\n")


def licence_files(package):
    folder = os.path.dirname(package["manifest_path"])
    named = [package["license_file"]] if package["license_file"] else []
    names = sorted({*named, *(n for n in os.listdir(folder) if LICENCE.match(n))})
    texts = []
    for name in names:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            texts.append(open(path, encoding="utf-8", errors="replace").read().strip() + "\n")
    return texts


def paragraph(text):
    return "\n".join(" " + (line.rstrip() or ".") for line in text.strip().splitlines())


def copyright_file(packages, out, texts):
    others = [p for p in linked(packages) if p["source"] is not None]
    by_text = {}
    for package in others:
        for text in licence_files(package):
            by_text.setdefault(text, []).append(f"{package['name']} {package['version']}")
    with open(texts, "w") as file:
        file.write("Licences of the Rust crates that are linked into takt. Each text is followed by the next; above it are the crates that come with it.\n")
        for text in sorted(by_text, key=lambda text: by_text[text]):
            file.write("\n" + "=" * 100 + "\n" + ", ".join(by_text[text]) + "\n" + "=" * 100 + "\n\n" + text)
    notice = open(os.path.join(ROOT, "NOTICE")).read()
    table = "\n".join(f"{p['name']} {p['version']}: {expression(p) or 'see its text'}" for p in others)
    with open(out, "w") as file:
        file.write(
            "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
            "Upstream-Name: takt\n"
            "Comment:\n" + paragraph(notice) + "\n .\n"
            " Rust crates that are linked, with the licence that each declares. Their texts are in third-party-licenses.txt.gz beside this file.\n .\n"
            + paragraph(table) + "\n\n"
            "Files: *\n"
            "Copyright: 2026 The Takt developers\n"
            "License: Apache-2.0\n\n"
            "License: Apache-2.0\n"
            " On Debian systems, the full text of the Apache License 2.0 is in\n"
            " /usr/share/common-licenses/Apache-2.0.\n"
        )


def wheel(name, version, platform, epoch, tree, out):
    tag = f"py3-none-{platform}"
    info = f"{name}-{version}.dist-info"
    readme = open(os.path.join(ROOT, "README.md")).read()
    files = {
        f"{info}/METADATA": (
            "Metadata-Version: 2.1\n"
            f"Name: {name}\nVersion: {version}\n"
            "Summary: Real-time Linux for robots: run it, prove it, keep it\n"
            "License: Apache-2.0\n"
            "Requires-Python: >=3.8\n"
            "Requires-Dist: onnxruntime\n"
            "Classifier: Operating System :: POSIX :: Linux\n"
            "Description-Content-Type: text/markdown\n\n" + readme
        ).encode(),
        f"{info}/WHEEL": (
            f"Wheel-Version: 1.0\nGenerator: takt tools/package\nRoot-Is-Purelib: false\nTag: {tag}\n"
        ).encode(),
    }
    for licence in ("LICENSE", "NOTICE"):
        files[f"{info}/licenses/{licence}"] = open(os.path.join(ROOT, licence), "rb").read()
    modes = {}
    for folder, folders, names in os.walk(tree):
        folders.sort()
        for file in sorted(names):
            path = os.path.join(folder, file)
            part, rest = os.path.relpath(path, tree).split(os.sep, 1)
            inside = {"bin": f"{name}-{version}.data/scripts/{rest}"}.get(part, f"{name}-{version}.data/data/{part}/{rest}")
            files[inside] = open(path, "rb").read()
            modes[inside] = 0o755 if part == "bin" else 0o644
    record = f"{info}/RECORD"
    rows = []
    for inside in sorted(files):
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[inside]).digest()).rstrip(b"=").decode()
        rows.append(f"{inside},sha256={digest},{len(files[inside])}")
    files[record] = ("\n".join([*rows, f"{record},,"]) + "\n").encode()
    path = os.path.join(out, f"{name}-{version}-{tag}.whl")
    # A zip has no dates before 1980.
    date = time.gmtime(max(int(epoch), 315532800))[:6]
    # What describes the wheel stands at its end.
    order = sorted(files, key=lambda inside: (inside.startswith(info), inside == record, inside))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for inside in order:
            entry = zipfile.ZipInfo(inside, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = (0o100000 | modes.get(inside, 0o644)) << 16
            archive.writestr(entry, files[inside])
    print(path)


COMMANDS = {"sbom": sbom, "copyright": copyright_file, "wheel": wheel}
if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__)
    COMMANDS[sys.argv[1]](*sys.argv[2:])
