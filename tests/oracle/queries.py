"""Hand-written queries of the class that FRAME maintains, by table set; each is there for the reason in its name.

The queries of a set share its tables and batches. Conventions: doubles that are summed declare the sum of |x| that
their tolerance refers to; ORDER BY … LIMIT only under a total order up to equal rows; no DISTINCT, no outer joins.
"""

from __future__ import annotations

from .harness import Query


def finite(x: str) -> str:
    """Sum of |x| over finite x: NaN and infinities are compared as themselves."""
    size = f"abs(CAST({x} AS DOUBLE))"  # cast first: abs of the least integer overflows
    return f"coalesce(sum(if({size} < 1e300D, {size}, 0D)), 0D)"


def _q(name: str, sql: str, **more: object) -> Query:
    return Query(name, " ".join(sql.split()), **more)  # type: ignore[arg-type]


TYPES = [
    # one table: rows
    _q("types_all_columns", "SELECT k1, k2, ks, i1, i2, i4, i8, d9, d18, d30, d38, fl, db, s, b, bo, d, ts, tn FROM f"),
    _q(
        "types_filter_project",
        "SELECT id, i4 + 1L AS next, upper(s) AS up, d9 * 2 AS twice FROM f WHERE i2 > 0 AND s IS NOT NULL",
    ),
    _q("types_filter_like_in", "SELECT s, ks FROM f WHERE s LIKE '%a%' OR ks IN ('ä', '日本')"),
    _q("types_filter_nan", "SELECT id, db FROM f WHERE db = DOUBLE('NaN') OR db > 500"),
    _q("types_constant_columns", "SELECT 1 AS one, 'x' AS x, CAST(NULL AS INT) AS nothing, bo FROM f WHERE bo"),
    # one table: aggregates over each type
    _q(
        "types_sum_ints",
        "SELECT k1, sum(i1) AS s1, sum(i2) AS s2, sum(i4) AS s4, count(*) AS n, count(i1) AS n1 FROM f GROUP BY k1",
    ),
    _q(
        "types_sum_decimals",
        """SELECT k2, sum(d9) AS s9, sum(d18) AS s18, sum(d30) AS s30, sum(d38) AS s38
        FROM f GROUP BY k2""",
    ),
    _q(
        "types_avg_decimals",
        "SELECT ks, avg(d9) AS a9, avg(d18) AS a18, avg(d38) AS a38, count(d9) AS n FROM f GROUP BY ks",
    ),
    _q("types_sum_wide_bigint", "SELECT bo, sum(CAST(i8 AS DECIMAL(38,0))) AS s8, count(i8) AS n FROM f GROUP BY bo"),
    _q(
        "types_doubles",
        "SELECT k1, sum(db) AS sdb, avg(db) AS adb, count(db) AS n{scale} FROM f GROUP BY k1",
        scales={"sdb": finite("db"), "adb": finite("db")},
    ),
    _q(
        "types_floats",
        "SELECT bo, sum(fl) AS sfl, avg(fl) AS afl{scale} FROM f GROUP BY bo",
        scales={"sfl": finite("fl"), "afl": finite("fl")},
    ),
    _q(
        "types_avg_ints",
        "SELECT k2, avg(i2) AS a2, avg(i4) AS a4{scale} FROM f GROUP BY k2",
        scales={"a2": finite("i2"), "a4": finite("i4")},
    ),
    _q("types_global_aggregate", "SELECT count(*) AS n, sum(d18) AS s, avg(d9) AS a, sum(i4) AS i FROM f"),
    _q("types_global_over_no_rows", "SELECT count(*) AS n, sum(i4) AS s, avg(d9) AS a FROM f WHERE k1 > 100"),
    _q("types_group_by_double", "SELECT kdb, count(*) AS n, sum(x) AS s FROM g GROUP BY kdb"),
    _q("types_group_by_binary", "SELECT b, count(*) AS n, sum(i4) AS s FROM f GROUP BY b"),
    _q(
        "types_group_by_time",
        "SELECT d, date_trunc('DAY', ts) AS day, count(*) AS n FROM f GROUP BY d, date_trunc('DAY', ts)",
    ),
    _q(
        "types_group_by_expression",
        "SELECT i4 % 3 AS m, length(s) AS l, count(*) AS n FROM f GROUP BY i4 % 3, length(s)",
    ),
    _q("types_group_by_interval", "SELECT ym, dy, count(*) AS n FROM iv GROUP BY ym, dy"),
    _q("types_sum_interval", "SELECT k1, sum(dy) AS s FROM iv GROUP BY k1", expected=("full",)),
    _q("types_carry_interval", "SELECT iv.ym, iv.dy, iv.tn, g.grp FROM iv JOIN g ON iv.k1 = g.k1"),
    _q(
        "types_filter_clause",
        """SELECT k1, count(*) FILTER (WHERE bo) AS yes, sum(d9) FILTER (WHERE i4 > 0) AS pos,
        count(i1, i2) AS both FROM f GROUP BY k1""",
    ),
    _q(
        "types_case_in_sum",
        """SELECT ks, sum(CASE WHEN bo THEN d9 WHEN i4 > 0 THEN -d9 END) AS c,
        sum(coalesce(i2, 0)) AS z, count(CASE WHEN s = 'a' THEN 1 END) AS n FROM f GROUP BY ks""",
    ),
    _q(
        "types_having",
        "SELECT k1, sum(i2) AS s, count(*) AS n FROM f GROUP BY k1 HAVING count(*) > 3 AND sum(i2) IS NOT NULL",
    ),
    _q(
        "types_expression_over_aggregates",
        """SELECT k1 + 1 AS k, sum(i2) * 2 - count(*) AS e, CAST(sum(d9) AS STRING) AS t
        FROM f GROUP BY k1""",
    ),
    _q("types_order_limit", "SELECT k1, count(*) AS n, sum(i2) AS s FROM f GROUP BY k1 ORDER BY n DESC, k1 LIMIT 3"),
    # joins over typed keys
    _q("types_join_mixed_ints", "SELECT f.id, g.grp, f.d9, g.r FROM f JOIN g ON f.k1 = g.k1"),
    _q(
        "types_join_int_bigint", "SELECT h.nm, count(*) AS n, sum(f.d18) AS s FROM f, h WHERE f.k2 = h.k2 GROUP BY h.nm"
    ),
    _q("types_join_string", "SELECT g.grp, sum(f.i4) AS s, count(f.i1) AS n FROM f JOIN g USING (ks) GROUP BY g.grp"),
    _q(
        "types_join_binary_boolean",
        "SELECT f.bo, f.b, count(*) AS n FROM f JOIN h ON f.b = h.b AND f.bo = h.bo GROUP BY f.bo, f.b",
    ),
    _q("types_join_double", "SELECT g.kdb, count(*) AS n FROM f JOIN g ON f.db = g.kdb GROUP BY g.kdb"),
    _q("types_join_date", "SELECT f.d, g.grp, sum(f.d9) AS s FROM f JOIN g ON f.d = g.d GROUP BY f.d, g.grp"),
    _q("types_join_expression_key", "SELECT f.id, g.x FROM f JOIN g ON f.i4 % 6 = g.k1 + 0"),
    _q(
        "types_decimal_product",
        "SELECT g.grp, sum(f.d9 * g.r) AS s, avg(f.d9 * g.r) AS a FROM f JOIN g ON f.k1 = g.k1 GROUP BY g.grp",
    ),
    _q(
        "types_decimal_sum_across",
        "SELECT g.grp, sum(f.d9 + g.r) AS s, count(f.d9 + g.r) AS n FROM f JOIN g ON f.k1 = g.k1 GROUP BY g.grp",
    ),
    _q("types_int_product", "SELECT g.grp, sum(f.i2 * g.x) AS s FROM f JOIN g ON f.k1 = g.k1 GROUP BY g.grp"),
    _q(
        "types_double_product",
        "SELECT g.grp, sum(f.db * g.y) AS s{scale} FROM f JOIN g ON f.k1 = g.k1 GROUP BY g.grp",
        scales={"s": finite("f.db * g.y")},
    ),
    _q(
        "types_case_across_tables",
        """SELECT f.bo, sum(CASE WHEN g.x > 0 THEN f.d9 ELSE g.r END) AS s FROM f JOIN g ON f.k1 = g.k1
        GROUP BY f.bo""",
    ),
    _q(
        "types_three_way",
        """SELECT g.grp, h.nm, count(*) AS n, sum(f.d9 * h.wgt) AS s
        FROM f JOIN g ON f.k1 = g.k1 JOIN h ON f.k2 = h.k2 WHERE f.i4 > -500 GROUP BY g.grp, h.nm""",
    ),
    _q(
        "types_residual_or",
        """SELECT f.id, g.grp FROM f JOIN g ON f.k1 = g.k1
        WHERE (f.bo AND g.x > 0) OR (NOT f.bo AND g.x <= 0)""",
    ),
    # errors
    _q(
        "types_failing_cast_in_dead_rows",
        "SELECT f.k1, sum(CAST(g.num AS INT)) AS s FROM f JOIN g ON f.k1 = g.k1 GROUP BY f.k1",
    ),
    _q("types_overflow_bigint_ansi", "SELECT bo, sum(big) AS s FROM h GROUP BY bo", may_raise=True),
    _q("types_overflow_bigint_wraps", "SELECT bo, sum(big) AS s, count(*) AS n FROM h GROUP BY bo", ansi=False),
    _q("types_overflow_decimal_ansi", "SELECT sum(huge) AS s, count(*) AS n FROM h", may_raise=True),
    _q("types_overflow_decimal_null", "SELECT bo, sum(huge) AS s, count(*) AS n FROM h GROUP BY bo", ansi=False),
    _q(
        "types_join_key_may_raise",
        "SELECT f.id, g.grp FROM f JOIN g ON f.k2 = CAST(g.num AS INT)",
        may_raise=True,
    ),
    _q("types_cast_error_in_live_rows", "SELECT ks, count(CAST(num AS INT)) AS n FROM g GROUP BY ks", may_raise=True),
]

