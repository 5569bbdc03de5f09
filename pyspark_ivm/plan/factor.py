"""Expand an aggregate's argument over several atoms into monomials of one-atom factors.

Law: Σ(f·g) over a join = (Σf)·(Σg) over its parts, so a sum of products of one-atom factors can be kept in channels.
Only where the types prove every row's arithmetic exact and in range: uncapped decimals, integers that cannot
overflow, widening casts. CASE and COALESCE are never taken apart, doubles never multiplied across atoms.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal as Number
from decimal import InvalidOperation

from pyspark_ivm.plan.export import Export, Expression
from pyspark_ivm.plan.reasons import NotIncremental, reason
from pyspark_ivm.plan.spark_types import MAX_DECIMAL_PRECISION, decimal, integer_bound, integer_digits, is_integer


@dataclass(frozen=True)
class Monomial:
    coefficient: int  # exact, of the factors' unscaled integers, at the scale of the whole argument
    factors: tuple[int, ...]  # expression ids, one for each atom that has one


@dataclass(frozen=True)
class _Term:
    coefficient: int
    factors: tuple[int, ...]
    scale: int  # sum of the scales of the factors and of the coefficient


def factor(export: Export, argument: int) -> tuple[Monomial, ...]:
    """The monomials of an argument over several atoms; raises NotIncremental where it must not be taken apart."""
    whole = export.expression(argument)
    target = _scale(whole.type)
    if target is None:
        raise _refuse(
            whole,
            "floating point is not exact across tables" if whole.type in ("float", "double") else f"type {whole.type}",
        )
    monomials = []
    for t in _expand(export, whole):
        atoms = [export.expression(f).relations for f in t.factors]
        if len(set(atoms)) < len(atoms):
            raise _refuse(whole, "a product has two factors of the same table that are not next to each other")
        if t.scale > target:
            raise _refuse(whole, "a scale is rounded away")
        monomials.append(Monomial(t.coefficient * 10 ** (target - t.scale), t.factors))
    return tuple(monomials)


def _refuse(e: Expression, why: str) -> NotIncremental:
    return NotIncremental(reason("ARGUMENT_NOT_FACTORED", expression=e.sql, why=why))


def _scale(type_: str) -> int | None:
    if is_integer(type_):
        return 0
    d = decimal(type_)
    return None if d is None else d.scale


def _expand(export: Export, e: Expression) -> list[_Term]:
    if e.op == "literal" or not e.relations:
        return [_constant(e)]
    if len(e.relations) == 1:
        scale = _scale(e.type)
        if scale is None:
            raise _refuse(e, f"type {e.type} is not exact")
        return [_Term(1, (e.id,), scale)]
    children = [export.expression(c) for c in e.children]
    if e.op == "cast":
        _check_widening(e, children[0])
        return _expand(export, children[0])
    if e.op == "negate":
        _check_range(export, e)
        return [_Term(-t.coefficient, t.factors, t.scale) for t in _expand(export, children[0])]
    if e.op in ("add", "subtract"):
        _check_exact(export, e, children)
        sign = -1 if e.op == "subtract" else 1
        left, right = (_expand(export, c) for c in children)
        return left + [_Term(sign * t.coefficient, t.factors, t.scale) for t in right]
    if e.op == "multiply":
        _check_exact(export, e, children)
        left, right = (_expand(export, c) for c in children)
        return [
            _Term(x.coefficient * y.coefficient, x.factors + y.factors, x.scale + y.scale) for x in left for y in right
        ]
    raise _refuse(e, f"{e.op.removeprefix('other:')} of several tables")


def _constant(e: Expression) -> _Term:
    scale = _scale(e.type)
    try:
        value = Number(str(e.literal))
    except InvalidOperation:
        raise _refuse(e, "a constant that is not a plain number") from None
    if e.op != "literal" or e.literal is None or scale is None or not value.is_finite():
        raise _refuse(e, "a constant that is not a plain number")
    unscaled = value.scaleb(scale)
    if unscaled != unscaled.to_integral_value():
        raise _refuse(e, "a constant that is not a plain number")
    return _Term(int(unscaled), (), scale)


def _check_widening(e: Expression, child: Expression) -> None:
    to, source = decimal(e.type), decimal(child.type)
    if is_integer(e.type) and is_integer(child.type):
        if integer_bound(e.type) >= integer_bound(child.type):
            return
    elif to is not None:
        digits, scale = (source.precision - source.scale, source.scale) if source else (0, 0)
        if is_integer(child.type):
            digits = integer_digits(child.type)
        if (source or is_integer(child.type)) and to.scale >= scale and to.precision - to.scale >= digits:
            return
    raise _refuse(e, f"the cast from {child.type} to {e.type} may lose digits")


def _check_exact(export: Export, e: Expression, children: list[Expression]) -> None:
    result = decimal(e.type)
    if result is None:
        _check_range(export, e)
        return
    left, right = (decimal(c.type) for c in children)
    if left is None or right is None:
        raise _refuse(e, "operands of different kinds")
    if e.op == "multiply":
        precision, scale = left.precision + right.precision + 1, left.scale + right.scale
    else:
        scale = max(left.scale, right.scale)
        precision = max(left.precision - left.scale, right.precision - right.scale) + scale + 1
    if precision > MAX_DECIMAL_PRECISION or result.scale != scale or result.precision < precision:
        raise _refuse(e, f"the result type {e.type} is capped at {MAX_DECIMAL_PRECISION} digits")


def _check_range(export: Export, e: Expression) -> None:
    if decimal(e.type) is None and not (is_integer(e.type) and _bound(export, e) < integer_bound(e.type)):
        raise _refuse(e, f"{e.type} arithmetic may overflow")


def _bound(export: Export, e: Expression) -> int:
    """An upper bound of the absolute value of an integer expression."""
    children = [export.expression(c) for c in e.children]
    own = integer_bound(e.type)
    if e.op == "literal" and e.literal is not None:
        try:
            return abs(int(str(e.literal)))
        except ValueError:
            return own
    if e.op == "cast" and is_integer(children[0].type):
        return min(own, _bound(export, children[0]))
    if not all(is_integer(c.type) for c in children) or not children:
        return own
    bounds = [_bound(export, c) for c in children]
    if e.op == "multiply":
        return bounds[0] * bounds[1]
    if e.op in ("add", "subtract"):
        return bounds[0] + bounds[1]
    if e.op == "negate":
        return bounds[0]
    return own
