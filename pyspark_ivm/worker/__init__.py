"""The functions that Spark calls."""
