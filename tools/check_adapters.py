"""Check the adapters against sources of the frameworks, without installing or importing them.

For every function that an adapter replaces or relies on, looks whether the sources have it with the parameters that
the adapter expects. Not part of CI: it needs sources that CI does not fetch. ``--help`` says how to get them.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from gapscope_instrumentation.adapters import adapters, find
from gapscope_instrumentation.adapters.base import Target

HOW = """\
Where sources come from:
  released     pip download --no-deps -d sources torch vllm sglang megatron-core
               pip download --no-deps --no-binary deepspeed -d sources deepspeed
  in development   git clone --depth 1 ADDRESS sources/NAME
then
  python tools/check_adapters.py sources/*

A source is a wheel, a .tar.gz of a release, a folder that holds the package (at its top or up to two folders below), or
a git directory without a work tree (its HEAD is read). Wheels and archives are read as they are.
"""

FOLDERS_BELOW = ("", "*/", "*/*/")
UNNAMED = re.compile(r"arg\d+")  # what a method made in C++ calls a parameter that has no name
Found = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign


class Source:
    """One source of a framework: files by their path within the package."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> str | None:
        """Return the text of ``a/b/c.py``; None if the source does not have it."""
        raise NotImplementedError


class Folder(Source):
    """A folder of unpacked files."""

    def read(self, name: str) -> str | None:
        """Return the text of a file at one of the places where packages stand."""
        for below in FOLDERS_BELOW:
            for found in sorted(self.path.glob(below + name)):
                return found.read_text(encoding="utf-8")
        return None


class Listed(Source):
    """A source with a list of names."""

    def __init__(self, path: Path, names: Iterable[str]) -> None:
        super().__init__(path)
        self._names = {n for n in names if n.endswith((".py", ".pyi"))}
        self._above = sorted(
            {"/".join([*n.split("/")[:depth], ""]) for n in self._names for depth in (1, 2)} | {""}, key=len
        )

    def read(self, name: str) -> str | None:
        """Return the text of a file, at the top or up to two folders below it."""
        found = next((above + name for above in self._above if above + name in self._names), None)
        return None if found is None else self.content(found).decode("utf-8")

    def content(self, name: str) -> bytes:
        """Return a file of the list."""
        raise NotImplementedError


class Wheel(Listed):
    """A wheel, or another zip file."""

    def __init__(self, path: Path) -> None:
        self._zip = zipfile.ZipFile(path)
        super().__init__(path, self._zip.namelist())

    def content(self, name: str) -> bytes:
        """Return a file of the list."""
        return self._zip.read(name)


class Archive(Listed):
    """A tar file, compressed or not."""

    def __init__(self, path: Path) -> None:
        with tarfile.open(path) as tar:
            self._texts = {
                member.name: extracted.read()
                for member in tar
                if member.name.endswith((".py", ".pyi")) and (extracted := tar.extractfile(member)) is not None
            }
        super().__init__(path, self._texts)

    def content(self, name: str) -> bytes:
        """Return a file of the list."""
        return self._texts[name]


class Git(Listed):
    """The HEAD of a git directory."""

    def __init__(self, path: Path) -> None:
        self._git = ["git", f"--git-dir={path}"]
        names = subprocess.run(
            [*self._git, "ls-tree", "-r", "--name-only", "-z", "HEAD"], check=True, capture_output=True
        )
        super().__init__(path, names.stdout.decode().split("\0"))

    def content(self, name: str) -> bytes:
        """Return a file of the list."""
        return subprocess.run([*self._git, "show", f"HEAD:{name}"], check=True, capture_output=True).stdout


def open_source(path: Path) -> Source:
    """Return a source of whatever kind the path is.

    Raises:
        ValueError: It is none that is known.
    """
    if path.is_dir():
        return Git(path) if (path / "HEAD").is_file() and (path / "objects").is_dir() else Folder(path)
    if zipfile.is_zipfile(path):
        return Wheel(path)
    if path.is_file() and tarfile.is_tarfile(path):
        return Archive(path)
    raise ValueError(
        f"{path}: neither a folder, nor a git directory, a wheel or a tar file; --help says how to get sources"
    )


class Code:
    """The modules of one source, parsed when they are asked for."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._parsed: dict[str, ast.Module | None] = {}

    def module(self, name: str) -> ast.Module | None:
        """Return a module; the stub file of one that is made in C++; None if the source has neither."""
        if name not in self._parsed:
            at = name.replace(".", "/")
            texts = (self._source.read(at + end) for end in (".py", "/__init__.py", ".pyi", "/__init__.pyi"))
            text = next((t for t in texts if t is not None), None)
            self._parsed[name] = None if text is None else ast.parse(text)
        return self._parsed[name]

    def find(self, module: str, path: str, through: frozenset[tuple[str, str]] = frozenset()) -> list[Found]:
        """Return the definitions of a name in a module, through its imports and the bases of its classes.

        Returns:
            All of them: a stub file has one per overload. Empty if there are none.
        """
        tree = self.module(module)
        if tree is None or (module, path) in through:
            return []
        through |= {(module, path)}
        first, _, rest = path.partition(".")
        own = [node for node in _statements(tree.body) if _defines(node, first)]
        if not own:
            return self._imported(tree, module, path, through)
        if not rest:
            return own
        for node in own:
            if isinstance(node, ast.ClassDef):
                inside = [part for part in _statements(node.body) if _defines(part, rest)]
                if inside:
                    return inside
                for base in node.bases:
                    found = self.find(module, f"{ast.unparse(base)}.{rest}", through)
                    if found:
                        return found
        return []

    def _imported(self, tree: ast.Module, module: str, path: str, through: frozenset[tuple[str, str]]) -> list[Found]:
        first, dot, rest = path.partition(".")
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom):
                continue
            for name in node.names:
                if name.name == "*" or (name.asname or name.name) == first:
                    wanted = path if name.name == "*" else name.name + dot + rest
                    found = self.find(self._absolute(module, node), wanted, through)
                    if found:
                        return found
        return []

    def _absolute(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        is_package = self._source.read(module.replace(".", "/") + "/__init__.py") is not None
        parts = module.split(".")
        parts = parts[: len(parts) - node.level + is_package]
        return ".".join([*parts, *([node.module] if node.module else [])])


def _statements(body: list[ast.stmt]) -> Iterator[Found]:
    """Yield definitions, those under conditions included."""
    for node in body:
        if isinstance(node, Found):
            yield node
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, part, []))
            for handler in getattr(node, "handlers", []):
                yield from _statements(handler.body)


def _defines(node: Found, name: str) -> bool:
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    if isinstance(node, ast.AnnAssign):
        return isinstance(node.target, ast.Name) and node.target.id == name
    return node.name == name


def parameters(node: Found) -> list[str]:
    """Return the names of a function's parameters, in order; of anything else none."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return []
    given = node.args
    named = [*given.posonlyargs, *given.args, *([given.vararg] if given.vararg else []), *given.kwonlyargs]
    return [a.arg for a in (*named, *([given.kwarg] if given.kwarg else []))]


def fits(there: list[str], wanted: tuple[str, ...]) -> bool:
    """Return whether a function has the wanted parameters, in their order among others."""
    if wanted and all(UNNAMED.fullmatch(name) for name in wanted):
        return len([name for name in there if name != "self"]) >= len(wanted)
    return [name for name in there if name in wanted] == list(wanted)


def check(target: Target, code: Code) -> str | None:
    """Return what is wrong with a target in a source; None if nothing is."""
    if code.module(target.module) is None:
        return f"{target.module} is not there"
    found = code.find(target.module, target.path)
    if not found:
        return "is not there"
    if any(fits(parameters(node), target.parameters) for node in found):
        return None
    takes = " or ".join(f"({', '.join(parameters(node))})" for node in found)
    return f"takes {takes}, and ({', '.join(target.parameters)}) is what the adapter was made for"


def check_all(sources: list[Source], names: tuple[str, ...]) -> int:
    """Check adapters against all sources that have their framework, and say so line by line.

    Returns:
        Exit code: 0 all fit; 1 something is missing; 2 no source has a framework of the adapters.
    """
    checked = failed = 0
    for name in names:
        adapter = find(name)
        parts = adapter.targets[0].module.split(".")
        package, *_ = parts
        tops = ["/".join(parts[:depth]) + "/__init__.py" for depth in (1, 2)]  # the first may be a namespace alone
        having = [s for s in sources if any(s.read(top) is not None for top in tops)]
        if not having:
            sys.stdout.write(f"skip  {name}: no source of {package} was given (checked against {adapter.checked})\n")
        for source in having:
            sys.stdout.write(f"{name} against {source.path} (says: {adapter.checked})\n")
            code = Code(source)
            for target in adapter.targets:
                wrong = check(target, code)
                checked += 1
                failed += wrong is not None
                sys.stdout.write(f"  ok    {target.name}\n" if wrong is None else f"  FAIL  {target.name}: {wrong}\n")
    sys.stdout.write(f"{checked} targets checked, {failed} do not fit\n")
    return 2 if not checked else 1 if failed else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=HOW, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", nargs="+", type=Path, metavar="SOURCE", help="sources of frameworks, as below")
    parser.add_argument("--adapter", action="append", choices=adapters(), help="check this one alone; may be repeated")
    given = parser.parse_args(arguments)
    try:
        sources = [open_source(path) for path in given.sources]
    except (ValueError, subprocess.CalledProcessError) as error:
        parser.error(str(error))
    return check_all(sources, tuple(given.adapter or adapters()))


if __name__ == "__main__":
    sys.exit(main())
