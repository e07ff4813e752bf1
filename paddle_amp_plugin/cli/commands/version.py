"""``paddle-amp version``: its options."""

from __future__ import annotations

import typer

from paddle_amp_plugin.messages import tr


def register(app: typer.Typer) -> None:
    app.command("version", help=tr("Show versions.", "显示版本。"))(command)


def command() -> None:
    from paddle_amp_plugin.cli.version import version_lines

    print("\n".join(version_lines()))
