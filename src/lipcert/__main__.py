"""``python -m lipcert`` is the command ``lipcert``."""

from lipcert.cli import main

if __name__ == "__main__":
    main()
