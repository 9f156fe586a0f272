"""Every code block of every README runs as written, or is listed here with the reason why it does not.

Differences from the text, made by `Session` and by `test_a_document_runs_from_top_to_bottom`:

| written | replaced by |
|---|---|
| 127.0.0.1:8815, 127.0.0.1:9815 | the free ports of the server that the document started |
| feed-0:8815, feed-1:8815 | two servers of this test |
| target/release | the folder of the programs under test |
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest
import yaml

from harness.daemon import run_to_end
from harness.documents import documents
from harness.readmes import DATA, SHELLS, Block, Session, blocks, blocks_of, commands, readmes
from harness.repository import ROOT
from harness.serving import Serve, Server, fit

# Every README, and the page that the first one sends a reader to.
DOCUMENTS = [*readmes(), "docs/src/guides/getting-started.md"]
RUN = {"python", *SHELLS}
OUTPUT = {"", "text"}

SETS_UP = "installs packages and builds for minutes; `make test` and `make demo` do both"
MEASURES = "measures a release build for minutes"
MACHINE = "needs root and systemd on a machine"
CLUSTER = "needs a Kubernetes cluster"
CONTAINER = "needs a container engine and a registry"
# Document and beginning of the first line → reason.
NOT_RUN = {
    "README.md: make demo": SETS_UP,
    "README.md: make build": SETS_UP,
    "benches/cache/README.md: .venv/bin/python benches/cache": MEASURES,
    "benches/gpu/README.md: make gpu-kit": SETS_UP,
    "benches/kernels/README.md: make bench-kernels": MEASURES,
    "benches/peers/README.md: make bench-peers": MEASURES,
    "benches/ranks/README.md: .venv/bin/python benches/ranks": MEASURES,
    "benches/scan/README.md: .venv/bin/python -m harness": MEASURES,
    "benches/service/README.md: make bench-service": MEASURES,
    "benches/soak/README.md: make soak": MEASURES,
    "benches/images/README.md: .venv/bin/pip install": MEASURES,
    "benches/text/README.md: FOREBAY_SERVER_BIN=target/release/forebay-server .venv/bin/python benches/text": MEASURES,
    "benches/udf/README.md: FOREBAY_SERVER_BIN=target/release/forebay-server .venv/bin/python benches/udf": MEASURES,
    "benches/wire/README.md: cargo build --release": MEASURES,
    "benches/reads/README.md: .venv/bin/python benches/reads": MEASURES,
    "benches/wire/README.md: .venv/bin/python benches/wire/parquet.py": MEASURES,
    "benches/wire/README.md: .venv/bin/python benches/wire/tensors.py": MEASURES,
    "client/python/README.md: make build": SETS_UP,
    "docs/src/guides/getting-started.md: make demo": SETS_UP,
    "docs/src/guides/getting-started.md: make build": SETS_UP,
    "grafana/README.md: prometheus --config.file": "needs Prometheus and Grafana",
    "server/deploy/README.md: make build": MACHINE,
    "server/deploy/README.md: docker buildx build": CONTAINER,
    "server/deploy/README.md: docker buildx imagetools": CONTAINER,
    "server/deploy/README.md: kubectl create namespace": CLUSTER,
    "server/deploy/README.md: for host in feed-0 feed-1": MACHINE,
    "server/deploy/README.md: kubectl -n forebay set image": CLUSTER,
    "server/fuzz/README.md: cargo +nightly fuzz run": "needs Rust's nightly toolchain, and an input that failed",
}


def executable(document: str) -> list[Block]:
    """The blocks of a document that run: no output, no data, and not listed."""
    found = [block for block in blocks(document) if block.language not in OUTPUT | DATA]
    return [block for block in found if not any(block.name.startswith(listed) for listed in NOT_RUN)]


def test_every_readme_is_found():
    found = {str(path.relative_to(ROOT)) for path in documents() if path.name == "README.md"}
    assert found <= set(readmes())
    assert len(found) > 10


def test_every_listed_block_exists_once():
    names = [block.name for document in DOCUMENTS for block in blocks(document)]
    for listed in NOT_RUN:
        assert len([name for name in names if name.startswith(listed)]) == 1, f"no block, or several: {listed}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_block_has_a_language_that_runs(document: str):
    for block in blocks(document):
        assert block.language in RUN | DATA | OUTPUT, f"{block.place}: nothing runs or checks {block.language!r}"


@pytest.mark.parametrize("listed", NOT_RUN)
def test_a_listed_block_names_targets_files_and_options_that_exist(listed: str):
    document = listed.split(": ")[0]
    block = next(block for block in blocks(document) if block.name.startswith(listed))
    code = re.sub(r" #.*", "", block.code)
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"\bmake ([a-z-]+)", code):
        assert target in targets, f"{block.place}: make {target}"
    for path in re.findall(r"(?<![\w/.-])((?:server|client|grafana|benches|docs)/[\w./-]+)", code):
        assert (ROOT / path).exists(), f"{block.place}: {path}"
    for script, arguments in re.findall(r"python (\S+\.py)(.*)", code):
        sources = "".join(path.read_text() for path in (ROOT / script).parent.glob("*.py"))
        for option in re.findall(r"--[\w-]+", arguments):
            assert f'"{option}"' in sources, f"{block.place}: {script} has no {option}"


# === Running ===


def of_python_readme(session: Session) -> None:
    names = session.names
    assert names["data"].epoch == 3
    assert names["fitted"].vocab("cats", "carrier")[1] == "UA"
    assert list(names["sizes"])[1] == 4
    # numeric() but year, arr_time and arr_delay; the two delays.
    assert {name: tuple(value.shape)[1:] for name, value in names["batch"].items()} == {
        "numbers": (11,),
        "delays": (2,),
        "origin": (),
    }
    for text in ("standardize", "row_group", "rows in"):
        assert text in session.printed


def of_first_page(session: Session) -> None:
    names = session.names
    assert names["info"].total_records == 327_346
    assert names["header"]["last"] is True
    assert names["dense"].shape == (327_346 % 4096, 2)
    assert len(names["data"]) == -(-327_346 // 1024)
    assert names["data"].stats()["rows"] == 3 * 327_346
    shapes = {key: tuple(value.shape)[1:] for key, value in names["batch"].items()}
    assert shapes == {"dense": (2,), "cats": (3,), "label": ()}


def of_getting_started(session: Session) -> None:
    of_first_page(session)
    assert json.loads((session.folder / "fitted.json").read_text())["plan_id"] in session.printed
    assert "336776" in session.printed


def of_deployment(session: Session) -> None:
    assert session.names["data"].stats()["rows"] == 336_776


EFFECTS: dict[str, Callable[[Session], None]] = {
    "README.md": of_first_page,
    "client/python/README.md": of_python_readme,
    "docs/src/guides/getting-started.md": of_getting_started,
    "server/deploy/README.md": of_deployment,
}


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    begun = Session(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield begun
    begun.close()


def test_every_document_that_runs_has_an_expected_effect():
    assert {document for document in DOCUMENTS if executable(document)} == set(EFFECTS)


@pytest.mark.parametrize("document", EFFECTS)
def test_a_document_runs_from_top_to_bottom(
    document: str, session: Session, serve: Serve, flights_folder: Path, capsys: pytest.CaptureFixture[str]
):
    if document == "server/deploy/README.md":
        replicas = [serve({"flights": flights_folder}) for _ in range(2)]
        session.substitutions |= {f"grpc://feed-{n}:8815": replica.url for n, replica in enumerate(replicas)}
    for block in executable(document):
        session.run(block)
    session.printed += capsys.readouterr().out
    EFFECTS[document](session)


# === JSON, TOML and YAML, of the READMEs and the book ===


def check_data(block: Block, folder: Path, server: Server, tables: Path = Path("data")) -> None:
    """Parse a block. A plan must be accepted by a fit, and a configuration by `forebay-server check`.

    A configuration's datasets `data/…` are those in the folder of tables.
    """
    if block.language == "json":
        found = json.loads(block.code)
        if "outputs" in found:
            with fl.connect(server.url) as client:
                assert fit(client, "flights", found)[-1]["result"]["plan_id"]
    elif block.language == "yaml":
        assert list(yaml.safe_load_all(block.code))
    else:
        config = folder / "forebay.toml"
        config.write_text(re.sub(r'"data/(\w+)"', lambda named: f'"{tables / named[1]}"', block.code))
        checked = run_to_end("check", "--config", str(config))
        assert checked.returncode == 0, f"{block.place}: {checked.stderr}"


@pytest.fixture(scope="module")
def table_folder(flights: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables that the documents' plans and configurations name."""
    folder = tmp_path_factory.mktemp("tables")
    some = flights.slice(0, 1_000)
    numbers = pa.array([100] * len(some))
    tails = pa.array(sorted({tail for tail in some["tailnum"].to_pylist() if tail is not None}))
    built = pa.array([2000] * len(tails))
    written = {
        "flights": some.append_column("passengers", numbers),
        "planes": pa.table({"tailnum": tails, "year": built, "seats": built}),
    }
    for name, table in written.items():
        (folder / name).mkdir()
        pq.write_table(table, folder / name / "a.parquet")
    return folder


