"""State on disk and in workers: array files, lineage replay, worker cache."""
