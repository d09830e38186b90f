"""``python -m gapscope``: the command line where the script is not on PATH."""

from gapscope.cli import main

if __name__ == "__main__":
    main()
