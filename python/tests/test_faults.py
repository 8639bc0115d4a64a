"""A store that goes wrong as it is told, and a loader that reads from it."""

import pytest
import stoker
from stoker._native import S3Server

RESET = {"keys": "*.jpg", "requests": [1, 1], "share": 0.2, "fault": {"kind": "reset", "at": 100}}


@pytest.fixture
def remote(recipe, folder, tmp_path, monkeypatch):
    """The recipe's data in a store, and the store."""
    server = S3Server(profile="none", faults={"seed": 2, "rules": [RESET]})
    for file in folder.iterdir():
        server.put("data", file.name, file.read_bytes())
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_access_key)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    source = {"source": "s3://data/chats.jsonl", "index-dir": str(tmp_path)}
    fetch = {"endpoint": server.endpoint, "attempts": 5}
    yield recipe | {"dataset": source, "fetch": fetch}, server
    server.close()


def pixels(recipe):
    with stoker.Loader(recipe) as loader:
        seen = [batch.torch()["pixel_values"].clone() for batch in loader]
        return seen, loader.report().fetch


def test_faults_that_pass_are_found_among_the_retries_and_nowhere_else(recipe, remote):
    faulty, server = remote
    expected, _ = pixels(recipe)
    seen, fetch = pixels(faulty)
    assert len(seen) == len(expected)
    assert all(one.equal(other) for one, other in zip(seen, expected, strict=True))
    [(name, failed)] = server.injected().items()
    assert name == "reset-body"
    # Of a late request and its second one, either may fail unheard where the other answers.
    assert 0 < fetch.retries <= failed <= fetch.retries + fetch.hedges
    server.set_faults(None)
    assert server.injected() == {}
    assert pixels(faulty)[1].retries == 0


def test_a_fault_that_stays_ends_the_run_by_the_name_of_what_failed(remote):
    recipe, server = remote
    gone = {"keys": "*/7-0.jpg", "fault": {"kind": "status", "status": 500}}
    server.set_faults({"rules": [gone]})
    with pytest.raises(stoker.FetchError, match=r"HTTP 500.* after 5 attempts.*s3://data/7-0\.jpg"):
        pixels(recipe)
    assert server.injected() == {"status-500": 5}


def test_faults_that_are_none_are_refused_with_what_there_is(remote):
    _, server = remote
    with pytest.raises(ValueError, match="unknown variant `resett`, expected one of `refuse`"):
        server.set_faults({"rules": [{"fault": {"kind": "resett"}}]})
    with pytest.raises(ValueError, match="unknown field `rule`"):
        S3Server(faults={"rule": 3})
