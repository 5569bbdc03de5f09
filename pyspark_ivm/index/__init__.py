"""Flat-array indexes: hash relation, string table (numpy + numba only). Import ``cache`` first: it says where kernels
live."""
