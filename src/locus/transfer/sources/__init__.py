"""Reads what other libraries have stored, without changing it: one module or package per library."""
