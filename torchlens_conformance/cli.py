"""The command line: parse, call, print. Commands are imported when they are used, so that ``--help`` is quick."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from torchlens_conformance import __version__

USAGE = 3
"""Exit code for wrong usage and for a fault of ours (0 to 2 are results)."""

_KIT = "torchlens_conformance.kit.commands"

_LAZY_COMMANDS = {
    "certify": (_KIT, "certify", "Certify a sink."),
    "engine": ("torchlens_conformance.kit.engine.command", "engine", "Examine an engine."),
    "explain": (_KIT, "explain", "Explain one check or law."),
    "fidelity": ("fidelity.commands", "fidelity", "Measure what trackers do to numbers."),
    "list": (_KIT, "list_checks", "List the checks of sinks, or the laws of engines (--engine), with what kills them."),
    "replay": (_KIT, "replay", "Run one check or law of a report again."),
    "spec": ("torchlens_conformance.spec.command", "spec", "Print the clauses of the specification."),
    "verify": (_KIT, "verify", "Verify a report: digest, schema and counts."),
}


class _LazyGroup(click.Group):
    """A group whose commands are imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_LAZY_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _LAZY_COMMANDS:
            return None
        module, name, _ = _LAZY_COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _LAZY_COMMANDS[name][2]) for name in self.list_commands(ctx)])


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples: torchlens-conformance fidelity run; torchlens-conformance spec JSONL-2",
)
@click.version_option(__version__, prog_name="torchlens-conformance")
def cli() -> None:
    """Measure what experiment trackers do to numbers, and certify sinks of the TorchLens tracker protocol."""


def main() -> None:
    """Run the command line; bad usage and refusals end with exit code 3 and a sentence, never a traceback."""
    from torchlens_conformance.protocol import Refusal

    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("Stopped.", err=True)
        code = 2
    except click.ClickException as error:
        error.show()
        code = USAGE
    except Refusal as refusal:
        click.echo(f"Error: {refusal}", err=True)
        code = USAGE
    except BrokenPipeError:
        # The reader of our output went away (a pager, say); there is nobody left to tell.
        sys.stderr.close()
        code = 0
    sys.exit(code if isinstance(code, int) else 0)
