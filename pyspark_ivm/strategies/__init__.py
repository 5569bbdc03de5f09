"""One folder or file per maintenance algorithm."""
