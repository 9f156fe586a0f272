"""The package's own imports, which go one way, and its public names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import forebay as fb

PACKAGE = Path(fb.__file__).parent
# Each imports from itself and from those before it; the adapters, the last, from all. All import errors.
LAYERS = ("_show", "_plan", "_client", "_dataset")
PUBLIC = {
    *("dali", "datasets", "errors", "grain", "jax", "lightgbm", "lightning", "pyg", "ray", "sklearn", "tensorflow"),
    *("torch", "transformers", "udf", "xgboost"),
}
NAMES_MAX = 40


def layer(module: str) -> int:
    """The place of a module, named without the package, among the layers; that of the adapters for others."""
    top = module.split(".")[0]
    return LAYERS.index(top) if top in LAYERS else len(LAYERS)


def imported(path: Path) -> list[str]:
    """The modules of the package that a file imports, named without the package."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [name.name.removeprefix("forebay.") for name in node.names if name.name.startswith("forebay.")]
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "forebay":
            names = [name.name for name in node.names] if node.module == "forebay" else [str(node.module)[8:]]
            found += names
    return found


@pytest.mark.parametrize("folder", LAYERS)
def test_imports_go_one_way(folder: str) -> None:
    files = sorted((PACKAGE / folder).rglob("*.py"))
    assert len(files) > 3
    upward = {
        f"{path.relative_to(PACKAGE)} imports {module}"
        for path in files
        for module in imported(path)
        if module not in {"_native", "errors"} and layer(module) > LAYERS.index(folder)
    }
    assert upward == set()


def test_the_public_modules_are_the_package_its_errors_and_the_adapters() -> None:
    modules = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert {module for module in modules if not module.startswith("_")} == PUBLIC


def test_names_are_few_and_exist() -> None:
    assert len(set(fb.__all__)) == len(fb.__all__) <= NAMES_MAX
    assert all(hasattr(fb, name) for name in fb.__all__)
