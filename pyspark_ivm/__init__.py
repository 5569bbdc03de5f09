"""Incremental views for Spark SQL: ``CREATE INCREMENTAL VIEW v AS SELECT …``, then query ``v`` like a table.

Spark imports every top-level module named ``pyspark_*`` by itself: this module imports nothing heavy and never fails.
"""
