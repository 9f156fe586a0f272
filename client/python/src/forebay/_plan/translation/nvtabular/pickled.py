"""Reads the pickle of a saved workflow without running anything that it names.

Every class and function in it becomes a record of what it would be called with. Names that a workflow of NVTabular
does not contain are refused, and so are the opcodes that it does not need. NVTabular is not imported.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any, cast

# A workflow of thousands of columns has a few megabytes; vocabularies are in separate files.
BYTES_MAX = 16 << 20
# Objects that the pickle refers to again.
MEMO_MAX = 1 << 20

OPCODES = frozenset(
    [
        "PROTO",
        "FRAME",
        "STOP",
        "MARK",
        "POP",
        "POP_MARK",
        "DUP",
        "NONE",
        "NEWTRUE",
        "NEWFALSE",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "BINFLOAT",
        "SHORT_BINBYTES",
        "BINBYTES",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "EMPTY_LIST",
        "APPEND",
        "APPENDS",
        "EMPTY_TUPLE",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
        "EMPTY_DICT",
        "SETITEM",
        "SETITEMS",
        "EMPTY_SET",
        "ADDITEMS",
        "FROZENSET",
        "MEMOIZE",
        "BINPUT",
        "LONG_BINPUT",
        "BINGET",
        "LONG_BINGET",
        "GLOBAL",
        "STACK_GLOBAL",
        "REDUCE",
        "BUILD",
        "NEWOBJ",
    ]
)
# Packages whose names may occur: none of them is imported.
PACKAGES = ("nvtabular", "merlin")
NAMES = frozenset(
    {
        *(("cloudpickle.cloudpickle", name) for name in ("_make_function", "_function_setstate", "_builtin_type")),
        *(("cloudpickle.cloudpickle", name) for name in ("_make_cell", "_make_empty_cell", "subimport")),
        *((module, name) for module in ("numpy.core.multiarray", "numpy._core.multiarray") for name in ("scalar",)),
        ("numpy", "dtype"),
        ("numpy", "float64"),
        ("numpy", "float32"),
        ("numpy", "int64"),
        ("numpy", "int32"),
        ("builtins", "float"),
        ("builtins", "int"),
        ("builtins", "str"),
        ("builtins", "set"),
    }
)


class Record:
    """An object of the pickle: the name of what makes it, what that is called with, and its state."""

    module = ""
    name = ""

    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: Any) -> Record:
        """Return a record; a pickle calls this without `__init__`."""
        made = super().__new__(cls)
        made.args, made.state = args, None
        # What the pickle of a function fills in later is the function's state.
        if cls.name == "_function_setstate" and len(args) == 2 and isinstance(args[0], Record):
            args[0].state = args[1]
        return made

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __call__(self, *args: Any) -> Record:
        """Return a record of the call of a record, which the pickle of a function has."""
        return Record(self, *args)

    @property
    def fields(self) -> dict[str, Any]:
        """The attributes."""
        return cast("dict[str, Any]", self.state) if isinstance(self.state, dict) else {}


class _Reader(pickle.Unpickler):
    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self._classes: dict[tuple[str, str], type[Record]] = {}

    def find_class(self, module_name: str, global_name: str, /) -> type[Record]:
        """Return a class of records for a name that may occur."""
        known = (module_name, global_name)
        if module_name.split(".")[0] not in PACKAGES and known not in NAMES:
            raise pickle.UnpicklingError(
                f"it names {module_name}.{global_name}, which a workflow does not need, and functions are not run"
            )
        if known not in self._classes:
            self._classes[known] = type(global_name, (Record,), {"module": module_name, "name": global_name})
        return self._classes[known]

    def persistent_load(self, pid: Any, /) -> Any:
        """Refuse an object outside of the pickle."""
        raise pickle.UnpicklingError(f"it refers to the object {pid!r} outside of it")


def read_pickle(where: str, data: bytes) -> Any:
    """Return the object of a pickle, in which classes are records."""
    try:
        _check_opcodes(data)
        return _Reader(data).load()
    except (
        pickle.UnpicklingError,
        ArithmeticError,
        AttributeError,
        EOFError,
        LookupError,
        MemoryError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise ValueError(f"{where}: not the pickle of a workflow: {error}; save the workflow again") from error


def _check_opcodes(data: bytes) -> None:
    for opcode, argument, position in pickletools.genops(data):
        if opcode.name not in OPCODES:
            raise pickle.UnpicklingError(f"opcode {opcode.name} at byte {position}, which a workflow does not need")
        if opcode.name in ("BINPUT", "LONG_BINPUT") and cast(int, argument) > MEMO_MAX:
            raise pickle.UnpicklingError(f"the object at byte {position} has number {argument}")
