"""Baselines in a git ref, which outlive a job of CI; ``git:refs/gpuprof`` is refs/gpuprof/runs.

The tree of the ref's commit holds the files of the baselines, whose lines are only ever added. So
what two machines have saved is merged by the union of their lines, and no run is lost.

The ref is moved only from the commit that was read, so that one of two processes that save at once
does it again.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpuprof._results.baselines import Baselines, FolderBaselines, Key, file_of, key_of
from gpuprof._results.result_files import check_size
from gpuprof.errors import BaselineError

PREFIX = "git:"
_OF_USERS = ("refs/heads/", "refs/tags/", "refs/remotes/", "refs/notes/", "refs/stash")
_TRIES = 20
_LOCAL_S, _NETWORK_S = 60.0, 300.0
# What git says of a push that came too late.
_TOO_LATE = ("fetch first", "non-fast-forward", "cannot lock ref", "incorrect old value")


def is_git(storage: str | Path) -> bool:
    return str(storage).startswith(PREFIX)


def opened(storage: str | Path) -> Baselines:
    """Return the baselines in a folder, or in a git ref; BaselineError if that cannot be one."""
    return GitBaselines(str(storage)) if is_git(storage) else FolderBaselines(storage)


class GitBaselines(Baselines):
    """The baselines in a ref of the repository around the working folder."""

    def __init__(self, storage: str) -> None:
        super().__init__(storage)
        self._ref = ref = storage.removeprefix(PREFIX)
        if not re.fullmatch(r"refs/[A-Za-z0-9_./-]+", ref) or f"{ref}/".startswith(_OF_USERS):
            message = f"{storage!r}: expected {PREFIX} and a ref of its own, as in git:refs/gpuprof"
            raise BaselineError(message)
        self._git("check-ref-format", ref)
        if ref.count("/") == 1:  # servers of git refuse such a short one
            self._ref = f"{ref}/runs"

    def place(self, key: Key) -> Path:
        return Path(f"{self.root}:{file_of(key)}")

    def sync(self, remote: str) -> str:
        """Fetch a remote's runs, join them with those here, and push; return what was done."""
        if remote.startswith("-"):
            message = f"{remote!r} is no remote of git"
            raise BaselineError(message)
        there = f"{self._ref}-of-the-remote"
        for _ in range(_TRIES):
            theirs = self._git("ls-remote", "--refs", remote, self._ref, seconds=_NETWORK_S)
            if theirs:
                what = f"+{self._ref}:{there}"
                options = ("--quiet", "--no-tags", "--no-write-fetch-head")
                self._git("fetch", *options, remote, what, seconds=_NETWORK_S)
                self._join(self._tip(there))
            ours = self._tip()
            if not ours:
                return f"nothing is saved in {self.root}, here and in {remote}"
            if theirs and ours == self._tip(there):
                return f"{self.root} is as in {remote}"
            what = f"{self._ref}:{self._ref}"
            _, failure = self._run("push", "--quiet", remote, what, seconds=_NETWORK_S)
            if not failure:
                return f"{self.root} is joined with that of {remote}, and pushed"
            if not any(each in failure for each in _TOO_LATE):
                message = f"{self.root}: git push failed: {failure}"
                raise BaselineError(message)
        message = f"{self.root}: others pushed to {remote} {_TRIES} times meanwhile; try again"
        raise BaselineError(message)

    def _join(self, theirs: str) -> None:
        """Take over the lines of another commit."""

        def joined(ours: str) -> bytes:
            found = self._run("merge-base", ours, theirs)[0] if ours else b""
            base = found.decode("ascii", "replace").strip()
            if base == theirs:
                return b""
            if base == ours:
                return f"reset {self._ref}\nfrom {theirs}\n".encode("ascii")
            here, there = (self._contents(self._files_of(each)) for each in (ours, theirs))
            added = {key: data.splitlines() for key, data in there.items()}
            return self._commit(here, added, [ours, theirs], "Join runs")

        self._move(joined)

    def _add(self, key: Key, lines: list[bytes], message: str) -> None:
        def longer(ours: str) -> bytes:
            files = self._files_of(ours)
            here = self._contents({key: files[key]} if key in files else {})
            return self._commit(here, {key: lines}, [ours] if ours else [], message)

        self._move(longer)

    def _move(self, commit: Callable[[str], bytes]) -> None:
        """Import the commit that `commit` makes from the ref's; again where others moved it."""
        for _ in range(_TRIES):  # git refuses a commit that is not on top of the ref's
            data = commit(self._tip())
            _, failure = self._run("fast-import", "--quiet", "--date-format=now", data=data)
            if not failure:
                return
        message = f"{self.root}: git fast-import failed {_TRIES} times: {failure}"
        raise BaselineError(message)

    def _commit(
        self,
        here: Mapping[Key, bytes],
        added: Mapping[Key, list[bytes]],
        parents: list[str],
        message: str,
    ) -> bytes:
        """Return the first parent's files, with the lines that are not yet in them, as a commit."""
        head = [
            f"commit {self._ref}",
            "committer gpuprof <gpuprof@localhost> now",
            f"data {len(message)}",
            message,
            *(f"{what} {parent}" for what, parent in zip(("from", "merge"), parents, strict=False)),
        ]
        parts = ["\n".join(head).encode("ascii")]
        for key, lines in added.items():
            every = dict.fromkeys([*here.get(key, b"").splitlines(), *lines])
            data = b"".join(line + b"\n" for line in every if line.strip())
            parts += [f"M 100644 inline {file_of(key)}\ndata {len(data)}".encode("ascii"), data]
        return b"\n".join([*parts, b""])

    def _tip(self, ref: str | None = None) -> str:
        """Return the ref's commit, or nothing without one."""
        found = self._git("for-each-ref", "--format=%(refname) %(objectname)", ref or self._ref)
        return dict(line.split() for line in found.splitlines()).get(ref or self._ref, "")

    def _files(self, name: str | None = None) -> dict[Key, str]:
        files = self._files_of(self._tip())
        return {key: blob for key, blob in files.items() if name in {None, key[0]}}

    def _files_of(self, commit: str) -> dict[Key, str]:
        """Return the objects of a commit's files by name and machine."""
        if not commit:
            return {}
        entries = self._git("ls-tree", "-r", "-z", commit).split("\0")
        pairs = [each.partition("\t")[::2] for each in entries if each]
        return {key: facts.split()[2] for facts, path in pairs if (key := key_of(path))}

    def _contents(self, files: Mapping[Key, str]) -> dict[Key, bytes]:
        if not files:
            return {}
        asked = "".join(f"{blob}\n" for blob in files.values()).encode("ascii")
        data, place, found = self._bytes("cat-file", "--batch", data=asked), 0, {}
        for key in files:
            line_end = data.index(b"\n", place)
            _, kind, *sizes = data[place:line_end].split()
            if kind != b"blob":  # it is missing, or another repository's commit
                message = f"{self.place(key)} is no file in this repository"
                raise BaselineError(message)
            size = int(sizes[0])
            check_size(self.place(key), size)
            found[key] = data[line_end + 1 : line_end + 1 + size]
            place = line_end + size + 2
        return found

    def _git(self, *arguments: str, **options: Any) -> str:
        """Return what git prints; BaselineError if it fails."""
        return self._bytes(*arguments, **options).decode("utf-8", "replace").strip("\n")

    def _bytes(self, *arguments: str, **options: Any) -> bytes:
        printed, failure = self._run(*arguments, **options)
        if failure:
            message = f"{self.root}: git {arguments[0]} failed: {failure}"
            raise BaselineError(message)
        return printed

    def _run(
        self, *arguments: str, data: bytes = b"", seconds: float = _LOCAL_S
    ) -> tuple[bytes, str]:
        """Return what git prints, and why it fails: no text if it does not."""
        environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        try:
            done = subprocess.run(
                ["git", *arguments],
                input=data,
                capture_output=True,
                env=environment,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            message = f"{self.root}: git {arguments[0]} took longer than {seconds:g} seconds"
            raise BaselineError(message) from None
        except OSError as error:
            message = f"{self.root} needs git, which cannot be run: {error.strerror or error}"
            raise BaselineError(message) from error
        if done.returncode == 0:
            return done.stdout, ""
        lines = done.stderr.decode("utf-8", "replace").split("\n")
        said = " ".join(line.strip() for line in lines if line.strip())
        return done.stdout, said.removeprefix("fatal: ") or f"exit code {done.returncode}"