@pytest.fixture(scope="module")
def tables(serve: Serve, table_folder: Path) -> Server:
    """A server of these tables."""
    return serve({path.name: path for path in table_folder.iterdir()})


def test_every_block_of_data_is_valid(tables: Server, table_folder: Path, tmp_path: Path):
    pages = {str(path.relative_to(ROOT)) for path in documents()} | set(DOCUMENTS)
    found = [block for page in sorted(pages) for block in blocks(page) if block.language in DATA]
    assert found
    for block in found:
        check_data(block, tmp_path, tables, table_folder)


@pytest.mark.parametrize(
    ("language", "code", "error"),
    [
        ("json", '{"outputs": [{"name": "a", "parts": [{"columns": ["dep_dely"]}]}]}', pa.ArrowInvalid),
        ("json", "{", ValueError),
        ("toml", 'listen = ["127.0.0.1:0"]\nlisten_on = 1\n', AssertionError),
        ("yaml", "a: [", yaml.YAMLError),
    ],
)
def test_invalid_data_is_found(language: str, code: str, error: type[Exception], server: Server, tmp_path: Path):
    with pytest.raises(error):
        check_data(Block("page.md", 1, language, code), tmp_path, server)


def test_valid_configuration_is_accepted(server: Server, tiny_folder: Path, tmp_path: Path):
    check_data(Block("page.md", 1, "toml", f'[dataset]\ntiny = "{tiny_folder}"\n'), tmp_path, server)


