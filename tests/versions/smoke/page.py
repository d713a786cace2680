"""Runs blocks of a page as a notebook would: in one module and one event loop, with `await` at the top level.

The blocks come on the standard input, with NUL between them. So does what each of them prints.
"""

import ast
import asyncio
import inspect
import sys

names: dict[str, object] = {"__name__": "__main__"}
with asyncio.Runner() as loop:
    for source in sys.stdin.read().split("\0"):
        code = compile(source, "<page>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, names)
        if inspect.iscoroutine(result):
            loop.run(result)
        sys.stdout.write("\0")
