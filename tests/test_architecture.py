"""The import table, the sizes and the promises of design.md and style.md, read from the code itself."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Protocol, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import byheart
from byheart import cli, config, errors, fakes, interfaces
from byheart.config import Config
from byheart.errors import ByheartError, ConfigError

ROOT = Path(byheart.__file__).parent
README = ROOT.parent.parent / "README.md"
LAYERS = {
    "words": ("types", "decisions", "reports", "errors"),
    "contract": ("config", "interfaces", "fakes"),
    "blocks": ("text",),
    "parts": ("corpus", "retrieval", "memory", "reader", "gate", "store"),
    "whole": ("engine",),
    "root": (
        "folder",
        "asking",
        "calibrating",
        "routing",
        "knowledge",
        "facts",
        "capacity",
        "library",
        "ingest",
        "learning",
        "grounds",
        "offering",
        "rewriting",
        "readers",
        "notices",
        "sizes",
        "imprint",
        "snapshots",
    ),
    "uses": ("train", "edit", "evaluate", "analysis"),
    "edges": (
        "serve",
        "cli",
        "cli_memory",
        "cli_report",
        "cli_research",
        "terminal",
        "show",
        "show_memory",
        "__main__",
    ),
}
ORDER = tuple(LAYERS)
APART = {"parts", "uses"}  # modules of these layers never import each other
REFUSED = {"utils", "util", "common", "helpers", "helper", "base", "manager", "misc"}
HEAVY = {"torch", "transformers", "tokenizers", "qdrant_client", "pypdfium2", "mammoth", "httpx", "bs4", "tqdm"}
FILES = sorted(ROOT.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> tuple[str, str]:
    noun = module.split(".")[1]
    return next((layer, noun) for layer, nouns in LAYERS.items() if noun in nouns)


def imports(tree: ast.AST) -> set[str]:
    """Return the modules that code imports, relative ones excluded by the linter."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are written from the package's root"
            module = str(node.module)
            found |= {module} | {
                f"{module}.{alias.name}" for alias in node.names if is_module(f"{module}.{alias.name}")
            }
    return found


def is_module(name: str) -> bool:
    path = ROOT.parent.joinpath(*name.split("."))
    return name.startswith("byheart.") and (path.with_suffix(".py").is_file() or (path / "__init__.py").is_file())


TREES = {name_of(path): ast.parse(path.read_text("utf-8")) for path in FILES}
INNER = {
    name: {found for found in imports(tree) if found.startswith("byheart.") and is_module(found)}
    for name, tree in TREES.items()
}


def may_import(importer: str, imported: str) -> bool:
    (layer, noun), (other_layer, other_noun) = layer_of(importer), layer_of(imported)
    if noun == other_noun:
        return True
    if layer == "whole":
        return other_layer in {"words", "contract"}
    if layer == other_layer:
        return layer not in APART
    return ORDER.index(other_layer) < ORDER.index(layer)


def test_every_module_has_its_place_in_the_table() -> None:
    known = {noun for nouns in LAYERS.values() for noun in nouns}
    assert {name.split(".")[1] for name in TREES if name != "byheart"} <= known


@pytest.mark.parametrize("module", sorted(set(TREES) - {"byheart"}))
def test_a_module_imports_only_what_the_table_allows(module: str) -> None:
    assert [found for found in sorted(INNER[module]) if not may_import(module, found)] == []


def test_the_table_itself_forbids_what_it_should() -> None:
    assert not may_import("byheart.retrieval.sqlite", "byheart.corpus.files")
    assert not may_import("byheart.types", "byheart.config")
    assert not may_import("byheart.engine", "byheart.retrieval.fusion")
    assert not may_import("byheart.train.reader", "byheart.evaluate.suites")
    assert may_import("byheart.knowledge", "byheart.engine")


def test_there_is_no_cycle() -> None:
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join((*path, module))
        if module not in done:
            for other in sorted(INNER.get(module, ())):
                visit(other, (*path, module))
            done.add(module)

    for module in sorted(TREES):
        visit(module, ())


