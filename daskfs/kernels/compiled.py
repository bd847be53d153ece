"""Compilation of loops by numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile at the first call, and cache the machine code for other processes if a cache directory is writable.

    `options` are those of :func:`numba.njit`.
    """
    try:
        return njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # neither the package's directory nor the user's can be written to
        return njit(nogil=True, **options)(function)


def _prefetch(_typing_context: Any, values: Any, index: Any) -> Any:
    """Prefetch the cache line of one value of a flat array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(builder.gep(array.data, [arguments[1]]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        function = builder.module.declare_intrinsic("llvm.prefetch.p0", (), kind)
        builder.call(function, [address, flag(0), flag(3), flag(1)])  # read, high locality, data
        return context.get_dummy_value()

    return types.void(values, index), generate


prefetch: Any = intrinsic(_prefetch)
