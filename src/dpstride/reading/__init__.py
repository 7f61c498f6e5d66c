"""Stage 0. Files that others made, read as data and never as code: JSON, zip archives, arrays, checkpoints, images.

Every reader of the package goes through here, so that SECURITY.md can be checked in one folder: what a file declares is
compared with what it holds before memory is taken for it, nothing is unpickled, and names inside a file are never paths.
"""
