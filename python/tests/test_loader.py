from __future__ import annotations

import json
import pickle
import threading
import time

import numpy as np
import pytest
import stoker


def content(batch: stoker.Batch) -> dict:
    """All that a batch holds, as bytes, and its name."""
    arrays = {name: array.tobytes() for name, array in batch.numpy().items()}
    return {"name": batch.name, "samples": batch.samples, **arrays}


def contents(loader) -> list[dict]:
    return [content(batch) for batch in loader]


def test_a_finite_run_has_the_length_it_says_and_every_sample(recipe):
    with stoker.Loader(recipe) as loader:
        batches = [batch.samples for batch in loader]
        assert len(batches) == len(loader)
    rows = {row for samples in batches for _, row in samples}
    assert rows == set(range(24))


def test_the_order_depends_on_the_seed_alone(recipe):
    first = contents(stoker.Loader(recipe))
    assert first == contents(stoker.Loader(recipe, overrides={"engine.workers": 1}))
    assert first != contents(stoker.Loader(recipe, overrides={"plan.seed": 7}))


def test_an_ended_loader_starts_the_run_again(recipe):
    loader = stoker.Loader(recipe)
    assert contents(loader) == contents(loader)


def test_a_loop_goes_on_where_the_last_one_stopped(recipe):
    straight = contents(stoker.Loader(recipe))
    loader = stoker.Loader(recipe)
    head = [content(next(loader)), content(next(loader))]
    assert head + contents(loader) == straight


def test_ranks_share_the_steps_of_one(recipe):
    alone = contents(stoker.Loader(recipe))
    ranks = [contents(stoker.Loader(recipe, rank=rank, world_size=2)) for rank in range(2)]
    assert [batch for step in zip(*ranks, strict=True) for batch in step] == alone


def test_resume_after_any_batch_equals_straight_run(recipe):
    loader = stoker.Loader(recipe)
    states, straight = [loader.state_dict()], []
    for batch in loader:
        straight.append(content(batch))
        states.append(loader.state_dict())
        assert batch.state_dict() == states[-1]
    assert len(states) == len(straight) + 1
    for done, state in enumerate(states):
        stored = json.loads(json.dumps(state))
        fresh = stoker.Loader(recipe)
        fresh.load_state_dict(stored)
        assert contents(fresh) == straight[done:], f"after {done} batches"
        loader.load_state_dict(stored)
        assert contents(loader) == straight[done:], f"after {done} batches, in place"


def test_an_endless_loader_has_no_length_and_is_true(recipe):
    del recipe["plan"]["epochs"]
    loader = stoker.Loader(recipe)
    with pytest.raises(TypeError, match=r"plan\.epochs"):
        len(loader)
    assert loader
    assert len([next(loader) for _ in range(20)]) == 20


def test_a_path_and_a_dict_are_the_same_recipe(recipe, tmp_path):
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(recipe))
    assert contents(stoker.Loader(path)) == contents(stoker.Loader(recipe))
    assert contents(stoker.Loader(str(path))) == contents(stoker.Loader(recipe))


def test_overrides_replace_values_by_path(recipe):
    loader = stoker.Loader(recipe, overrides={"pack.batch-size": 3, "plan.epochs": 2})
    assert next(loader)["input_ids"].shape[0] == 3
    recipe["pack"]["batch-size"] = 3
    recipe["plan"]["epochs"] = 2
    assert len(loader) == len(stoker.Loader(recipe))


def test_overrides_may_be_numbers_of_numpy(recipe):
    overrides = {"pack.batch-size": np.int64(3), "plan.seed": np.array(7, "uint8")}
    loader = stoker.Loader(recipe, overrides=overrides)
    assert contents(loader) == contents(
        stoker.Loader(recipe, overrides={"pack.batch-size": 3, "plan.seed": 7})
    )
    with pytest.raises(stoker.RecipeError, match=r"pack\.batch-size.*2\.5"):
        stoker.Loader(recipe, overrides={"pack.batch-size": np.float32(2.5)})


def test_a_loader_pickles_with_its_arguments_and_its_place(recipe):
    loader = stoker.Loader(recipe, rank=1, world_size=2, overrides={"plan.seed": 3})
    next(loader)
    copy = pickle.loads(pickle.dumps(loader))
    assert (copy.rank, copy.world_size) == (1, 2)
    assert copy.state_dict() == loader.state_dict()
    assert contents(copy) == contents(loader)


