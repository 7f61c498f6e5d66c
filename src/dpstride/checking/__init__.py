"""Stage 3. `check`: is the network described correctly? Other descriptions are scored on some hundred evaluations.

Read it with its parts: `description` is what a description is, `kinds/` lists the others to try, `measure` runs the network,
`compare` gives paired differences in bits/dim, `search` finds the best, `outcome` puts it into words.
"""
