"""Files and batches: requests that are uploaded together and answered one by one when there is room.

    upload > folder > batch > validate > lines (one call each) > ledger > output file

Rows live in SQLite and contents in a folder beside it. Knows no HTTP and no backend: a line is run by an injected function.
"""
