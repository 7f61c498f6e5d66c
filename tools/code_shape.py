"""Print the shape of the code: sizes, long signatures, positional calls, repeated lines, files per variant name.

    python tools/code_shape.py                 for this working copy
    python tools/code_shape.py ../before now   for two, side by side (folders that contain src/)
    python tools/code_shape.py --places        also print the places behind each number

These are the numbers of docs/architecture.md, "Before and after". Lines are lines of the Python files, including blank ones
and docstrings. A function's parameters are counted without self and cls; click's command functions are left out, since they
have one parameter per option. A repeated line is a line of code in a run of at least `RUN` lines that also occurs elsewhere in
src, apart from imports and signatures. The names are those of `dpstride.options`; files in which a name has another meaning
(`variant_words.py`) do not count.
"""

from __future__ import annotations

import ast
import itertools
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from variant_words import OTHER_MEANINGS

RUN = 5  # length of a run of repeated lines
LONG = 400  # lines of a long file
# Functions with any number of arguments of one kind, such as axis sizes or options; Conv2d's order is that of torch.
ANY_NUMBER = {"reshape", "permute", "transpose", "expand", "max", "min", "void", "Conv2d", "chain", "_chain", "union"}
ANY_NUMBER |= {"joinpath", "options"}
HOME = Path(__file__).parents[1]
Function = ast.FunctionDef | ast.AsyncFunctionDef
# The names of 0.1.0, by kind; `names_of` reads them from options.py if it exists.
FIRST_NAMES = {
    "variance": ("posterior", "upper", "learned_range", "optimal", "learned_optimal"),
    "decoder": ("upper", "first_pair", "respaced", "optimal"),
    "sampler": ("ancestral", "ddim", "dpmpp_2m"),
    "objective": ("elbo", "trajectory", "mixed"),
    "stride": ("even", "quadratic", "quadratic_ddim", "karras", "log_snr", "ays"),
    "training objective": ("simple", "hybrid", "vlb", "continuous", "flow"),
}
LITERALS = {
    "Variance": "variance",
    "Decoder": "decoder",
    "Sampler": "sampler",
    "Objective": "objective",
    "Stride": "stride",
    "TrainingObjective": "training objective",
}


@dataclass(frozen=True)
class Shape:
    """The numbers of one working copy, in printing order."""

    numbers: dict[str, str]
    places: dict[str, list[str]]


def python_files(root: Path) -> list[Path]:
    """The Python files below a folder."""
    return sorted(path for path in root.rglob("*.py") if "__pycache__" not in path.parts)


def lines_of(paths: Iterable[Path]) -> int:
    """Total number of lines of these files."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def parameters(function: Function) -> list[str]:
    """Names of a function's parameters, self and cls aside."""
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return [each.arg for each in every if each.arg not in ("self", "cls")]


def is_command(function: Function) -> bool:
    """Return whether this is a command function of click."""
    return any("command" in ast.unparse(decorator).split("(")[0] for decorator in function.decorator_list)


def functions(tree: ast.Module) -> Iterator[Function]:
    """Every function and method of a file."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


def positional(call: ast.Call) -> int:
    """Number of positional arguments of a call, a starred one counted once; 0 for calls of `ANY_NUMBER`."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return 0 if name in ANY_NUMBER else len(call.args)


def docstrings(tree: ast.Module) -> set[int]:
    """Identities of the nodes that are docstrings, or text after an attribute."""
    return {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def string_constants(tree: ast.Module) -> set[str]:
    """Every string constant of a file except docstrings, and each word of those followed by `.split()`."""
    apart = docstrings(tree)
    found = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split":
            value = node.func.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found.update(value.value.replace(",", " ").split())
    return found


def meant_as(kind: str, tree: ast.Module) -> set[str]:
    """String constants that are compared with, given to or kept as something that is called after a kind of variants."""
    word, found = kind.split()[-1], set()

    def note(name: ast.AST | str | None, *values: ast.AST | None) -> None:
        if word in (_called(name) if isinstance(name, ast.AST) else name or "").lower():
            every = [node for value in values if value is not None for node in ast.walk(value)]
            found.update(node.value for node in every if isinstance(node, ast.Constant) and isinstance(node.value, str))

    for node in ast.walk(tree):
        match node:
            case ast.Compare():
                for one, other in itertools.permutations([node.left, *node.comparators], 2):
                    if not isinstance(one, ast.Constant):
                        note(one, other if isinstance(other, ast.Constant | ast.Tuple | ast.List | ast.Set) else None)
            case ast.keyword():
                note(node.arg, node.value if isinstance(node.value, ast.Constant) else None)
            case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)):
                note(name, node.value if isinstance(node.value, ast.Constant) else None)
            case ast.arguments():
                plain = [*node.posonlyargs, *node.args]
                for each, value in [
                    *zip(plain[len(plain) - len(node.defaults) :], node.defaults, strict=True),
                    *zip(node.kwonlyargs, node.kw_defaults, strict=True),
                ]:
                    note(each.arg, value if isinstance(value, ast.Constant) else None)
            case ast.Match():
                note(node.subject, *(case.pattern for case in node.cases))
    return found


