"""The vectorised kernel: the inner loop of the min-plus product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numba
import numba.core.cgutils
from llvmlite import ir  # type: ignore[import-untyped]

from ..runs.kernels import intrinsic

# Typed in some versions of numba and not in others.
cgutils: Any = numba.core.cgutils
config: Any = numba.config
types: Any = numba.types

# A tile of ROWS × WIDTH minima lives in registers while s runs. 4 rows of two AVX vectors was the fastest shape measured,
# at the speed of the add and min units; on other machines LLVM cuts the vectors to fit.
ROWS = 4
LANES = 4
WIDTH = 2 * LANES
STRETCH = 16  # values of s between records of which minima fell: more is faster here but slower to search later


def threads() -> int:
    """Number of threads to use: NUMBA_NUM_THREADS, which is the number of usable cores if not set."""
    return int(config.NUMBA_NUM_THREADS)


@cast(Callable[[Callable[..., Any]], Callable[..., None]], intrinsic)
def relax(typing: Any, L: Any, where: Any, C: Any, new: Any, origin: Any) -> Any:
    """new[to + WIDTH·i + j] = min of itself and C[at + WIDTH·m + j] + L[t + i, s + m] over 0 <= m < count.

    `where` is (t, s, count, at, to); i < ROWS, j < WIDTH; rows past the end of L repeat its last row. Where new falls, `origin`
    at the same place becomes the start of the stretch of s, STRETCH long, in which it was first met. C, new and origin are
    flat and do not overlap.
    """
    index = types.intp

    def build(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        arrays = {n: context.make_array(signature.args[n])(context, builder, arguments[n]) for n in (0, 2, 3, 4)}
        table, source, target, origins = (array.data for array in arrays.values())
        t, s, count, at, to = cgutils.unpack_tuple(builder, arguments[1])
        vector = ir.VectorType(ir.DoubleType(), LANES)
        integers = ir.VectorType(t.type, LANES)
        lane_0 = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        tile = [(i, v) for i in range(ROWS) for v in range(WIDTH // LANES)]

        def number(value: int) -> ir.Constant:
            return ir.Constant(t.type, value)

        def vector_at(base: Any, offset: Any, kind: Any = vector) -> Any:
            return builder.bitcast(builder.gep(base, [offset]), kind.as_pointer())

        def all_lanes(value: Any, kind: Any = vector) -> Any:
            undefined = ir.Constant(kind, ir.Undefined)
            return builder.shuffle_vector(builder.insert_element(undefined, value, number(0)), undefined, lane_0)

        places = [builder.add(to, number(i * WIDTH + v * LANES)) for i, v in tile]
        least = [cgutils.alloca_once(builder, vector) for _ in tile]
        for place, register in zip(places, least, strict=True):
            builder.store(builder.load(vector_at(target, place), align=8), register)

        row_count, row_length = cgutils.unpack_tuple(builder, arrays[0].shape)
        rows = []
        for i in range(ROWS):
            row = builder.add(t, number(i))
            row = builder.select(builder.icmp_signed("<", row, row_count), row, builder.sub(row_count, number(1)))
            rows.append(builder.gep(table, [builder.add(builder.mul(row, row_length), s)]))

        stretches = builder.sdiv(builder.add(count, number(STRETCH - 1)), number(STRETCH))
        with cgutils.for_range(builder, stretches) as stretch:
            done = builder.mul(stretch.index, number(STRETCH))
            left = builder.sub(count, done)
            left = builder.select(builder.icmp_signed("<", left, number(STRETCH)), left, number(STRETCH))
            with cgutils.for_range(builder, left) as loop:
                m = builder.add(done, loop.index)
                start = builder.add(at, builder.mul(m, number(WIDTH)))
                C_s = [
                    builder.load(vector_at(source, builder.add(start, number(v * LANES))), align=8)
                    for v in range(WIDTH // LANES)
                ]
                L_ts = [all_lanes(builder.load(builder.gep(row, [m]))) for row in rows]
                for (i, v), register in zip(tile, least, strict=True):
                    total, old = builder.fadd(C_s[v], L_ts[i]), builder.load(register)
                    builder.store(builder.select(builder.fcmp_ordered("<", total, old), total, old), register)

            here = all_lanes(builder.add(s, done), integers)
            for place, register in zip(places, least, strict=True):
                new_at, origin_at = vector_at(target, place), vector_at(origins, place, integers)
                old, now = builder.load(new_at, align=8), builder.load(register)
                # Read before anything is written, or LLVM emits a masked store, which is far slower on some processors.
                origin = builder.select(builder.fcmp_ordered("<", now, old), here, builder.load(origin_at, align=8))
                builder.store(now, new_at, align=8)
                builder.store(origin, origin_at, align=8)
        return context.get_dummy_value()

    return types.void(L, types.UniTuple(index, 5), C, new, origin), build
