"""Scopes, timers, captures, replays, faults, forks and switches in any order, against a model.

The model is told what was done and says what the statistics, the paths and the driver's books must
be. ``GPUPROF_FUZZ=N`` runs it N times as long, with other examples each time.
"""

from __future__ import annotations

import gc
import os
import traceback
import warnings
from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import gpuprof
from gpuprof import errors
from tests.fake_driver.control import FakeCuda
from tests.support.cuda import kinds_alive
from tests.support.fuzzing import bounded
from tests.support.held import release_idle, scopes
from tests.support.model_objects import Capture, Entry, Graph, Marks
from tests.support.scopes import path_here, spanning

US = 1_000
STREAMS = st.sampled_from([0, 1])
FREE = 2  # a stream that no step leaves in a capture: the others often are in one
ANY_STREAM = st.sampled_from([0, 1, FREE])
REFUSES = st.sampled_from([False, False, False, True])
NAMES = st.sampled_from("abc")
PICK = st.integers(0, 7)
Row = tuple[tuple[str, ...], str]  # names and clock
REFUSED = "cuEventRecord@1={0};cuEventRecordWithFlags@1={0}"


class LeaveError(Exception):
    """What leaves a scope or a capture other than by its end."""


class AnyOrder(RuleBasedStateMachine):
    fake: FakeCuda

    @initialize(eager=st.booleans(), shared=st.booleans())
    def begin(self, eager: bool, shared: bool) -> None:
        """Without `eager` the statistics are read only now and then, so that samples pile up.

        With `shared` all visits of a name and stream are of one scope, else each is of its own.
        """
        self.eager = eager
        self.shared = shared
        self.scopes: dict[tuple[str, int], gpuprof.Scope] = {}
        self.streams = [self.fake.stream_create() for _ in range(3)]
        with gpuprof.timer("first", stream=self.streams[0]):
            pass  # a child of a process that never used the driver may use it itself
        gpuprof.flush()
        self.fake.configure("mode=manual")
        gpuprof.reset()
        self.on = True
        self.epoch = 0
        self.entries: list[Entry] = []  # open ones, in the order of entering
        self.captures: dict[int, Capture] = {}
        self.graphs: list[Graph] = []
        self.timers: list[Marks] = []
        self.rows: Counter[tuple[Row, str]] = Counter()
        # By stream what the GPU has not reached: the row, the epoch, and what it is going to be.
        self.queued: list[list[tuple[Row, int, str]]] = [[], [], []]

    # What the model says

    def names(self) -> tuple[str, ...]:
        placed = [entry for entry in self.entries if entry.placed]
        return placed[-1].names if placed else ()

    def count(self, row: Row, epoch: int, what: str) -> None:
        if epoch == self.epoch:
            self.rows[row, what] += 1

    def opening(self, stream: int, refused: bool) -> str:
        """What becomes of a scope that is entered on the stream now."""
        capture = self.captures.get(stream)
        if capture is not None and (capture.broken or capture.holder is None):
            return "skipped"
        if capture is not None and capture.timers == "strip":
            return "skipped"
        return "failed" if refused else "open"

    def closing(self, entry: Entry, refused: bool) -> str:
        """What becomes of a scope that is left now."""
        if entry.fate != "open":
            return entry.fate
        if entry.clock == "cpu":
            return "done"
        now = self.captures.get(entry.scope[1])
        if now is not entry.capture or refused or (now is not None and now.broken):
            return "failed"
        return "pending" if now is None else "captured"

    # Scopes

    @rule(
        scopes=st.lists(st.tuples(NAMES, st.sampled_from([-1, 0, 1])), min_size=1, max_size=4),
        refused=st.sampled_from([0, 0, 0, 2, 400]),
    )
    def enter_some(self, scopes: list[tuple[str, int]], refused: int) -> None:
        for name, stream in scopes:
            self.enter(name, stream, refused)

    def scope(self, name: str, stream: int) -> gpuprof.Scope:
        options = {"backend": "cpu"} if stream < 0 else {"stream": self.streams[stream]}
        made = gpuprof.timer(name, **options)  # type: ignore[arg-type]
        return self.scopes.setdefault((name, stream), made) if self.shared else made

    def enter(self, name: str, stream: int, refused: int) -> None:
        holder = spanning(self.scope(name, stream))
        with self.fake.faults(REFUSED.format(refused) if refused else ""):
            sample = next(holder)
        key = name, stream
        capture = self.captures.get(stream)
        if not self.on:
            again = self.shared and any(e.placed and e.scope == key for e in self.entries)
            entry = Entry(key, sample, holder, self.names(), again, self.epoch, "disabled")
        else:
            fate = "open" if stream < 0 else self.opening(stream, refused != 0)
            names = (*self.names(), name)
            entry = Entry(key, sample, holder, names, True, self.epoch, fate, capture)
            assert sample.path == "/".join(names)
        self.entries.append(entry)
        assert sample.state == entry.fate

    @precondition(lambda self: self.entries)
    @rule(pick=PICK, raises=st.booleans(), refused=st.sampled_from([0, 0, 0, 2, 201]))
    def leave(self, pick: int, raises: bool, refused: int) -> None:
        entry = self.entries.pop(-1 - pick % len(self.entries))
        with self.fake.faults(REFUSED.format(refused) if refused else ""):
            if raises:
                with pytest.raises(LeaveError):
                    entry.holder.throw(LeaveError)
            else:
                assert next(entry.holder, None) is None
        state = self.closing(entry, refused != 0)
        assert entry.sample.state == state
        row = entry.names, entry.clock
        if state == "captured":
            assert entry.capture is not None
            entry.capture.scopes.append(entry.names)
        elif state == "pending":
            self.queued[entry.scope[1]].append((row, entry.epoch, "failed" if raises else "count"))
        elif state != "disabled":
            what = "failed" if state == "done" and raises else state.replace("done", "count")
            self.count(row, entry.epoch, what)

    # Timers

    @precondition(lambda self: len(self.timers) < 3)
    @rule(stream=STREAMS)
    def make_timer(self, stream: int) -> None:
        self.timers.append(Marks(gpuprof.Timer("cuda", self.streams[stream]), stream))

    @precondition(lambda self: self.timers)
    @rule(pick=PICK)
    def set_a_mark(self, pick: int) -> None:
        marks = self.timers[pick % len(self.timers)]
        if marks.stream in self.captures:
            return
        if not marks.started or marks.ended:
            marks.timer.record_start()
            marks.started, marks.ended = True, False
            assert marks.timer.elapsed_ms() == 0.0
        else:
            marks.timer.record_end()
            marks.ended = True

    @precondition(lambda self: self.timers)
    @rule(pick=PICK)
    def close_timer(self, pick: int) -> None:
        marks = self.timers.pop(pick % len(self.timers))
        marks.timer.close()
        with pytest.raises(errors.InvalidStateError):
            marks.timer.record_start()

    # Captures

    @rule(
        stream=STREAMS,
        timers=st.sampled_from(["last", "collect", "strip", "foreign"]),
        mode=st.sampled_from(["global", "thread_local", "relaxed"]),
        refused=REFUSES,
    )
    def begin_capture(self, stream: int, timers: str, mode: str, refused: bool) -> None:
        handle = self.streams[stream]
        if timers == "foreign":
            if stream not in self.captures:
                self.fake.begin_capture(handle, ["global", "thread_local", "relaxed"].index(mode))
                self.captures[stream] = Capture(stream)
            return
        block = gpuprof.capture(handle, timers=timers, mode=mode, name="graph")  # type: ignore[arg-type]
        holder = spanning(block)
        if stream in self.captures or refused:
            with self.fake.faults("cuStreamBeginCapture@1=2" if refused else ""):
                with pytest.raises((errors.CudaError, errors.InvalidStateError)):
                    next(holder)
            return
        guard = next(holder)
        self.fake.work(handle, US)
        self.captures[stream] = Capture(stream, timers, holder, guard)

    @precondition(lambda self: self.captures)
    @rule(pick=PICK)
    def break_capture(self, pick: int) -> None:
        capture = [*self.captures.values()][pick % len(self.captures)]
        assert self.fake.stream_query(self.streams[capture.stream]) in {900, 901}
        capture.broken = True

    @precondition(lambda self: self.captures)
    @rule(pick=PICK, how=st.sampled_from(["end", "end", "raise", "cuGraphInstantiateWithFlags"]))
    def end_capture(self, pick: int, how: str) -> None:
        capture = [*self.captures.values()][pick % len(self.captures)]
        del self.captures[capture.stream]
        if capture.holder is None:
            handle = self.streams[capture.stream]
            if capture.broken:
                self.fake.call("cuStreamEndCapture", handle, bytes(8), expect=901)
            else:
                self.fake.graph_destroy(self.fake.end_capture(handle))
            return
        try:
            with self.fake.faults(f"{how}@1=2" if how.startswith("cu") else ""):
                if how == "raise":
                    capture.holder.throw(LeaveError)
                else:
                    next(capture.holder, None)
        except LeaveError:
            assert how == "raise"
        except errors.GpuprofError:
            assert capture.broken or how.startswith("cu")
        else:
            assert capture.guard is not None
            made = capture.guard.graph
            self.graphs.append(Graph(made, capture.timers, capture.scopes))
            assert how == "end"
            assert not capture.broken

    # Graphs

    @rule(
        timers=st.sampled_from(["last", "collect", "collect", "strip"]),
        names=st.lists(NAMES, max_size=2),
        launches=st.lists(st.tuples(ANY_STREAM, REFUSES), max_size=3),
    )
    def make_graph(self, timers: str, names: list[str], launches: list[tuple[int, bool]]) -> None:
        self.begin_capture(FREE, timers, "relaxed", False)
        for name in names:
            self.enter(name, FREE, 0)
            self.leave(0, False, 0)
        self.end_capture([*self.captures].index(FREE), "end")
        for stream, refused in launches:
            self.launch(-1, stream, refused)

    @precondition(lambda self: self.graphs)
    @rule(pick=PICK, stream=ANY_STREAM, refused=REFUSES)
    def launch(self, pick: int, stream: int, refused: bool) -> None:
        each = self.graphs[pick % len(self.graphs)]
        try:
            with self.fake.faults("cuGraphLaunch@1=2" if refused else ""):
                each.graph.launch(self.streams[stream])
        except errors.GpuprofError:
            assert refused or stream in self.captures
            if refused and stream not in self.captures and self.collects(each):
                self.count(((*self.names(), "graph"), "cuda"), self.epoch, "failed")
            return
        assert not refused
        assert stream not in self.captures
        each.replays += 1
        if self.collects(each):
            for names in ((*self.names(), "graph"), *each.scopes):
                self.queued[stream].append(((names, "cuda"), self.epoch, "count"))

    def collects(self, each: Graph) -> bool:
        return each.timers == "collect" and self.on

    @precondition(lambda self: self.graphs)
    @rule(pick=PICK)
    def close_graph(self, pick: int) -> None:
        each = self.graphs.pop(pick % len(self.graphs))
        each.graph.close()
        with pytest.raises(errors.InvalidStateError):
            each.graph.launch(self.streams[0])

    # The process

    @rule(stream=STREAMS)
    def work(self, stream: int) -> None:
        self.fake.work(self.streams[stream], 5 * US)

    # Of both, because what another stream has queued before is over by then, too.
    @precondition(lambda self: not self.captures)
    @rule()
    def reach_the_end(self) -> None:
        for stream, queue in enumerate(self.queued):
            self.fake.complete(self.streams[stream])
            for row, epoch, what in queue:
                self.count(row, epoch, what)
            queue.clear()

    def switch(self, on: bool) -> None:
        (gpuprof.enable if on else gpuprof.disable)()
        self.on = on

    # As one rule, so that most steps are calls of a program.
    @rule(what=st.sampled_from(["on", "off", "reset", "collect", "let go", "fork"]))
    def act_on_the_process(self, what: str) -> None:
        if what == "reset":
            gpuprof.reset()
            self.rows.clear()
            self.epoch += 1
        elif what == "fork":
            self.fork()
        elif what == "collect":
            gc.collect()
        elif what == "let go":
            release_idle()
        else:
            self.switch(what == "on")

    def fork(self) -> None:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                self.as_a_child()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    def as_a_child(self) -> None:
        warnings.simplefilter("ignore")
        calls = self.fake.calls()
        row = (*self.names(), "child"), "cuda"
        gpuprof.enable()
        with gpuprof.timer("child", stream=self.streams[0]) as sample:
            pass
        assert sample.state == "failed"
        gpuprof.flush()
        for each in self.graphs:
            each.graph.close()
        while self.entries:
            next(self.entries.pop().holder, None)
        assert gpuprof.stats(wait=False)[row].failed == 1
        assert self.fake.calls() == calls

    # What must hold

    @rule()
    def look(self) -> None:
        expected = +self.rows
        for queue in self.queued:
            for row, epoch, _ in queue:
                if epoch == self.epoch:
                    expected[row, "pending"] += 1
        found: Counter[tuple[Row, str]] = Counter()
        for row in gpuprof.stats(wait=False).values():
            key = row.names, row.clock
            found[key, "count"] = row.time.count
            assert row.host.count == row.time.count
            for what in ("failed", "skipped", "dropped", "pending"):
                found[key, what] = getattr(row, what)
        assert +found == expected
        assert {key for key, _ in found} == {key for key, _ in expected}

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "streams"):
            return
        if self.on:
            assert path_here() == "/".join(self.names())
        for entry in self.entries:
            assert entry.sample.state == entry.fate
        for number, handle in enumerate(self.streams):
            capture = self.captures.get(number)
            expected = 0 if capture is None else 2 if capture.broken else 1
            assert self.fake.capture_status(handle) == expected
        for each in self.graphs:
            assert each.graph.num_replays == each.replays
        report = self.fake.report()
        assert report["thread_mode"] == 0
        assert report["context_depth"] == 1
        assert len(report["live"]["exec"]) == len(self.graphs)
        if self.eager:
            self.look()

    def teardown(self) -> None:
        if not hasattr(self, "streams"):
            return
        try:
            while self.captures:
                self.end_capture(0, "end")
            while self.entries:
                self.leave(0, False, 0)
            self.reach_the_end()
            self.look()
        finally:
            self.clean_up()
        assert path_here() == ""
        assert release_idle() == 0
        assert {kind: len(each) for kind, each in kinds_alive(self.fake).items()} == {"primary": 1}

    def clean_up(self) -> None:
        """Leave nothing to the next example, also where this one failed."""
        self.fake.script("")
        self.fake.configure("mode=auto")
        self.switch(True)
        for capture in [*self.captures.values()]:
            if capture.holder is not None:
                capture.holder.close()
            else:
                self.end_capture(0, "end")
        for entry in self.entries:
            entry.holder.close()
        for marks in self.timers:
            marks.timer.close()
        for each in self.graphs:
            each.graph.close()
        gpuprof.flush()
        gpuprof.reset()
        scopes.clear()  # a named scope holds its last sample
        for what in (self.entries, self.timers, self.graphs, self.scopes):
            what.clear()
        gc.collect()
        for handle in self.streams:
            self.fake.stream_destroy(handle)


def test_any_order_of_calls_agrees_with_the_model(fake: FakeCuda) -> None:
    AnyOrder.fake = fake
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_state_machine_as_test(AnyOrder, settings=bounded(100, steps=40))
