"""Work on git repositories, worktrees, objects and merges without running their configuration."""
