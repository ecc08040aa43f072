"""Fixtures and helpers for tests of code that uses squirrel."""
