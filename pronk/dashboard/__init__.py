"""A local web page over run directories: it works during training, after it, and over SSH.

It only reads them, except for the user's own tags and notes, which nobody else writes.

    runs.py        a row of the table for each run
    seeds.py       runs that differ by their seed only
    sweeps.py      the groups of sweeps
    columns.py     lines of metrics as the page draws them
    logs.py        the logs of a run's processes
    answers.py     the requests of the page: one function each
    prometheus.py  /metrics
    access.py      which requests may read, and which may change tags
    server.py      HTTP on loopback, for browsers on this machine
    static/        the page itself: plain HTML, CSS and JavaScript, no build step, nothing from elsewhere

It imports no torch, so that it starts at once and takes little from a training on the same machine.
"""
