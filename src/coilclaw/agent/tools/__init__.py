"""Tools that an agent can call: files, changes, shell, web, memory and questions."""