def test_closing_ends_iteration_and_keeps_report_and_state(recipe):
    with stoker.Loader(recipe) as loader:
        batch = next(loader)
        state = loader.state_dict()
    loader.close()
    with pytest.raises(stoker.StoppedError, match="closed"):
        next(loader)
    assert loader.state_dict() == state
    assert loader.report().samples == len(batch.samples)


def test_closing_from_another_thread_wakes_whoever_waits(stalled):
    loader = stoker.Loader(stalled)
    threading.Timer(0.5, loader.close).start()
    begun = time.monotonic()
    with pytest.raises(stoker.StoppedError):
        next(loader)
    assert 0.4 < time.monotonic() - begun < 2.0


def test_waiting_lets_other_threads_run(stalled):
    loader = stoker.Loader(stalled)

    def wait():
        with pytest.raises(stoker.StoppedError):
            next(loader)

    waiting = threading.Thread(target=wait)
    waiting.start()
    begun, turns = time.monotonic(), 0
    while time.monotonic() - begun < 0.5:
        turns += 1
        time.sleep(0.001)
    loader.close()
    waiting.join(2.0)
    assert not waiting.is_alive()
    assert turns > 50


def test_the_report_has_numbers_and_words(recipe):
    with stoker.Loader(recipe) as loader:
        batches = [len(batch.samples) for batch in loader]
        report = loader.report()
    assert report.samples == sum(batches)
    assert report.wait.batches == len(batches) - 1
    assert report.as_dict()["wait"]["ratio"] == report.wait.ratio
    assert {room.room for room in report.rooms} >= {"fetch", "image", "vision", "text", "pack"}
    assert "the trainer waited" in str(report)


def test_the_numbers_of_a_report_are_flat_for_those_who_plot_them(recipe):
    with stoker.Loader(recipe) as loader:
        next(loader)
        early = loader.report().stats()
        list(loader)
        report = loader.report()
    stats = report.stats()
    assert all(type(value) is float for value in stats.values())
    assert stats["stoker/samples"] == report.samples == 24
    assert stats["stoker/wait/ratio"] == report.wait.ratio
    busy = {room.room: room.busy_seconds for room in report.rooms}
    assert stats["stoker/rooms/vision/busy_seconds"] == busy["vision"]
    assert stats["stoker/fetch/requests"] == report.fetch.requests
    assert "stoker/wait/ratio" not in early, "of a single batch there is none"
    assert early.keys() < stats.keys()
    assert report.stats("data.").keys() == {"data." + name[7:] for name in stats}


def test_the_words_of_a_report_follow_from_its_numbers(recipe):
    with stoker.Loader(recipe) as loader:
        for batches in (0, 4):
            for _ in range(batches):
                next(loader)
            report = loader.report()
            stored = json.loads(json.dumps(report.as_dict()))
            assert stoker._native._report_words(stored) == str(report)
    with pytest.raises(ValueError, match="wait"):
        stoker._native._report_words({})


def test_all_problems_of_a_recipe_are_told_at_once(recipe):
    recipe["vision"]["pixels"] = "f16"
    recipe["pack"]["batchsize"] = 4
    with pytest.raises(stoker.RecipeError) as caught:
        stoker.Loader(recipe)
    assert {problem.path for problem in caught.value.problems} >= {"vision.pixels"}
    assert len(caught.value.problems) == 2
    assert "batch-size" in str(caught.value)
    assert isinstance(caught.value, stoker.StokerError)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert copy.problems == caught.value.problems
    assert str(copy) == str(caught.value)


def test_a_missing_source_is_named(recipe):
    recipe["dataset"]["source"] = "/nowhere/chats.jsonl"
    with pytest.raises(stoker.StokerError, match="/nowhere/") as caught:
        stoker.Loader(recipe)
    assert caught.value.uri == "/nowhere/chats.jsonl"


def test_an_index_that_can_not_be_written_is_the_disks_fault(recipe, tmp_path):
    (tmp_path / "file").touch()
    recipe["dataset"]["index-dir"] = str(tmp_path / "file")
    with pytest.raises(stoker.DatasetError, match="can't be written") as caught:
        stoker.Loader(recipe)
    assert caught.value.kind == "disk"


