"""The commands of `qbeast` by name, with the handling of their results and errors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import click
from click.shell_completion import get_completion_class

from qbeast_core.cli.commands import Answer, Settings, json_option, print_answer, reported
from qbeast_core.support.text import did_you_mean

# As `qbeast --help` lists them: group -> name -> module below qbeast_core.cli.
_GROUPS: Final = {
    "Write": {
        "suggest": "write",
        "write": "write",
        "append": "write",
        "copy": "write",
        "convert": "maintenance",
        "import-carbondata": "write",
    },
    "Read": {
        "show": "read",
        "sample": "read",
        "sql": "read",
        "estimate": "read",
        "explain": "read",
        "export": "read",
        "split": "read",
    },
    "Change rows": {"merge": "write", "update": "write", "delete": "write"},
    "Change columns": {
        "add-columns": "maintenance",
        "rename-column": "maintenance",
        "drop-column": "maintenance",
        "widen-columns": "maintenance",
        "add-sample-column": "maintenance",
    },
    "Change index and settings": {
        "reindex": "maintenance",
        "set-properties": "maintenance",
        "constraints": "maintenance",
        "switch-dialect": "maintenance",
        "upgrade": "maintenance",
    },
    "Versions": {
        "history": "maintenance",
        "versions": "maintenance",
        "changes": "read",
        "diff": "read",
        "restore": "maintenance",
    },
    "Inspect": {
        "metrics": "maintenance",
        "advise": "maintenance",
        "check": "maintenance",
        "plot": "maintenance",
    },
    "Maintain": {
        "optimize": "maintenance",
        "vacuum": "maintenance",
        "repair": "maintenance",
        "drop": "maintenance",
    },
    "Shell": {"completion": "program"},
}
_COMMANDS: Final = {name: module for group in _GROUPS.values() for name, module in group.items()}
# Names that other programs use.
_ELSEWHERE: Final = {
    "add-constraint": "constraints",
    "alter": "add-columns",
    "cat": "show",
    "cdf": "changes",
    "clone": "copy",
    "columns": "show --schema",
    "compact": "optimize",
    "compare": "diff",
    "count": "show --count",
    "cp": "copy",
    "create": "write",
    "delete-table": "drop",
    "describe": "show --schema",
    "detail": "metrics",
    "drop-table": "drop",
    "files": "explain --files",
    "folds": "split",
    "fsck": "check",
    "head": "show",
    "help": "--help",
    "import": "write",
    "index": "reindex",
    "info": "show",
    "insert": "append",
    "load": "write",
    "load-cdf": "changes",
    "log": "history",
    "ls": "explain --files",
    "migrate": "convert",
    "partition": "reindex",
    "plan": "explain",
    "print": "show",
    "properties": "set-properties",
    "query": "sql",
    "read": "show",
    "rename": "rename-column",
    "rm": "drop",
    "rollback": "restore",
    "save": "export",
    "schema": "show --schema",
    "select": "sql",
    "statistics": "metrics",
    "stats": "metrics",
    "table-changes": "changes",
    "tail": "show",
    "to-csv": "export",
    "to-parquet": "export",
    "train-test-split": "split",
    "upsert": "merge",
    "version": "--version",
    "view": "show",
    "z-order": "optimize",
    "zorder": "optimize",
}


# Similarity of a misspelled command.
_SIMILAR: Final = 0.7


class _Program(click.Group):
    """A group whose commands return an `Answer`; it prints them, and reports errors."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the options before the command."""
        settings = Settings()
        with reported(settings):
            return super().make_context(info_name, args, parent, obj=settings, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, print its answer, leave with its exit code."""
        settings = ctx.ensure_object(Settings)
        with reported(settings):
            answer: Answer = super().invoke(ctx)
            print_answer(answer, settings)
            sys.stdout.flush()  # a reader that went away is noticed here
        ctx.exit(answer.exit_code)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command, and remember it; suggest others for an unknown one."""
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}.{_instead(args)}")
        name, command, rest = super().resolve_command(ctx, args)
        settings = ctx.ensure_object(Settings)
        settings.command, settings.commands = command, tuple(_COMMANDS)
        return name, command, rest

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names as the groups list them."""
        return list(_COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, a list a group, all of one width."""
        width = max(map(len, _COMMANDS))
        for title, names in _GROUPS.items():
            commands = [(f"{name:{width}}", self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl([(name, made.get_short_help_str(100)) for name, made in commands if made])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
        """Load one command."""
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"qbeast_core.cli.{_COMMANDS[cmd_name]}")
        made: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return made


def _instead(args: Sequence[str]) -> str:
    """Return what to run instead of an unknown command."""
    name = args[0].lower()
    if name not in _ELSEWHERE:
        return did_you_mean(args[:1], _COMMANDS, _SIMILAR)
    return f" Did you mean `qbeast {_ELSEWHERE[name]}`?"


@click.group(cls=_Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(
    None, "-V", "--version", package_name="qbeast", message="qbeast %(version)s", help="Print the version."
)
@json_option
def program() -> None:
    """Delta tables organised by a multidimensional index.

    TABLE is a folder, an address (s3://, gs://, az:// ...) or a name in a catalog (uc://catalog.schema.table,
    glue://db.table). `qbeast COMMAND --help` describes a command; docs/cli.md describes the rest, such as exit codes.
    """


_VARIABLE: Final = "_QBEAST_COMPLETE"
_HELP: Final = """Print the completion script of a shell.

\b
bash:  eval "$(qbeast completion bash)"                # in ~/.bashrc
zsh:   eval "$(qbeast completion zsh)"                 # in ~/.zshrc
fish:  qbeast completion fish > ~/.config/fish/completions/qbeast.fish
"""


@click.command(help=_HELP)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@json_option
@click.pass_context
def completion(ctx: click.Context, shell: str) -> Answer:
    """Print the script of a shell."""
    shell_class: Any = get_completion_class(shell)
    script = shell_class(ctx.find_root().command, {}, "qbeast", _VARIABLE).source()
    return Answer(parts=(script,), data={"shell": shell, "script": script})
