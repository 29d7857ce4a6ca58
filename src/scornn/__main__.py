"""``python -m scornn``, so that ``torchrun -m scornn train …`` works too."""

import sys

try:
    from scornn.cli import main
except KeyboardInterrupt:
    sys.exit(130)

sys.exit(main())
