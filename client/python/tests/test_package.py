"""The package's own structure: imports without a circle, one class of each name, options and defaults named once."""

import ast
import re
import subprocess
import sys
from dataclasses import fields
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import forebay as fb
from forebay._client import options
from harness.repository import package_environment

PACKAGE = Path(fb.__file__).parent
DEFAULTS = Path(__file__).parents[3] / "proto/src/defaults.rs"


def module_name(path: Path) -> str:
    """The name of a module below the package: `plan`, `mllib.stage`; that of a subpackage is its folder's."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


MODULES = {module_name(path): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
# Modules without Python sources.
COMPILED = {"_native"}
FOLDERS = {module_name(path): path.parent.relative_to(PACKAGE).parts for path in PACKAGE.rglob("*.py")}


def imported(name: str) -> set[str]:
    """Modules of the package that a module imports anywhere: in functions and for type checking too."""
    found: set[str] = set()
    for node in ast.walk(MODULES[name]):
        if not isinstance(node, ast.ImportFrom) or node.level > 1:
            continue
        if node.level == 1:
            base = [*FOLDERS[name], *(node.module or "").split(".")]
        elif node.module and node.module.split(".")[0] == "forebay":
            base = node.module.split(".")[1:]
        else:
            continue
        base = [part for part in base if part]
        submodules = {".".join([*base, alias.name]) for alias in node.names} & set(MODULES)
        # Names of a module, unless they are modules themselves.
        if not COMPILED & {alias.name for alias in node.names}:
            found |= submodules or {".".join(base)}
    return found


def test_modules_import_each_other_without_a_circle():
    graph = {name: imported(name) for name in MODULES}
    translate, comparing = graph["_plan.translation.mllib.translate"], graph["_client.comparison.comparing"]
    assert {"_plan.translation.mllib.stage", "_client.comparison.cells"} <= translate | comparing
    assert set().union(*graph.values()) <= set(MODULES)
    # Raises CycleError, which names the circle.
    assert len(list(TopologicalSorter(graph).static_order())) == len(MODULES)


def reached(start: str) -> set[str]:
    """The module and all those of the package that it imports, directly or not."""
    found, pending = set[str](), {start}
    while pending:
        name = pending.pop()
        found.add(name)
        pending |= imported(name) - found
    return found


def libraries(node: ast.AST) -> set[str]:
    """Libraries that a statement imports, or a call of `framework`."""
    if isinstance(node, ast.Import):
        return {alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and not node.level:
        return {(node.module or "").split(".")[0]}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "framework":
        return {str(node.args[0].value).split(".")[0]} if isinstance(node.args[0], ast.Constant) else set()
    return set()


def importers(library: str) -> set[str]:
    """Modules that import a library."""
    return {name for name, tree in MODULES.items() for node in ast.walk(tree) if library in libraries(node)}


# Modules for a framework, and the libraries that they and the modules below them import.
ADAPTERS = {
    "torch": {"torch"},
    "lightning": {"lightning", "torch"},
    "transformers": {"transformers", "torch"},
    "datasets": {"datasets"},
    "tensorflow": {"tensorflow"},
    "jax": {"jax"},
    "grain": {"grain"},
    "xgboost": {"xgboost"},
    "lightgbm": {"lightgbm"},
    "ray": {"ray", "torch"},
    "pyg": {"torch_geometric", "torch"},
    "dali": {"nvidia"},
}
# The package of an adapter that is not named after it.
PACKAGES = {"pyg": "torch_geometric", "dali": "nvidia.dali"}
FRAMEWORKS = sorted(set().union(*ADAPTERS.values()))


@pytest.mark.parametrize("library", FRAMEWORKS)
def test_only_its_own_modules_import_a_framework(library: str):
    assert importers(library)
    adapters = [adapter for adapter, libraries in ADAPTERS.items() if library in libraries]
    others = [reached(adapter) for adapter in ADAPTERS if adapter not in adapters]
    assert importers(library) <= set().union(*map(reached, adapters)) - reached("__init__").union(*others)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_missing_framework_is_an_error_with_the_command_that_installs_it(adapter: str):
    package = PACKAGES.get(adapter, adapter)
    code = f"import sys; sys.modules[{package!r}] = None; import forebay.{adapter}"
    ended = subprocess.run([sys.executable, "-c", code], env=package_environment(), capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: forebay.{adapter} requires {package}, which is not installed: "
        f"pip install 'forebay[{adapter}]'"
    )


def test_importing_the_package_loads_no_framework():
    code = "import sys, forebay; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], env=package_environment(), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    loaded = {name.split(".")[0] for name in ended.stdout.split()}
    assert {"forebay", "pyarrow", "numpy"} <= loaded
    assert not loaded & {*FRAMEWORKS, "pandas", "polars", "duckdb", "sklearn", "scipy"}


def test_every_class_has_a_name_of_its_own():
    names = [node.name for tree in MODULES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_the_keywords_of_a_stream_are_the_fields_of_its_options():
    named = {field.name for field in fields(fb.StreamOptions)}
    assert set(options.StreamKeywords.__annotations__) == named
    assert set(options.DatasetKeywords.__annotations__) == named - {"world_size", "snapshot"}


def test_defaults_are_those_of_the_rust_crates():
    source = DEFAULTS.read_text()
    found = {
        name: int(value.replace("_", "")) for name, value in re.findall(r"pub const (\w+): u64 = ([\d_]+);", source)
    }
    names = ("BATCH_SIZE", "WORLD_SIZE", "WINDOW_ROWS", "LANES_MIN", "LANES_A_RANK", "LANES_MAX")
    assert found == {name: getattr(options, name) for name in names}
    given = fb.StreamOptions()
    assert (given.batch_size, given.world_size, given.remainder) == (found["BATCH_SIZE"], found["WORLD_SIZE"], "keep")
    assert [options.default_lanes(size) for size in (1, 2, 3, 5, 16, 10_000)] == [16, 16, 24, 40, 128, 60_000]
    for version in (1, 2):
        assert [options.default_lanes(size, version) for size in (1, 5, 16, 17)] == [16, 20, 16, 17]


def test_the_server_applies_the_same_defaults(client: fb.Client):
    plan = fb.Plan(outputs={"id": fb.cols("id")})
    for world_size in (1, 5, 17):
        with client.stream("tiny", plan, shuffle=True, world_size=world_size) as stream:
            assert stream.info.lanes == options.default_lanes(world_size)
            assert stream.info.window_rows == options.WINDOW_ROWS
            assert stream.step_rows == options.BATCH_SIZE * world_size
    kept = client.explain("tiny", plan, remainder="keep", batch_size=16)
    assert client.explain("tiny", plan, batch_size=16) == kept
    assert kept.rows == 100


def test_options_are_checked_before_any_request():
    assert fb.StreamOptions(batch_size=8.0, remainder="PAD").batch_size == 8  # type: ignore[arg-type]
    for wrong in ({"batch_size": 0}, {"world_size": 0}, {"epoch": -1}, {"window_rows": 0}, {"remainder": "most"}):
        with pytest.raises(fb.InvalidRequest, match=next(iter(wrong))):
            fb.StreamOptions(**wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="batch_size must be a whole number"):
        fb.StreamOptions(batch_size=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="shufle"):
        fb.StreamOptions(shufle=True)  # type: ignore[call-arg]
