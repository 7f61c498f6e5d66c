"""Stage 3. `check`: is the network described correctly? Other descriptions are scored with a few hundred evaluations.

`description` defines a description as data, `kinds/` lists the others to try, `measure` runs the network, `compare` gives
paired differences in bits/dim, `search` finds the best description, `outcome` puts the result into words.
"""
