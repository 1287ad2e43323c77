"""`alembert serve`: HTTP and a web page over fine-tuned models."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from alembert.cli.options import MODEL_HELP, ConfigFile, assignments_option, data_option, find_model, output_option
from alembert.errors import SERVING, BadSetting, require
from alembert.serve import ServeSettings
from alembert.settings import apply_layers, read_layers
from alembert.terminal import note

network_option = partial(typer.Option, rich_help_panel="Network")


def serve(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help=MODEL_HELP)],
    *,
    port: Annotated[int, network_option(help="Port to listen on; 0 for any free one.")] = 8000,
    host: Annotated[str, network_option(help="Address to listen on. Other machines need --token-file.")] = "127.0.0.1",
    token_file: Annotated[
        Path | None, network_option(metavar="FILE", help="File with the token that clients must send.")
    ] = None,
    label: Annotated[
        Path | None, output_option(metavar="FILE", help="Append the decisions of the page to this file of JSON lines.")
    ] = None,
    processes: Annotated[int, data_option(help="Server processes on the port, with a share of the cores each.")] = 1,
    config: ConfigFile = None,
    assignments: Annotated[list[str] | None, assignments_option(ServeSettings())] = None,
) -> None:
    """Serve fine-tuned models over HTTP, with a web page."""
    settings = apply_layers(ServeSettings(), read_layers(config, assignments, {}))
    require("Serving", *SERVING)
    from alembert.serve.models import name_models
    from alembert.serve.processes import Supervisor
    from alembert.serve.server import ServerConfig, read_token, run_server

    if not 1 <= processes <= 1024:
        raise BadSetting(f"`--processes` is {processes}; expected 1 to 1024.")
    serving = ServerConfig(
        folders=name_models([find_model(model) for model in models]),
        host=host,
        port=port,
        token=read_token(token_file) if token_file else None,
        label=label,
        settings=settings,
    )
    if processes == 1:
        run_server(serving, _print_url)
    elif code := Supervisor(serving, processes).run(_print_url, note):
        raise typer.Exit(code)


def _print_url(url: str) -> None:
    print(url, flush=True)
