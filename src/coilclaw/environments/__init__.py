"""The names that environment files import; see ``authoring``."""
