"""Says hello, and what it was started with."""

import os
import sys

print("hello from", os.path.basename(__file__), *sys.argv[1:])