def _called(node: ast.AST) -> str:
    """The last name of an expression: of found.objective, found["objective"] or objective() "objective"."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
            return str(name)
        case ast.Call(func=function):
            return _called(function)
    return ""


def names_of(root: Path) -> dict[str, tuple[str, ...]]:
    """The names of variants by kind, from options.py where there is one, read without importing it."""
    options = root / "src/dpstride/options.py"
    if not options.is_file():
        return FIRST_NAMES
    found = {}
    for node in parsed(options).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            kind = LITERALS.get(node.targets[0].id)
            if kind is not None and isinstance(node.value, ast.Subscript):
                found[kind] = tuple(each.value for each in ast.walk(node.value.slice) if isinstance(each, ast.Constant))
    return {**{kind: FIRST_NAMES[kind] for kind in FIRST_NAMES if kind not in found}, **found}


def files_naming(root: Path, names: Iterable[str]) -> dict[str, list[str]]:
    """The source files that contain each name as a string constant."""
    found: dict[str, list[str]] = {name: [] for name in names}
    source = root / "src/dpstride"
    for path in python_files(source):
        constants = string_constants(parsed(path))
        for name in found:
            if name in constants:
                found[name].append(path.relative_to(source).as_posix())
    return found


def repeated_lines(paths: Iterable[Path]) -> tuple[int, list[str]]:
    """Number of lines of code in repeated runs of at least RUN lines, and where those runs begin."""
    where: dict[tuple[str, ...], list[tuple[Path, int]]] = defaultdict(list)
    code: dict[Path, list[tuple[int, str]]] = {}
    for path in paths:
        code[path] = lines = list(code_lines(path))
        for at in range(len(lines) - RUN + 1):
            where[tuple(text for _, text in lines[at : at + RUN])].append((path, at))
    marked: dict[Path, set[int]] = defaultdict(set)
    for places in where.values():
        for path, at in places if len(places) > 1 else ():
            marked[path].update(range(at, at + RUN))
    starts = [
        f"{path.name}:{code[path][at][0]}"
        for path, every in sorted(marked.items())
        for at in every
        if at - 1 not in every
    ]
    return sum(map(len, marked.values())), sorted(starts)


def code_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of code of a file, without blank lines, comments, docstrings, imports, signatures and lone brackets."""
    tree, apart = parsed(path), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            apart.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, Function):
            apart.update(range(node.lineno, node.body[0].lineno))
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.strip()
        if number not in apart and not text.startswith("#") and any(each.isalnum() for each in text):
            yield number, text


def article(kind: str) -> str:
    """The kind with "a" or "an"."""
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def shape_of(root: Path) -> Shape:
    """Measure one working copy."""
    source = python_files(root / "src")
    places: dict[str, list[str]] = defaultdict(list)
    names = names_of(root)
    for path in source:
        tree, shown = parsed(path), path.relative_to(root / "src/dpstride").as_posix()
        for function in functions(tree):
            if len(parameters(function)) > 8 and not is_command(function):
                places["functions with more than 8 parameters"].append(
                    f"{shown}:{function.lineno} {function.name} ({len(parameters(function))})"
                )
            args = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
            by_position = len([each for each in args if each not in ("self", "cls")])
            if len(parameters(function)) > 6 and by_position > 4 and not is_command(function):
                places["functions with more than 6 parameters, over 4 by position"].append(
                    f"{shown}:{function.lineno} {function.name} ({by_position} of {len(parameters(function))})"
                )
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and positional(node) > 4:
                call = f"{shown}:{node.lineno} {ast.unparse(node.func)[:40]} ({positional(node)})"
                places["calls with more than 4 arguments by position"].append(call)
                if positional(node) >= 7:
                    places["calls with 7 or more arguments by position"].append(call)
        if (size := lines_of([path])) > LONG:
            places["source files over 400 lines"].append(f"{shown} ({size})")
    for path in python_files(root / "tests"):
        if (size := lines_of([path])) > LONG:
            places["test files over 400 lines"].append(f"{path.relative_to(root).as_posix()} ({size})")
    repeated, starts = repeated_lines(source)
    places["repeated lines"] = starts
    numbers = {
        "lines in src": f"{lines_of(source):,}",
        "files in src": f"{len(source):,}",
        "lines in tools": f"{lines_of(python_files(root / 'tools')):,}",
    }
    for title in (
        "functions with more than 8 parameters",
        "functions with more than 6 parameters, over 4 by position",
        "calls with 7 or more arguments by position",
        "calls with more than 4 arguments by position",
        "source files over 400 lines",
        "test files over 400 lines",
    ):
        numbers[title] = str(len(places[title]))
    numbers["repeated lines"] = str(repeated)
    for kind, every in names.items():
        found = {
            name: [path for path in files if path not in OTHER_MEANINGS.get(name, {})]
            for name, files in files_naming(root, every).items()
        }
        counts = {name: len(files) for name, files in found.items()}
        worst = max(counts, key=lambda name: counts[name])
        numbers[f"files that name {article(kind)}, at most"] = f"{counts[worst]} ({worst})"
        places[f"files that name {article(kind)}, at most"] = [
            f"{name}: {', '.join(files)}" for name, files in found.items()
        ]
    return Shape(numbers, dict(places))


def main(arguments: list[str]) -> int:
    """Print the table, and with --places the places behind each number of the last folder."""
    show = "--places" in arguments
    roots = [HOME if each == "now" else Path(each) for each in arguments if not each.startswith("-")] or [HOME]
    shapes = [shape_of(root) for root in roots]
    titles = list(dict.fromkeys(title for shape in shapes for title in shape.numbers))
    heads = ["before", "now"] if len(roots) == 2 else [str(root) for root in roots]
    print(f"| | {' | '.join(heads)} |\n|---|{'---|' * len(roots)}")
    for title in titles:
        print(f"| {title} | {' | '.join(shape.numbers.get(title, '') for shape in shapes)} |")
    if show:
        for title, found in shapes[-1].places.items():
            print(f"\n{title}\n" + "\n".join(f"  {each}" for each in found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
