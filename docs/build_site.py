"""Build the pages of this checkout as one version of a site of several versions.

    python docs/build_site.py [--version 1.2] [--out docs/_build/site]

The version is built into OUT/VERSION and replaces what is there as a whole, once it was built
without a warning. Other versions stay. OUT then has

- versions.json: each version with its pages, the newest first,
- versions.js: the same as a script, for the list of versions in the pages,
- index.html, which leads to the newest release, or, without one, to the newest version.

It needs what `pip install '.[docs]'` installs, and no network. The site is a folder of files: it
can be opened from the disk or copied to any web server.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version  # Sphinx depends on it

import gpuprof

DOCS = Path(__file__).resolve().parent
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")
_INDEX = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>gpuprof</title>
<meta http-equiv="refresh" content="0; url={url}">
<link rel="canonical" href="{url}">
</head>
<body><a href="{url}">gpuprof {version}</a></body>
</html>
"""


def default_version() -> str:
    """Return the folder of this checkout's version: a release by its number, the others `dev`."""
    found = Version(gpuprof.__version__)
    return found.public if not (found.is_devrelease or found.local) else "dev"


def _parsed(name: str) -> Version | None:
    try:
        return Version(name)
    except InvalidVersion:
        return None


def _age(name: str) -> tuple[bool, Version]:
    # Names that are no versions, such as `dev`, come after all versions.
    found = _parsed(name)
    return found is not None, found or Version("0")


def newest(names: list[str]) -> str:
    """Return the version that a reader wants who names none."""
    ordered = sorted(names, key=_age, reverse=True)
    releases = [name for name in ordered if (parsed := _parsed(name)) and not parsed.is_prerelease]
    return (releases or ordered)[0]


def build(version: str, out: Path, source: Path = DOCS) -> None:
    """Build one version, and replace the one of that name if there is no warning."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".building-") as folder:
        html = Path(folder) / "html"
        settings = ["-D", f"release={version}", "-D", f"version={version}"]
        settings += ["-D", f"html_title=gpuprof {version}", "-A", f"site_version={version}"]
        subprocess.run(
            [
                *(sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"),
                *("-c", DOCS, "-d", Path(folder) / "doctrees", *settings, source, html),
            ],
            check=True,
        )
        (html / ".buildinfo").unlink(missing_ok=True)
        if (out / version).exists():
            (out / version).rename(Path(folder) / "old")
        html.rename(out / version)


def write_versions(out: Path) -> list[dict[str, Any]]:
    """Write what leads to the versions that are in the folder; return them, the newest first."""
    folders = [path.parent for path in out.glob("*/index.html")]
    names = [path.name for path in folders if _is_name(path.name)]
    first = newest(names)
    versions = [
        {
            "version": name,
            "newest": name == first,
            "pages": sorted(
                path.relative_to(out / name).as_posix() for path in (out / name).rglob("*.html")
            ),
        }
        for name in sorted(names, key=_age, reverse=True)
    ]
    text = json.dumps(versions, indent=1)
    (out / "versions.json").write_text(f"{text}\n", encoding="utf-8")
    (out / "versions.js").write_text(f"window.gpuprofVersions = {text};\n", encoding="utf-8")
    shown = {"url": escape(f"{first}/index.html"), "version": escape(first)}
    (out / "index.html").write_text(_INDEX.format(**shown), encoding="utf-8")
    (out / ".nojekyll").touch()  # GitHub Pages would leave out folders that begin with _
    return versions


def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Build the pages as one version of a site.")
    parser.add_argument("--version", help="a release, or a name such as dev; default: %(default)s")
    parser.add_argument("--out", type=Path, help="the folder of the site; default: %(default)s")
    parser.add_argument("--source", type=Path, help="the folder of the pages; default: docs")
    parser.set_defaults(version=default_version(), out=DOCS / "_build" / "site", source=DOCS)
    options = parser.parse_args()
    if not _is_name(options.version):
        parser.error(
            f"--version is {options.version!r}; expected letters, digits, '.', '_' and '-', "
            "as in 1.2, beginning with a letter or digit"
        )
    return options


def main() -> int:
    """Build the version, list all of them, and say where they are."""
    options = _arguments()
    try:
        build(options.version, options.out, options.source)
    except subprocess.CalledProcessError:
        sys.stderr.write(f"{options.version} was not built; the site is as it was\n")
        return 1
    versions = [each["version"] for each in write_versions(options.out)]
    sys.stdout.write(f"{options.out / 'index.html'}: {', '.join(versions)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
