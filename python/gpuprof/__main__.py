"""``python -m gpuprof``: the command ``gpuprof``."""

from gpuprof._cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
