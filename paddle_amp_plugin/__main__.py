"""``python -m paddle_amp_plugin`` is ``paddle-amp``."""

from paddle_amp_plugin.cli.main import main

if __name__ == "__main__":
    main()
