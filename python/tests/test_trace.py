from __future__ import annotations

import gzip
import json
import time

import pytest
import stoker
import stoker.trace

STEPS = 4


def spans(trace: dict, name: str) -> list[tuple[float, float]]:
    """Begin and end of all spans of that name, in microseconds since 1970, in order."""
    base = trace.get("baseTimeNanoseconds", 0) / 1000
    found = [
        (base + event["ts"], base + event["ts"] + event["dur"])
        for event in trace["traceEvents"]
        if event.get("ph") == "X" and event["name"] == name
    ]
    return sorted(found)


def test_blocked_spans_lie_within_those_of_next_in_a_trace_of_torch(quick, tmp_path):
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    paths = [tmp_path / name for name in ("torch.json", "loader.json.gz", "both.json")]
    torch_file, loader_file, both_file = paths
    loader = stoker.Loader(quick)
    model = torch.nn.LazyLinear(64)
    with profile(activities=[ProfilerActivity.CPU]) as profiler, loader.trace(loader_file):
        for _ in range(STEPS):
            with record_function("next(loader)"):
                # Both read the clock in their own ways, some microseconds apart.
                time.sleep(0.005)
                batch = next(loader)
                time.sleep(0.005)
            with record_function("train"):
                model(batch.torch()["pixel_values"]).square().mean().backward()
                time.sleep(0.001)
    loader.close()
    profiler.export_chrome_trace(str(torch_file))
    stoker.trace.merge(torch_file, loader_file, both_file)

    both = json.loads(both_file.read_text())
    nexts, blocked = spans(both, "next(loader)"), spans(both, "trainer blocked")
    trained, had = spans(both, "train"), spans(both, "trainer has a batch")
    assert [len(found) for found in (nexts, blocked, trained)] == [STEPS] * 3
    for (begin, end), (from_, to) in zip(nexts, blocked, strict=True):
        assert begin <= from_ <= to <= end
    for (begin, end), (from_, to) in zip(trained, had, strict=False):
        assert from_ <= begin <= end <= to
    # Merged or not, the files say the same: they count from the same moment.
    alone = json.loads(gzip.decompress(loader_file.read_bytes()))
    profiled = json.loads(torch_file.read_text())
    assert alone["baseTimeNanoseconds"] == profiled["baseTimeNanoseconds"]
    assert spans(alone, "trainer blocked") == blocked
    # It is one process, and its threads keep the names that torch gave them.
    events = both["traceEvents"]
    ours = {event["pid"] for event in events if event.get("cat") == "stoker"}
    theirs = {event["pid"] for event in events if event["name"] == "train"}
    assert ours == theirs
    named = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert not any(name.startswith("stoker") for name in named)
    threads = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert "stoker, rank 0 of 1: trainer" in threads
    assert any(name.startswith("stoker-cpu-") for name in threads)


def test_merged_traces_are_on_the_clock_of_the_first(tmp_path):
    def event(name: str, ts: float) -> dict:
        return {"ph": "X", "name": name, "pid": 1, "tid": 2, "ts": ts, "dur": 1.0}

    def name(kind: str, what: str, thread: int) -> dict:
        return {"ph": "M", "name": kind, "pid": 1, "tid": thread, "args": {"name": what}}

    first = [event("a", 5.0), name("thread_name", "theirs", 2), name("process_name", "python", 0)]
    second = [event("b", 1.0), name("thread_name", "ours", 2), name("thread_name", "new", 3)]
    second.append(name("process_name", "stoker", 7))
    one, two, out = (tmp_path / name for name in ("one.json.gz", "two.json", "out.json.gz"))
    with gzip.open(one, "wt") as file:
        json.dump({"baseTimeNanoseconds": 1_000_000, "traceEvents": first, "host": "h"}, file)
    two.write_text(json.dumps({"baseTimeNanoseconds": 3_000_000, "traceEvents": second, "x": 1}))
    stoker.trace.merge(one, two, out)
    with gzip.open(out, "rt") as file:
        merged = json.load(file)
    assert merged["traceEvents"] == [*first, event("b", 2001.0), name("thread_name", "new", 3)]
    assert {key: merged[key] for key in ("baseTimeNanoseconds", "host", "x")} == {
        "baseTimeNanoseconds": 1_000_000,
        "host": "h",
        "x": 1,
    }
    # Without a base, times are since 1970; a bare list is the older form of a trace.
    one = tmp_path / "one.json"
    one.write_text(json.dumps([event("a", 2500.0)]))
    stoker.trace.merge(one, two, two)
    merged = json.loads(two.read_text())["traceEvents"]
    assert [known["ts"] for known in merged if known["ph"] == "X"] == [2500.0, 3001.0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is no trace: Expecting"),
        ("{}", "it has no list of traceEvents"),
        ('{"traceEvents": [], "baseTimeNanoseconds": "x"}', "baseTimeNanoseconds is 'x'"),
    ],
)
def test_what_is_no_trace_is_named(tmp_path, text, says):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text("[]")
    bad.write_text(text)
    with pytest.raises(ValueError, match=says) as error:
        stoker.trace.merge(good, bad, tmp_path / "out.json")
    assert "bad.json" in str(error.value)


def test_a_trace_ends_by_itself_with_its_block_or_with_the_loader(quick, tmp_path):
    loader = stoker.Loader(quick)
    paths = [tmp_path / f"{number}.json" for number in range(3)]
    first = loader.trace(paths[0], steps=2)
    assert (first.path, first.ended) == (paths[0], False)
    with pytest.raises(RuntimeError, match="records a trace already"):
        loader.trace(paths[1])
    for _ in range(3):
        next(loader)
    assert first.stop() == first.stop() == (2, 0)
    assert first.ended
    with loader.trace(paths[1], steps=100) as second:
        next(loader)
    assert second.ended
    loader.trace(paths[2])
    next(loader)
    loader.close()
    steps = [json.loads(path.read_text())["stoker"]["steps"] for path in paths]
    assert steps == [2, 1, 1]


def test_a_trace_that_can_t_be_made_is_refused_at_once(quick, tmp_path):
    loader = stoker.Loader(quick)
    with pytest.raises(FileNotFoundError, match=r"can't be written: .*none/trace\.json; give"):
        loader.trace(tmp_path / "none" / "trace.json")
    with pytest.raises(IsADirectoryError):
        loader.trace(tmp_path)
    for steps in (0, -1):
        with pytest.raises(ValueError, match="a trace has 1 step or more"):
            loader.trace(tmp_path / "trace.json", steps=steps)
    loader.close()


def test_a_traced_run_gives_the_same_batches(quick, tmp_path):
    def contents(loader: stoker.Loader) -> list[dict]:
        return [{name: a.tobytes() for name, a in batch.numpy().items()} for batch in loader]

    traced = stoker.Loader(quick)
    with traced.trace(tmp_path / "trace.json"):
        found = contents(traced)
    assert found == contents(stoker.Loader(quick))
