"""`python -m byheart` is the command line."""

from byheart.cli import main

main()