def test_the_words_need_the_standard_library_only_and_the_contract_also_numpy() -> None:
    for layer, allowed in (("words", set[str]()), ("contract", {"numpy"})):
        for noun in LAYERS[layer]:
            outside = {name.split(".")[0] for name in imports(TREES[f"byheart.{noun}"])} - {"byheart", "__future__"}
            assert outside - set(sys.stdlib_module_names) <= allowed, noun


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_and_functions_stay_small_and_modules_say_what_they_own(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= 400
    assert path.stem not in REFUSED
    assert text.strip() == "" or ast.get_docstring(ast.parse(text))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < 60, f"{path.name}: {node.name} is too long"


def test_only_the_command_line_prints() -> None:
    for name, tree in TREES.items():
        calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
        assert name.startswith(("byheart.cli", "byheart.terminal")) or not [
            c.lineno for c in calls if c.func.id == "print"
        ], name  # type: ignore[attr-defined]


def python(code: str, *, where: Path | None = None) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=where)
    return done.stdout


def test_importing_byheart_loads_nothing_heavy_and_changes_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, os, logging, random, threading\n"
        "before = (random.getstate(), dict(os.environ), logging.root.handlers[:], threading.active_count())\n"
        "import byheart\n"
        "assert 'numpy' not in sys.modules, 'numpy'\n"
        "import byheart.cli, byheart.knowledge\n"
        f"assert not {HEAVY!r} & set(sys.modules), {HEAVY!r} & set(sys.modules)\n"
        "after = (random.getstate(), dict(os.environ), logging.root.handlers[:], threading.active_count())\n"
        "assert before == after\n"
    )
    python(code, where=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_help_is_instant() -> None:
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "byheart", "--help"], capture_output=True, check=True)
        seconds.append(time.perf_counter() - start)
    print(
        f"byheart --help: {statistics.median(seconds):.3f} s (wanted < 0.3 s; asserted with a margin for busy machines)"
    )
    assert statistics.median(seconds) < 0.6


def all_errors(kind: type[ByheartError] = ByheartError) -> list[type[ByheartError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in all_errors(child))]


def test_every_error_has_an_exit_code_of_its_family() -> None:
    for kind in all_errors():
        assert 1 <= cli.exit_code(kind("x")) <= 10
    for kind in ByheartError.__subclasses__():
        assert kind in cli.EXIT_CODES, f"{kind.__name__} has no exit code"
    assert len(set(cli.EXIT_CODES.values())) == len(cli.EXIT_CODES)


def test_the_drawn_error_tree_is_the_real_one() -> None:
    drawn: dict[str, str] = {}
    path: list[str] = []
    for line in str(errors.__doc__).splitlines():
        if found := re.match(r"    ([│├└─ ]*)(\w+Error)\b", line):
            depth = len(found[1]) // 4
            path[depth:] = [found[2]]
            drawn[found[2]] = path[depth - 1] if depth else "Exception"
    assert drawn == {kind.__name__: kind.__bases__[0].__name__ for kind in all_errors()}


def test_every_public_name_resolves_and_an_unknown_one_is_an_attribute_error() -> None:
    for name in byheart.__all__:
        assert getattr(byheart, name) is not None
    with pytest.raises(AttributeError, match="KnowledgeBase"):
        byheart.__getattr__("knowledge_base_")


def protocols() -> list[type]:
    kinds = [kind for _, kind in inspect.getmembers(interfaces, inspect.isclass)]
    return [k for k in kinds if k.__module__ == interfaces.__name__ and Protocol in k.__bases__]


@pytest.mark.parametrize("protocol", protocols(), ids=lambda kind: kind.__name__)
def test_every_protocol_has_a_shipped_fake_with_its_signatures(protocol: type) -> None:
    wanted = [name for name in vars(protocol) if not name.startswith("_")]
    kinds = [kind for _, kind in inspect.getmembers(fakes, inspect.isclass) if kind.__module__ == fakes.__name__]
    fitting = [kind for kind in kinds if all(hasattr(kind, name) for name in wanted)]
    assert fitting, f"no class of byheart.fakes has {wanted}"
    for name in wanted:
        if callable(vars(protocol)[name]):
            signatures = [list(inspect.signature(getattr(k, name)).parameters) for k in (protocol, fitting[0])]
            assert signatures[0] == signatures[1]


