"""What people need to look at a store: names of checkpoints, the shapes of payloads, graphs of histories, bisecting.

The command line and the inspector are built on it. Nothing here imports a framework or prints anything.
"""
