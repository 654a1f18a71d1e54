"""Decide what may happen: effects, rules and autonomy in, a verdict out.

A tool declares effects; ``gate`` judges each and keeps the strictest answer. A path goes through
the path rules and the protected files, a host through the host rules, and a command line through
the shell reader, which takes it apart into simple commands before the command rules judge every
one. What the reader does not understand is never allowed. Redaction of secrets is here too.
The package is pure: files, time and settings come in as arguments.
"""

from coilclaw.pages import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "commands.launchers": "is_trivial read_launched runner",
        "commands.policy_rules": "CommandRules check_entry read_shipped_policy",
        "commands.program_table": (
            "FORBIDDEN_FLAGS INTERACTIVE Interpreter NETWORK_COMMANDS NETWORK_LAUNCHERS "
            "NETWORK_PROGRAMS PLAIN_AT_SIGN PlacedCommand TOOL_MODULES WRAPPERS interpreter "
            "is_label is_offline read_placed refused_words"
        ),
        "hosts": "WebAddress find_entry_problem",
        "judgement": "Autonomy Judgement Terms",
        "protected_files": (
            "CODE_COMMIT_POLICY DEFAULT_POLICY KEY_FILES ProtectedPolicy ProtectedRule "
            "STAGING_PREFIX find_protected_policy glob_of_path"
        ),
        "redaction": "SecretRedactor",
        "settings": "FORBIDDEN_COMMANDS FORBIDDEN_PATHS SecretFiles SecuritySettings USUAL",
    },
    modules="commands.policy_rules gate hosts",
)