GRAPH = [
    _q("graph_two_way_rows", "SELECT r.a, r.b, s.c FROM r JOIN s ON r.b = s.b"),
    _q("graph_two_way_count", "SELECT count(*) AS n FROM r JOIN s ON r.b = s.b"),
    _q(
        "graph_natural_join",
        "SELECT r.b AS b, s.c AS c FROM (SELECT a, b FROM r) AS r NATURAL JOIN (SELECT b, c FROM s) AS s",
    ),
    _q(
        "graph_chain3",
        "SELECT r.a, t.d, count(*) AS n FROM r JOIN s ON r.b = s.b JOIN t ON s.c = t.c GROUP BY r.a, t.d",
    ),
    _q(
        "graph_chain3_middle_group",
        "SELECT s.b, s.c, count(*) AS n, sum(r.v) AS rv, sum(t.v) AS tv FROM r, s, t WHERE r.b = s.b AND s.c = t.c GROUP BY s.b, s.c",
    ),
    _q(
        "graph_chain4",
        "SELECT u.e, sum(r.x) AS s, count(*) AS n FROM r JOIN s ON r.b = s.b JOIN t ON s.c = t.c JOIN u ON t.d = u.d GROUP BY u.e",
    ),
    _q(
        "graph_chain4_rows",
        "SELECT r.a, s.tag, u.e FROM r JOIN s ON r.b = s.b JOIN t ON s.c = t.c JOIN u ON t.d = u.d WHERE r.v > 20 AND t.v > 0",
    ),
    _q(
        "graph_chain5_with_edge",
        """SELECT edge.dst, count(*) AS n, sum(edge.cost) AS c FROM r JOIN s ON r.b = s.b JOIN t ON s.c = t.c
        JOIN u ON t.d = u.d JOIN edge ON u.e = edge.src WHERE r.v > 10 GROUP BY edge.dst""",
    ),
    _q(
        "graph_ends_not_free_connex",
        "SELECT r.a, u.e, count(*) AS n, sum(s.x) AS x FROM r JOIN s ON r.b = s.b JOIN t ON s.c = t.c JOIN u ON t.d = u.d WHERE u.v > 3 GROUP BY r.a, u.e",
    ),
    _q("graph_projection_without_join_key", "SELECT r.a, s.tag FROM r JOIN s ON r.b = s.b"),
    _q(
        "graph_star",
        "SELECT s.tag, count(*) AS n, sum(r.x * s.x) AS p FROM s JOIN r ON r.b = s.b JOIN t ON t.c = s.c GROUP BY s.tag",
    ),
    _q(
        "graph_self_join",
        "SELECT x.src, y.dst, count(*) AS n FROM edge AS x JOIN edge AS y ON x.dst = y.src GROUP BY x.src, y.dst",
    ),
    _q("graph_self_join_rows", "SELECT x.src, x.dst, y.dst AS far FROM edge x, edge y WHERE x.dst = y.src"),
    _q(
        "graph_self_join_same_key",
        "SELECT x.b, sum(x.x) AS sx, sum(y.x) AS sy FROM r x JOIN r y ON x.b = y.b GROUP BY x.b",
    ),
    _q(
        "graph_path3",
        "SELECT count(*) AS n, sum(x.cost) AS c FROM edge x JOIN edge y ON x.dst = y.src JOIN edge z ON y.dst = z.src",
    ),
    _q(
        "graph_path3_by_start",
        "SELECT x.src, sum(z.cost) AS c FROM edge x JOIN edge y ON x.dst = y.src JOIN edge z ON y.dst = z.src GROUP BY x.src",
    ),
    _q(
        "graph_self_and_other",
        "SELECT r.a, count(*) AS n FROM edge x JOIN edge y ON x.dst = y.src JOIN r ON r.a = x.src GROUP BY r.a",
    ),
    _q(
        "graph_two_keys", "SELECT r.a, count(*) AS n FROM r JOIN edge ON r.a = edge.src AND r.b = edge.dst GROUP BY r.a"
    ),
    _q(
        "graph_subquery_in_from",
        "SELECT q.a, sum(q.v) AS v FROM (SELECT a, b, v FROM r WHERE v > 0) q JOIN (SELECT b FROM s WHERE tag <> '') p ON q.b = p.b GROUP BY q.a",
    ),
    _q(
        "graph_cte",
        "WITH rs AS (SELECT r.a, s.c, s.x FROM r JOIN s ON r.b = s.b) SELECT rs.a, sum(rs.x) AS x FROM rs JOIN t ON rs.c = t.c GROUP BY rs.a",
    ),
    _q(
        "graph_cte_twice",
        "WITH e AS (SELECT src, dst FROM edge WHERE cost > 2) SELECT x.src, y.dst FROM e x JOIN e y ON x.dst = y.src",
    ),
    _q("graph_key_filter_both_sides", "SELECT r.b, s.v FROM r JOIN s ON r.b = s.b WHERE r.b = 3"),
    _q("graph_constant_key", "SELECT r.a, s.c FROM r JOIN s ON r.b = s.b AND s.tag = 'red'"),
    _q("graph_residual_inequality", "SELECT r.a, s.c FROM r JOIN s ON r.b = s.b WHERE r.v + s.v > 10 OR r.a = s.c"),
    _q(
        "graph_having_avg",
        "SELECT s.tag, avg(r.x) AS a, count(r.v) AS n FROM r JOIN s ON r.b = s.b GROUP BY s.tag HAVING count(r.v) > 2",
    ),
    _q(
        "graph_double_chain",
        "SELECT r.a, sum(t.y) AS y, avg(t.y) AS ay{scale} FROM r JOIN s ON r.b = s.b JOIN t ON s.c = t.c GROUP BY r.a",
        scales={"y": finite("t.y"), "ay": finite("t.y")},
    ),
    _q(
        "graph_division_in_dead_rows",
        "SELECT s.tag, sum(r.v / r.z) AS q, count(*) AS n{scale} FROM r JOIN s ON r.b = s.b GROUP BY s.tag",
        scales={"q": finite("r.v / r.z")},
    ),
    _q(
        "graph_division_in_live_rows",
        "SELECT r.a, count(100 div (r.v - 7)) AS q FROM r JOIN s ON r.b = s.b GROUP BY r.a",
        may_raise=True,
    ),
    _q(
        "graph_non_ansi_division",
        "SELECT r.a, sum(100 div (r.v % 3)) AS q FROM r JOIN s ON r.b = s.b GROUP BY r.a",
        ansi=False,
    ),
    _q(
        "graph_global_no_rows",
        "SELECT count(*) AS n, sum(r.x) AS s, avg(s.x) AS a FROM r JOIN s ON r.b = s.b WHERE r.v > 1000",
    ),
    _q(
        "graph_order_limit_rows", "SELECT r.a, s.c FROM r JOIN s ON r.b = s.b ORDER BY r.a DESC NULLS LAST, s.c LIMIT 7"
    ),
    _q(
        "graph_triangle_is_cyclic",
        "SELECT count(*) AS n FROM edge x JOIN edge y ON x.dst = y.src JOIN edge z ON y.dst = z.src AND z.dst = x.src",
        expected=("full",),
    ),
    _q("graph_left_join_is_full", "SELECT r.a, s.c FROM r LEFT JOIN s ON r.b = s.b", expected=("full",)),
    _q("graph_distinct", "SELECT DISTINCT a FROM r"),
    _q("graph_distinct_of_join", "SELECT DISTINCT r.a, s.tag FROM r JOIN s ON r.b = s.b"),
    _q(
        "graph_filter_may_raise",
        "SELECT s.tag, count(*) AS n FROM r JOIN s ON r.b = s.b WHERE 100 div (r.v - 7) <> 3 GROUP BY s.tag",
        may_raise=True,
    ),
    _q(
        "graph_self_join_own_filters",
        "SELECT x.src, y.dst FROM edge x JOIN edge y ON x.dst = y.src WHERE x.cost > 3 AND y.cost <= 6",
    ),
    _q(
        "graph_group_by_join_key_expression",
        "SELECT r.b % 4 AS k, count(*) AS n, sum(s.v) AS v FROM r JOIN s ON r.b % 4 = s.b % 4 GROUP BY r.b % 4",
    ),
    _q(
        "graph_constants_and_twice",
        "SELECT 'x' AS x, r.a, count(*) AS n, count(*) + 1 AS n1, sum(r.v) AS v, sum(r.v) AS again FROM r JOIN s ON r.b = s.b GROUP BY 'x', r.a",
    ),
    _q(
        "graph_two_blocks_global_no_rows",
        "SELECT count(*) AS n, sum(r.v * s.v) AS p FROM r JOIN s ON r.b = s.b WHERE r.v > 1000",
    ),
]

