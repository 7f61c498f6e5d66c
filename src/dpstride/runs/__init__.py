"""What any run that writes files needs: a lock on its output, and one way to write a file."""
