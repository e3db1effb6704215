"""A local web page over run directories. It only reads them, so it works during training, after it, and over SSH.

    runs.py      a row of the table for each run
    columns.py   lines of metrics as the page draws them
    answers.py   the requests of the page: one function each
    server.py    HTTP on loopback, for browsers on this machine
    static/      the page itself: plain HTML, CSS and JavaScript, no build step, nothing from elsewhere

It imports no torch, so that it starts at once and takes little from a training on the same machine.
"""
