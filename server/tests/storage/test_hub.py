"""Datasets of a hub: commits, tokens, redirects to addresses that expire, and splits."""

from __future__ import annotations

import io
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import forebay as fb
from harness.daemon import LOOPBACK, Daemon, environment, run_to_end
from harness.hub import Blob, Hub
from harness.refusals import refusal
from harness.serving import info, raw_table, server_binary

NAME, TOKEN = "lab/reviews", "hf_not-to-be-seen-anywhere"
URL = f"hf://datasets/{NAME}"
PLAN = {"outputs": [{"name": "x", "dtype": "INT64", "parts": [{"columns": ["x"]}]}]}


def parquet(first: int, rows: int, groups: int = 4, metadata: dict[str, str] | None = None) -> bytes:
    table = pa.table({"x": np.arange(first, first + rows), "label": np.arange(rows) % 2})
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), sink, row_group_size=max(rows // groups, 1))
    return sink.getvalue()


FILES = {
    "README.md": b"# Reviews",
    "data/train-00000-of-00002.parquet": parquet(0, 3000),
    "data/train-00001-of-00002.parquet": parquet(3000, 2000),
    "data/test-00000-of-00001.parquet": parquet(10_000, 500),
}


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub whose files are at another address, as the Hub's are."""
    with Hub(large=1) as running:
        yield running


class Served:
    """A server of datasets of a hub."""

    def __init__(self, hub: Hub, state: Path, datasets: dict[str, str], **variables: str) -> None:
        flags = [f"--dataset={name}={url}" for name, url in datasets.items()]
        env = {"HF_ENDPOINT": hub.url, "HF_HOME": str(state / "no-login"), **variables}
        self.daemon = Daemon(*LOOPBACK, "--state", str(state / "state"), *flags, env=env)
        self.client = fl.connect(self.daemon.url)

    def values(self, dataset: str) -> list[int]:
        return raw_table(self.client, dataset)["x"].to_pylist()

    def reader(self, dataset: str, **request: Any) -> fl.FlightStreamReader:
        flight = info(self.client, {"dataset": dataset, "plan": PLAN, "batch_size": 100, **request})
        return self.client.do_get(flight.endpoints[0].ticket)

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.daemon.stop()


def test_the_hubs_own_client_reads_this_hub(hub: Hub):
    """The hub of these tests answers as that client expects of the real one."""
    import huggingface_hub

    repository = hub.add(NAME, FILES, token=TOKEN)
    api = huggingface_hub.HfApi(endpoint=hub.url, token=TOKEN)
    assert api.dataset_info(NAME, revision="main").sha == repository.revisions["main"]
    listed = [one.path for one in api.list_repo_tree(NAME, repo_type="dataset", recursive=True) if hasattr(one, "size")]
    assert sorted(listed) == sorted(FILES)
    url = huggingface_hub.hf_hub_url(NAME, "README.md", repo_type="dataset", endpoint=hub.url)
    found = huggingface_hub.get_hf_file_metadata(url, token=TOKEN)
    assert (found.size, found.commit_hash) == (len(FILES["README.md"]), repository.revisions["main"])


def test_files_are_read_where_the_hub_redirects_to_without_the_token(hub: Hub, tmp_path: Path):
    hub.add(NAME, FILES, token=TOKEN)
    datasets = {"train": f"{URL}/data/train-*", "test": f"{URL}/data/test-00000-of-00001.parquet"}
    with Served(hub, tmp_path, datasets, HF_TOKEN=TOKEN) as served:
        assert served.values("train") == list(range(5000))
        assert served.values("test") == list(range(10_000, 10_500))
        text = "\n".join(served.daemon.lines)
    assert TOKEN not in text
    assert {request.authorization for request in hub.requests} == {f"Bearer {TOKEN}"}
    assert hub.elsewhere_requests
    assert {request.authorization for request in hub.elsewhere_requests} == {None}
    # Each file is asked for once: its place is known from then on.
    resolved = [request.path for request in hub.requests if "/resolve/" in request.path and request.method == "GET"]
    assert len(resolved) < len(hub.elsewhere_requests)
    assert len(set(resolved)) <= 3


def test_places_that_expire_are_asked_for_again(hub: Hub, tmp_path: Path):
    hub.add(NAME, {"a.parquet": parquet(0, 100_000, groups=50)})
    with Served(hub, tmp_path, {"a": f"{URL}/a.parquet"}, HF_TOKEN="") as served:
        # Opened with the places of the footer.
        reader = served.reader("a", shuffle=True, seed=1)
        seen = []
        for number, chunk in enumerate(reader):
            seen += chunk.data["x"].to_pylist()
            if number % 100 == 0:
                hub.forget_places()
        assert sorted(seen) == list(range(100_000))


def test_a_stream_keeps_its_commit_and_new_ones_see_the_next(hub: Hub, tmp_path: Path):
    repository = hub.add(NAME, {"a.parquet": parquet(0, 50_000, groups=50)})
    with Served(hub, tmp_path, {"a": f"{URL}/a.parquet"}) as served:
        flight = info(served.client, {"dataset": "a", "plan": PLAN, "batch_size": 100})
        snapshot = json.loads(flight.app_metadata)["snapshot"]
        reader = served.client.do_get(flight.endpoints[0].ticket)
        seen = reader.read_chunk().data["x"].to_pylist()
        repository.commit({"a.parquet": repository.head()["a.parquet"], "README.md": b"new"})
        again = info(served.client, {"dataset": "a", "plan": PLAN, "batch_size": 100})
        assert json.loads(again.app_metadata)["snapshot"] == snapshot, "the rows are the same"
        repository.commit({"a.parquet": parquet(7, 300)})
        assert served.values("a") == list(range(7, 307))
        for chunk in reader:
            seen += chunk.data["x"].to_pylist()
        assert seen == list(range(50_000))


def test_a_commit_that_vanishes_is_a_changed_snapshot(hub: Hub, tmp_path: Path):
    repository = hub.add(NAME, {"a.parquet": parquet(0, 200_000, groups=100)})
    with Served(hub, tmp_path, {"a": f"{URL}/a.parquet"}) as served:
        reader = served.reader("a")
        seen = [reader.read_chunk().data]
        repository.commits.clear()
        repository.commit({"a.parquet": parquet(7, 300)})
        hub.forget_places()
        error = refusal(lambda: seen.extend(chunk.data for chunk in reader))
        assert (error.code, error.reason) == ("ABORTED", "SNAPSHOT_CHANGED"), error
        got = np.concatenate([batch["x"].to_numpy() for batch in seen])
        assert np.array_equal(got, np.arange(len(got)))
        assert served.values("a") == list(range(7, 307))


def test_a_place_with_another_file_is_a_changed_snapshot(hub: Hub, tmp_path: Path):
    """A hub whose commits are rewritten in place: the hash of the file tells."""
    repository = hub.add(NAME, {"a.parquet": parquet(0, 200_000, groups=100)})
    with Served(hub, tmp_path, {"a": f"{URL}/a.parquet"}) as served:
        reader = served.reader("a")
        reader.read_chunk()
        (files,) = repository.commits.values()
        files["a.parquet"] = Blob(parquet(1, 200_000, groups=100))
        hub.forget_places()
        error = refusal(reader.read_all)
        assert (error.code, error.reason) == ("ABORTED", "SNAPSHOT_CHANGED"), error


def test_revisions_are_branches_tags_and_commits(hub: Hub, tmp_path: Path):
    repository = hub.add(NAME, {"a.parquet": parquet(0, 10)})
    first = repository.revisions["main"]
    for number, revision in enumerate(["v1.0", "refs/convert/parquet", "fix/odd"], 1):
        repository.commit({"a.parquet": parquet(number * 100, 10)}, revision)
    repository.commit({"a.parquet": parquet(900, 10)})
    datasets = {
        "first": f"{URL}@{first}",
        "tag": f"{URL}@v1.0/a.parquet",
        "converted": f"{URL}@refs/convert/parquet/a.parquet",
        "short": f"{URL}@~parquet/*.parquet",
        "branch": f"{URL}@fix%2Fodd/a.parquet",
        "main": f"{URL}@main",
        "gone": f"{URL}@v2.0/a.parquet",
    }
    (tmp_path / "list.txt").write_text(f"{URL}@v1.0/a.parquet\n")
    datasets["listed"] = f"@{tmp_path}/list.txt"
    with Served(hub, tmp_path, datasets) as served:
        starts = {"first": 0, "tag": 100, "converted": 200, "short": 200, "branch": 300, "main": 900, "listed": 100}
        for name, start in starts.items():
            assert served.values(name) == list(range(start, start + 10)), name
        error = refusal(lambda: served.values("gone"))
    assert (error.code, error.reason) == ("FAILED_PRECONDITION", "EMPTY_DATASET"), error
    assert "RevisionNotFound" in str(error)


@pytest.mark.parametrize("given", ["token", "file", "login"])
def test_private_datasets_need_the_token(hub: Hub, tmp_path: Path, given: str):
    hub.add(NAME, {"a.parquet": parquet(0, 10)}, token=TOKEN)
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf/token").write_text(f"{TOKEN}\n")
    variables = {"token": {"HF_TOKEN": TOKEN}, "file": {"HF_TOKEN_PATH": f"{tmp_path}/hf/token"}}
    variables["login"] = {"HF_HOME": f"{tmp_path}/hf"}
    with Served(hub, tmp_path, {"a": URL}, **variables[given]) as served:
        assert served.values("a") == list(range(10))


@pytest.mark.parametrize("token", ["", "hf_of-somebody-else"])
def test_refused_tokens_are_not_shown(hub: Hub, tmp_path: Path, token: str):
    hub.add(NAME, {"a.parquet": parquet(0, 10)}, token=TOKEN)
    with Served(hub, tmp_path, {"a": URL, "missing": "hf://datasets/lab/none"}, HF_TOKEN=token) as served:
        for name in ("a", "missing"):
            error = refusal(lambda name=name: served.values(name))
            assert (error.code, error.reason) == ("FAILED_PRECONDITION", "STORE_REFUSED"), error
            assert "HF_TOKEN" in str(error)
            assert "RepoNotFound" in str(error)
            assert not token or token not in str(error)
        text = "\n".join(served.daemon.lines)
    assert not token or token not in text


def test_a_busy_hub_is_asked_again(hub: Hub, tmp_path: Path):
    hub.add(NAME, {"a.parquet": parquet(0, 10)})
    hub.refusals += [(429, {"Retry_After": "1"}), (503, {}), (500, {})]
    with Served(hub, tmp_path, {"a": URL}) as served:
        assert served.values("a") == list(range(10))


@pytest.mark.parametrize(
    "place",
    ["http://169.254.169.254/latest/meta-data", "http://[fe80::1]/x", "ftp://127.0.0.1/x", "http://0.0.0.0:1/x"],
)
def test_the_hub_does_not_choose_addresses_that_only_this_machine_reaches(hub: Hub, tmp_path: Path, place: str):
    hub.add(NAME, {"a.parquet": parquet(0, 10)})
    hub.place = place
    with Served(hub, tmp_path, {"a": f"{URL}/a.parquet"}) as served:
        error = refusal(lambda: served.values("a"))
    assert (error.code, error.reason) == ("FAILED_PRECONDITION", "STORE_REFUSED"), error
    assert "not followed" in str(error)


def test_redirects_without_end_are_not_followed(hub: Hub, tmp_path: Path):
    hub.add(NAME, {"a.parquet": parquet(0, 10)})
    revision = hub.repositories[NAME].revisions["main"]
    hub.place = f"{hub.url}/datasets/{NAME}/resolve/{revision}/a.parquet"
    with Served(hub, tmp_path, {"a": f"{URL}/a.parquet"}) as served:
        error = refusal(lambda: served.values("a"))
    assert "redirects more than" in str(error)


@pytest.mark.parametrize("url", ["hf://lab/reviews", "hf://datasets/reviews", "hf://datasets/../x", f"{URL}@/a"])
def test_other_urls_are_refused_at_start(url: str):
    ended = run_to_end("--dataset", f"a={url}")
    assert ended.returncode == 2
    assert url in ended.stderr
    assert "hf://" in ended.stderr


@pytest.mark.parametrize("endpoint", ["hub.example", "ftp://hub.example", "https://user:secret@hub.example"])
def test_endpoints_are_urls_without_credentials(endpoint: str):
    ended = run_to_end("--dataset", f"a={URL}", env={"HF_ENDPOINT": endpoint})
    assert ended.returncode == 2
    assert "HF_ENDPOINT" in ended.stderr
    assert "secret" not in ended.stderr


def test_splits_are_not_mixed(hub: Hub, tmp_path: Path):
    hub.add(NAME, FILES)
    with Served(hub, tmp_path, {"all": URL, "data": f"{URL}/data/", "meant": f"{URL}/**/*.parquet"}) as served:
        for name in ("all", "data"):
            error = refusal(lambda name=name: served.values(name))
            assert (error.code, error.reason) == ("FAILED_PRECONDITION", "EMPTY_DATASET"), error
            assert "the splits test, train" in str(error)
            assert f"{URL}/data/test-" in str(error)
        assert len(served.values("meant")) == 5500


class Serving:
    """`forebay serve`, until it says what it serves."""

    def __init__(self, place: str, state: Path, **variables: str) -> None:
        command = [str(Path(server_binary()).with_name("forebay")), "--json", "serve", place, "--port", "0"]
        self.process = subprocess.Popen(
            [*command, "--", "--state", str(state), "--drain-seconds", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment({"FOREBAY_SERVER_BIN": server_binary(), **variables}),
        )

    def __enter__(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.communicate(timeout=60)


def rows(said: dict[str, Any]) -> dict[str, int]:
    return {one["name"]: one["rows"] for one in said["datasets"]}


def test_serve_gives_each_split_of_a_dataset(hub: Hub, tmp_path: Path):
    hub.add(NAME, FILES)
    hub.add("lab/single", {"part-0.parquet": parquet(0, 10), "part-1.parquet": parquet(10, 10)})
    files = {f"{language}/train-00000-of-00001.parquet": parquet(0, 10) for language in ("de", "en")}
    hub.add("lab/languages", {**files, "en/test-00000-of-00001.parquet": parquet(0, 5)})
    cases = {
        URL: {"test": 500, "train": 5000},
        f"{URL}@main/data": {"test": 500, "train": 5000},
        "hf://datasets/lab/single": {"single": 20},
        "hf://datasets/lab/languages": {"de-train": 10, "en-test": 5, "en-train": 10},
    }
    for number, (url, want) in enumerate(cases.items()):
        with Serving(url, tmp_path / str(number), HF_ENDPOINT=hub.url) as said:
            assert rows(said) == want, url
            with fb.connect(said["url"]) as client:
                first = next(iter(want))
                assert client.head(first, 1).num_rows == 1


def test_serve_says_why_a_url_cannot_be_served(hub: Hub):
    command = [str(Path(server_binary()).with_name("forebay")), "serve", "hf://datasets/lab/none", "--port", "0"]
    env = environment({"FOREBAY_SERVER_BIN": server_binary(), "HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN})
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    assert ended.returncode == 2
    assert "RepoNotFound" in ended.stderr
    assert TOKEN not in ended.stderr


def test_a_folder_with_the_layout_of_a_hub_is_served_by_splits(tmp_path: Path):
    for path, body in FILES.items():
        place = tmp_path / "reviews [1]" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(body)
    for number, folder in enumerate(["reviews [1]", "reviews [1]/data"]):
        with Serving(str(tmp_path / folder), tmp_path / f"state-{number}") as said:
            names = {name.removeprefix("data-"): count for name, count in rows(said).items()}
            assert names == {"test": 500, "train": 5000}, folder


def test_a_folder_that_cannot_be_read_does_not_keep_others_from_being_divided(tmp_path: Path):
    for path, body in FILES.items():
        place = tmp_path / "all/reviews" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(body)
    (tmp_path / "all/link").mkdir()
    (tmp_path / "all/link/a.parquet").symlink_to(tmp_path / "secret.parquet")
    (tmp_path / "secret.parquet").write_bytes(parquet(0, 10))
    with Serving(str(tmp_path / "all"), tmp_path / "state") as said:
        assert set(rows(said)) == {"link", "reviews-test", "reviews-train"}


def test_patterns_have_no_splits(tmp_path: Path):
    for name in ("train.parquet", "test.parquet"):
        (tmp_path / name).write_bytes(parquet(0, 10))
    for url, count in ((str(tmp_path), 2), (f"{tmp_path}/*.parquet", 0), (f"{tmp_path}/train.parquet", 0)):
        ended = run_to_end("splits", "--dataset", f"a={url}")
        assert ended.returncode == 0, ended.stderr
        assert len(json.loads(ended.stdout)["splits"]) == count, url


def test_classes_have_the_names_that_the_library_wrote(hub: Hub, tmp_path: Path):
    features = {"x": {"dtype": "int64", "_type": "Value"}, "label": {"names": ["bad", "good"], "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    hub.add(NAME, {"a.parquet": parquet(0, 10, metadata=metadata)})
    with Served(hub, tmp_path, {"a": URL}) as served, fb.connect(served.daemon.url) as client:
        about = client.describe("a")
        assert about["label"].class_names == ("bad", "good")
        assert about["x"].class_names == ()
        batch = next(iter(client.stream("a", fb.Plan(outputs={"y": fb.label("label")}), batch_size=10)))
        assert [about["label"].class_names[value] for value in batch["y"][:3]] == ["bad", "good", "bad"]


def test_metrics_and_status_pages_do_not_show_the_token(hub: Hub, tmp_path: Path):
    import urllib.request

    hub.add(NAME, FILES, token=TOKEN)
    with Served(hub, tmp_path, {"train": f"{URL}/data/train-*"}, HF_TOKEN=TOKEN) as served:
        served.values("train")
        page = urllib.request.urlopen(served.daemon.metrics_url).read().decode()
    assert re.search(r"^forebay_storage_requests_total", page, re.M)
    assert TOKEN not in page
