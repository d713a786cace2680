"""Helpers for looking at a store, shared by the command line and the inspector.

    revisions     the checkpoint that somebody means: by id, number, steps back, time or metadata
    histories     the checkpoints of a thread: what each is about and added, and which ones are new
    graph         the lines of a history and its forks, as a drawing
    searching     what a search found, and who said it; `written` searches pending writes
    reading       parts of payloads, conversations, and whole threads in the order of their commits
    tool_calls    how tool calls, roles and changes of messages read
    documents     threads and conversations to hand on: JSON Lines, Markdown, HTML
    bisect        the checkpoint with which something came; `branches` holds the items for it
    forking       a checkpoint continued as a new thread
    usage         the bytes of threads, by kind
    formatting    text, times and sizes as people read them

Nothing here imports a framework or prints anything.
"""
