"""The command line of berth: the product's commands in one place, and those that other packages register."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from domain.model.errors import BerthError
from domain.model.ownership import fault_of
from ops.owned import NotOurs, own_directory
from services.cli import (
    accesses,
    agent,
    apply,
    audit,
    bill,
    deadletters,
    describe,
    diff,
    events,
    explain,
    export,
    get,
    history,
    keys,
    optimise,
    plan,
    prune,
    replay,
    serve,
    setup,
    shadow,
    top,
    why,
)
from services.cli.options import show_help
from services.cli.output import say
from services.cli.registered import Commands
from services.cli.terminal import echo
from services.config import SETTINGS
from services.log_format import announce, is_json
from services.secret import redacted, traceback_of

TRY = "Try it"
USE = "Use it"
RUN = "Run it"
SET_UP = "Set it up"

HELP = """Places pods on nodes, exactly, and can say why.

[bold]berth demo[/bold] shows it on a real cluster's trace. [bold]berth up[/bold] runs everything in one
process; [bold]worker[/bold], [bold]relay[/bold] and [bold]api[/bold] run it in several, on your own Kafka and
Postgres.
"""


SHORT = (
    "`berth COMMAND --help` says what one takes, `berth --help-all` lists all settings: each is a variable "
    "of the environment and a flag."
)


class BerthGroup(TyperGroup):
    """Prints errors in one clear line, a traceback only with --debug; offers registered commands, too."""

    def __init__(self, *, commands: dict[str, Any], **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = Commands(commands, TRY)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader of our output has gone; keep Python from complaining at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except KeyboardInterrupt:
            echo("interrupted", err=True)
            raise typer.Exit(130) from None
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if ctx.params.get("debug"):
                echo(traceback_of(error), err=True)
            elif isinstance(error, BerthError):
                _complain(redacted(error))
            elif (said := getattr(error, "format_message", None)) is not None:
                asked = getattr(getattr(error, "ctx", None), "command_path", "berth")
                text = " ".join(redacted(said()).split()).replace("Value error, ", "")
                if text:  # empty: the help was shown instead
                    say(f"error: {text} (`{asked} --help` shows what is allowed)", err=True)
                raise typer.Exit(2) from None
            else:
                where = "this is a fault of berth, `berth --debug …` shows where"
                _complain(f"{redacted(f'{type(error).__name__}: {error}')}; {where}")
        raise typer.Exit(1)


def _complain(text: str) -> None:
    """Say what ends the command: on standard error, as a line of the log where that is JSON."""
    if is_json():
        announce(text, logging.ERROR)
    else:
        say(f"error: {text}", err=True)


def _settings_help() -> str:
    lines = ["[bold]Settings[/bold] come from the environment; flags win over them."]
    for setting in SETTINGS:
        default = f" [dim]\\[{setting.default}][/dim]" if setting.default else ""
        names = (setting.env_file, *setting.flags, setting.file_flag)
        others = "".join(f", {name}" for name in names if name)
        lines.append(f"[cyan]{setting.env}[/cyan]{others}{default}: {setting.help}")
    return "\n\n".join(lines)


def _help_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        context.command.epilog = _settings_help()
        show_help(context)


app = typer.Typer(
    name="berth",
    cls=BerthGroup,
    help=HELP,
    epilog=SHORT,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _version(wanted: bool) -> None:
    if wanted:
        from services.build import build

        echo(f"berth {build()}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    help_all: Annotated[
        bool,
        typer.Option(
            "--help-all", callback=_help_all, is_eager=True, help="Show this, and all settings, and exit."
        ),
    ] = False,
) -> None:
    """Read the options that all commands share."""
    if not debug:
        warnings.simplefilter("ignore")
    if kernels := os.environ.get("NUMBA_CACHE_DIR"):  # from which machine code is loaded
        with contextlib.suppress(PermissionError):  # nothing is there, and nothing can be kept
            own_directory(Path(kernels))
            if fault := fault_of(Path(kernels)):
                raise NotOurs(fault)


app.command("demo", rich_help_panel=TRY)(serve.demo)
app.command("up", rich_help_panel=TRY)(serve.up)
app.command("trace", rich_help_panel=TRY)(setup.trace)
app.command("plan", rich_help_panel=TRY)(plan.plan)
app.command("optimise", rich_help_panel=TRY)(optimise.optimise)
app.command("get", rich_help_panel=USE)(get.get)
app.command("events", rich_help_panel=USE)(events.events)
app.command("describe", rich_help_panel=USE)(describe.describe)
app.command("explain", rich_help_panel=USE)(explain.explain)
app.command("diff", rich_help_panel=USE)(diff.diff)
app.command("top", rich_help_panel=USE)(top.top)
app.command("why", rich_help_panel=USE)(why.why)
app.command("shadow", rich_help_panel=USE)(shadow.shadow)
app.command("history", rich_help_panel=USE)(history.history)
app.command("bill", rich_help_panel=USE)(bill.bill)
app.command("export", rich_help_panel=USE)(export.export)
app.command("accesses", rich_help_panel=USE)(accesses.accesses)
app.command("apply", cls=apply.WaitCommand, rich_help_panel=USE)(apply.apply)
app.command("delete", rich_help_panel=USE)(apply.delete)
app.add_typer(deadletters.app, name="deadletters", rich_help_panel=USE)
app.command("worker", rich_help_panel=RUN)(serve.worker)
app.command("relay", rich_help_panel=RUN)(serve.relay)
app.command("api", rich_help_panel=RUN)(serve.api)
app.command("executor", rich_help_panel=RUN)(serve.executor)
app.command("agent", rich_help_panel=RUN)(agent.agent)
app.command("health", rich_help_panel=RUN)(setup.health)
app.command("audit", rich_help_panel=RUN)(audit.audit)
app.command("prune", rich_help_panel=RUN)(prune.prune)
app.command("replay", rich_help_panel=RUN)(replay.replay)
app.command("init", rich_help_panel=SET_UP)(setup.init)
app.add_typer(keys.app, name="api-key", rich_help_panel=SET_UP)
app.command("version", rich_help_panel=SET_UP)(setup.version)
app.command("refold", rich_help_panel=SET_UP)(setup.refold)
app.command("compile", rich_help_panel=SET_UP)(setup.compile_)
app.command("serve-dev", rich_help_panel=SET_UP)(setup.serve_dev)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