def test_a_store_that_refuses_is_a_fetch_error(recipe, tmp_path):
    line = json.dumps(
        {
            "messages": [
                {"role": "user", "content": [{"type": "image", "image": "s3://bucket/a.jpg"}]},
                {"role": "assistant", "content": "A"},
            ]
        }
    )
    (tmp_path / "chats.jsonl").write_text(line + "\n")
    recipe["dataset"]["source"] = str(tmp_path / "chats.jsonl")
    recipe["fetch"] = {"endpoint": "http://127.0.0.1:9", "anonymous": True, "attempts": 2}
    with pytest.raises(stoker.FetchError) as caught:
        next(stoker.Loader(recipe))
    assert caught.value.kind == "transient"
    assert caught.value.attempts == 2
    assert caught.value.uri == "s3://bucket/a.jpg"


def test_a_bad_sample_stops_the_run_where_the_recipe_says_so(recipe, folder, tmp_path):
    bad = tmp_path / "bad.jpg"
    bad.write_bytes((folder / "0-0.jpg").read_bytes()[:200])
    line = {
        "messages": [
            {"role": "user", "content": [{"type": "image", "image": str(bad)}]},
            {"role": "assistant", "content": "A"},
        ]
    }
    (tmp_path / "chats.jsonl").write_text(json.dumps(line) + "\n")
    recipe["dataset"]["source"] = str(tmp_path / "chats.jsonl")
    recipe["engine"]["on-bad-sample"] = "stop"
    with pytest.raises(stoker.SampleError) as caught:
        next(stoker.Loader(recipe))
    assert caught.value.sample == (0, 0)
    assert caught.value.room == "image"
    assert "chats.jsonl" in caught.value.origin


def test_a_batch_over_the_memory_limit_is_a_budget_error(recipe):
    recipe["engine"]["memory"] = "16MiB"
    recipe["vision"] = {"min-pixels": 1 << 20, "max-pixels": 2 << 20}
    with pytest.raises(stoker.BudgetError, match=r"engine\.memory") as caught:
        next(stoker.Loader(recipe))
    assert caught.value.needed > caught.value.limit


def test_too_many_bad_samples_are_a_dataset_error_that_names_the_first(recipe, tmp_path):
    line = {
        "messages": [
            {"role": "user", "content": [{"type": "image", "image": "nowhere.jpg"}]},
            {"role": "assistant", "content": "A"},
        ]
    }
    good = {"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]}
    rows = [line] * 20 + [good] * 60
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe["dataset"]["source"] = str(tmp_path / "chats.jsonl")
    recipe["plan"]["shuffle"] = "none"
    with pytest.raises(stoker.DatasetError, match=r"bad-sample-limit") as caught:
        contents(stoker.Loader(recipe))
    assert "nowhere.jpg" in str(caught.value)
    loader = stoker.Loader(recipe, overrides={"engine.bad-sample-limit": 1.0})
    assert len(contents(loader)) == len(loader)
    assert loader.report().replaced >= 20


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"rank": 0}, TypeError),
        ({"world_size": 2}, TypeError),
        ({"rank": 2, "world_size": 2}, ValueError),
        ({"rank": -1, "world_size": 2}, ValueError),
    ],
)
def test_half_a_rank_or_an_impossible_one_is_refused(recipe, arguments, error):
    with pytest.raises(error, match="rank"):
        stoker.Loader(recipe, **arguments)


def test_the_rank_is_what_the_launcher_says_unless_given(recipe, monkeypatch):
    assert stoker.Loader(recipe).world_size == 1
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    loader = stoker.Loader(recipe)
    assert (loader.rank, loader.world_size) == (1, 2)
    loader = stoker.Loader(recipe, rank=0, world_size=1)
    assert (loader.rank, loader.world_size) == (0, 1)


@pytest.mark.parametrize("environment", [{"WORLD_SIZE": "2"}, {"RANK": "x", "WORLD_SIZE": "2"}])
def test_half_a_rank_in_the_environment_is_refused(recipe, monkeypatch, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="WORLD_SIZE=2"):
        stoker.Loader(recipe)
    assert stoker.Loader(recipe, rank=0, world_size=1).world_size == 1


def test_the_rank_is_that_of_torch_distributed_if_it_is_initialised(recipe, monkeypatch, tmp_path):
    from torch import distributed

    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        loader = stoker.Loader(recipe)
        assert (loader.rank, loader.world_size) == (0, 1)
    finally:
        distributed.destroy_process_group()


def test_a_recipe_must_be_a_document(recipe):
    for other in (["not", "a", "recipe"], b"recipe.toml", None):
        with pytest.raises(TypeError, match=rf"path.*or a dict, not .*{type(other).__name__}"):
            stoker.Loader(other)
    with pytest.raises((TypeError, ValueError)):
        stoker.Loader(recipe | {"model": np.float32})