SHOP = [
    _q(
        "shop_revenue_by_segment",
        """SELECT c.segment, sum(l.price * (1 - l.disc)) AS revenue, count(*) AS n
        FROM customer c JOIN orders o ON c.ck = o.ck JOIN lineitem l ON l.ok = o.ok GROUP BY c.segment""",
    ),
    _q(
        "shop_order_priority",
        "SELECT o.ok, o.odate, sum(l.price * (1 - l.disc)) AS revenue FROM orders o JOIN lineitem l ON l.ok = o.ok WHERE o.odate < DATE'2024-01-09' AND l.ship > DATE'2024-01-03' GROUP BY o.ok, o.odate",
    ),
    _q(
        "shop_pricing_summary",
        "SELECT prio, count(*) AS n, sum(total) AS t, avg(total) AS a FROM orders WHERE odate <= DATE'2024-01-10' GROUP BY prio",
    ),
    _q(
        "shop_discounted",
        "SELECT sum(price * disc) AS revenue FROM lineitem WHERE disc BETWEEN 0.02 AND 0.07 AND qty < 24",
    ),
    _q(
        "shop_profit_three_tables",
        "SELECT p.brand, sum(l.price * (1 - l.disc) - p.cost * l.qty) AS profit FROM lineitem l JOIN part p ON l.pk = p.pk GROUP BY p.brand",
    ),
    _q(
        "shop_product_of_three",
        "SELECT o.prio, sum(l.disc * p.cost * o.total) AS s FROM lineitem l JOIN part p ON l.pk = p.pk JOIN orders o ON o.ok = l.ok GROUP BY o.prio",
    ),
    _q(
        "shop_six_way",
        """SELECT n.nname, r.rname, sum(l.price) AS s, count(*) AS n FROM customer c, orders o, lineitem l, part p, nation n, region r
        WHERE c.ck = o.ck AND l.ok = o.ok AND l.pk = p.pk AND c.nk = n.nk AND n.rk = r.rk AND p.size > 2 GROUP BY n.nname, r.rname""",
    ),
    _q(
        "shop_five_way_not_free_connex",
        """SELECT n.nname, p.brand, sum(l.qty) AS q FROM customer c JOIN orders o ON c.ck = o.ck JOIN lineitem l ON l.ok = o.ok
        JOIN part p ON p.pk = l.pk JOIN nation n ON n.nk = c.nk GROUP BY n.nname, p.brand""",
    ),
    _q(
        "shop_nation_twice",
        "SELECT n1.nname AS a, n2.nname AS b, count(*) AS n FROM customer c JOIN nation n1 ON c.nk = n1.nk JOIN orders o ON o.ck = c.ck JOIN lineitem l ON l.ok = o.ok JOIN nation n2 ON l.nk = n2.nk GROUP BY n1.nname, n2.nname",
    ),
    _q(
        "shop_nation_or",
        """SELECT count(*) AS n, sum(l.price) AS s FROM customer c JOIN nation n1 ON c.nk = n1.nk JOIN orders o ON o.ck = c.ck
        JOIN lineitem l ON l.ok = o.ok JOIN nation n2 ON l.nk = n2.nk
        WHERE (n1.nname = 'FR' AND n2.nname = 'DE') OR (n1.nname = 'DE' AND n2.nname = 'FR')""",
    ),
    _q(
        "shop_q19_or",
        "SELECT sum(l.price) AS s FROM lineitem l, part p WHERE l.pk = p.pk AND ((p.brand = 'B1' AND l.qty < 10) OR (p.brand = 'B2' AND l.qty BETWEEN 10 AND 30))",
    ),
    _q("shop_customer_orders_rows", "SELECT c.ck, c.segment, o.ok, o.total FROM customer c JOIN orders o USING (ck)"),
    _q(
        "shop_lineitem_part_rows",
        "SELECT l.ok, p.brand, l.qty * p.cost AS cost FROM lineitem l JOIN part p ON l.pk = p.pk WHERE p.size > 3",
    ),
    _q(
        "shop_case_priority",
        "SELECT l.ship, sum(CASE WHEN o.prio = '1-HIGH' THEN 1 ELSE 0 END) AS high, sum(CASE WHEN o.prio <> '1-HIGH' THEN 1 ELSE 0 END) AS low FROM orders o JOIN lineitem l ON l.ok = o.ok GROUP BY l.ship",
    ),
    _q(
        "shop_promo_share",
        "SELECT 100.00 * sum(CASE WHEN p.brand LIKE 'B1%' THEN l.price * (1 - l.disc) ELSE 0 END) / sum(l.price * (1 - l.disc)) AS share FROM lineitem l JOIN part p ON l.pk = p.pk",
    ),
    _q(
        "shop_having_total",
        "SELECT o.ck, sum(o.total) AS t FROM orders o JOIN customer c ON c.ck = o.ck GROUP BY o.ck HAVING sum(o.total) > 2000",
    ),
    _q(
        "shop_top_customers",
        "SELECT c.ck, sum(o.total) AS t, count(*) AS n FROM customer c JOIN orders o ON o.ck = c.ck GROUP BY c.ck ORDER BY t DESC NULLS LAST, c.ck LIMIT 5",
    ),
    _q(
        "shop_group_by_year",
        "SELECT year(o.odate) AS y, month(o.odate) AS m, day(o.odate) AS d, sum(l.qty) AS q FROM orders o JOIN lineitem l ON l.ok = o.ok GROUP BY year(o.odate), month(o.odate), day(o.odate)",
    ),
    _q(
        "shop_group_by_expression_of_two",
        "SELECT c.segment || '/' || o.prio AS k, count(*) AS n FROM customer c JOIN orders o ON o.ck = c.ck GROUP BY c.segment || '/' || o.prio",
    ),
    _q(
        "shop_balance_by_region",
        "SELECT r.rname, sum(c.bal) AS b, avg(c.bal) AS a, count(c.bal) AS n FROM customer c JOIN nation n ON c.nk = n.nk JOIN region r ON r.rk = n.rk GROUP BY r.rname",
    ),
    _q(
        "shop_global_four_way",
        "SELECT count(*) AS n, sum(l.price) AS s, avg(p.cost) AS c FROM customer c JOIN orders o ON o.ck = c.ck JOIN lineitem l ON l.ok = o.ok JOIN part p ON p.pk = l.pk",
    ),
    _q(
        "shop_date_key_join",
        "SELECT o.odate, count(*) AS n FROM orders o JOIN lineitem l ON o.odate = l.ship AND o.ok = l.ok GROUP BY o.odate",
    ),
    _q(
        "shop_nested_subquery",
        "SELECT x.segment, count(*) AS n FROM (SELECT * FROM (SELECT ck, segment FROM customer WHERE bal > 0) y) x JOIN orders o ON x.ck = o.ck GROUP BY x.segment",
    ),
    _q("shop_rand_is_full", "SELECT ck, rand(7) >= 0 AS yes FROM customer", expected=("full",)),
]

QUERIES: dict[str, list[Query]] = {"types": TYPES, "graph": GRAPH, "shop": SHOP}
