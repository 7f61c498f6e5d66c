"""Stage 0. Foreign files, read as data and never as code: JSON, zip archives, arrays, checkpoints, images.

Every reader of the package uses this one folder, so that SECURITY.md can be checked against it: declared sizes are compared
with the actual contents before memory is allocated, nothing is unpickled, and names inside a file are never used as paths.
"""
