"""``python -m scornn``, so that ``torchrun -m scornn train …`` works too."""

import sys

from scornn.cli import main

sys.exit(main())