# === The session itself ===


def test_blocks_have_their_language_line_and_text():
    text = "a\n\n```sh\none\n```\n\n- b\n  ```python\n  if two:\n      pass\n  ```\n\n```\nthree\n```\n"
    found = [(block.language, block.line, block.code) for block in blocks_of("a.md", text)]
    assert found == [("sh", 3, "one\n"), ("python", 8, "if two:\n    pass\n"), ("", 13, "three\n")]


def test_console_sessions_have_prompts_and_output():
    assert commands("console", "$ one\noutput\n$ two \\\n>   three\n") == "one\ntwo \\\n  three"
    assert commands("sh", "one\ntwo\n") == "one\ntwo\n"


def test_a_failed_command_is_an_error_with_its_output(session: Session):
    with pytest.raises(AssertionError, match=r"a.md:1: exit code 3:\nbefore"):
        session.run(Block("a.md", 1, "sh", "echo before\n(exit 3)\necho after\n"))


def test_a_python_error_is_raised(session: Session):
    with pytest.raises(NameError):
        session.run(Block("a.md", 1, "python", "absent\n"))


def test_every_process_of_a_session_ends_with_it(tmp_path: Path, tiny_folder: Path):
    begun = Session(tmp_path)
    code = f"target/release/forebay-server --dataset tiny={tiny_folder}\n"
    begun.run(Block("a.md", 1, "sh", code))
    address = begun.substitutions["127.0.0.1:8815"]
    with fl.connect(f"grpc://{address}") as client:
        assert list(client.list_flights())
    begun.close()
    with fl.connect(f"grpc://{address}") as client, pytest.raises(fl.FlightUnavailableError):
        list(client.list_flights())
