"""Tools of frameworks whose calls are made once although processes die: a module for each framework.

`effect_tool(tool, effects)` returns a tool of the same kind, which `locus.effects` keeps from being made twice.
"""
