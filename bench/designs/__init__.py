"""Rows for the benchmarks of accuracy: drawn from known components, or read from tables that packages ship."""
