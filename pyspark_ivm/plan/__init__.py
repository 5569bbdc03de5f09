"""What to maintain and how: exported plan in, maintenance plan out. Imports no pyspark and nothing from the engine."""
