"""Parse a command line, call the application, print the result, and return an exit code.

One module for each noun. ``main`` finds the command, ``dispatch`` imports its module, maps errors
to exit codes and restores the terminal. Output is text for people, colour on a terminal, JSON
with ``--json``. The scripted model server and the demos are commands too.
"""
