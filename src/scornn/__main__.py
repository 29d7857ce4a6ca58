"""The command ``scornn``, and ``python -m scornn``, so that ``torchrun -m scornn train …`` works too."""

import sys

_PROGRAM = {"msgspec", "rich", "safetensors", "matplotlib", "jinja2", "tyro"}


def main() -> int:
    """Run the program; say what to install where its extra is missing."""
    try:
        from scornn.program.cli import main as program

        return program()
    except ModuleNotFoundError as error:
        if error.name not in _PROGRAM:
            raise
        print(f"scornn: the command needs {error.name}: pip install 'scornn[program]'", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
