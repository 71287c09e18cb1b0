"""`qbeast completion`."""

from __future__ import annotations

from typing import Any, Final

import click
from click.shell_completion import get_completion_class

from qbeast_core.cli.answer import Answer
from qbeast_core.cli.options import json_option

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