def commands() -> list[str]:
    actions = cli.parser()._subparsers._group_actions  # type: ignore[union-attr]
    return sorted(name for action in actions for name in action.choices)  # type: ignore[union-attr]


def test_every_command_is_in_the_readme_and_no_other() -> None:
    readme = README.read_text("utf-8") if README.is_file() else ""
    if "## Commands" not in readme:
        pytest.skip("the README has no section on commands yet")
    section = readme.split("## Commands")[1].split("\n## ")[0]
    assert sorted(set(re.findall(r"`byheart ([a-z]+)", section))) == commands()


def test_every_exit_code_is_in_the_readme() -> None:
    readme = README.read_text("utf-8")
    if "Exit codes" not in readme:
        pytest.skip("the README has no list of exit codes yet")
    listed = readme.split("Exit codes")[1].split("\n\n")[0]
    assert {int(n) for n in re.findall(r"\b\d+\b", listed)} == {0, *cli.EXIT_CODES.values(), cli.SOME_REFUSED, 130}


def all_settings() -> list[tuple[str, type, Any]]:
    parts = get_type_hints(Config)
    return [
        (f"{part}.{f.name}", get_type_hints(kind)[f.name], f.metadata)
        for part, kind in parts.items()
        for f in dataclasses.fields(kind)
    ]


def values(kind: type, metadata: Any) -> st.SearchStrategy[Any]:
    if metadata["choices"]:
        return st.sampled_from(metadata["choices"])
    if kind is str:
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    if kind is bool:
        return st.booleans()
    number = st.integers if kind is int else st.floats
    return number(metadata["low"], metadata["high"])


@pytest.mark.parametrize(("key", "kind", "metadata"), all_settings(), ids=lambda v: v if isinstance(v, str) else "")
@settings(max_examples=20)
@given(data=st.data())
def test_a_setting_comes_back_from_toml(key: str, kind: type, metadata: Any, data: st.DataObject) -> None:
    changed = Config().replace(key, data.draw(values(kind, metadata)))
    assert config.loads(config.dumps(changed)) == changed


@pytest.mark.parametrize(("key", "kind", "metadata"), all_settings(), ids=lambda v: v if isinstance(v, str) else "")
def test_every_setting_is_described_and_a_mistyped_one_names_it(key: str, kind: type, metadata: Any) -> None:
    part, name = key.split(".")
    assert metadata["doc"]
    if kind is not str and kind is not bool:
        assert metadata["low"] is not None
    with pytest.raises(ConfigError, match=re.escape(key)):
        Config().replace(f"{part}.{name[:-1] + name[-1] * 2}", 1)
    with pytest.raises(ConfigError, match=re.escape(f"[{part}]")):
        config.loads(f"[{part}x]\n")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("reader.passages", 0),
        ("reader.passages", "3"),
        ("reader.passages", True),
        ("reader.name", "gpt"),
        ("retrieval.b", 1.01),
        ("retrieval.b", float("nan")),
        ("encoder.name", 3),
        ("reader", 3),
        ("nothing.at_all", 3),
    ],
)
def test_a_setting_out_of_range_or_of_another_type_is_refused(key: str, value: object) -> None:
    with pytest.raises(ConfigError):
        Config().replace(key, value)


def test_toml_that_is_none_is_an_error_of_ours() -> None:
    for text in ("reader = 3", "[reader", "[reader]\npassages = "):
        with pytest.raises(ConfigError):
            config.loads(text)


def test_building_a_config_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Config().replace("encoder.name", "nowhere/to-be-found").replace("encoder.device", "cuda:7")
    assert list(tmp_path.iterdir()) == []
    assert importlib.import_module("byheart.config").Config() == Config()
