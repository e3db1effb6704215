"""A local web page over run directories. It only reads, so it works during training, after it, and over SSH.

    runs.py      which runs there are, and how each of them is doing
    columns.py   lines of metrics as the page draws them
    answers.py   what the page may ask: one function per question
    server.py    HTTP on loopback, for the browser of the same user only
    static/      the page itself: plain HTML, CSS and JavaScript, no build step, nothing from elsewhere

It imports no torch, so that it starts at once and takes little from a training on the same machine.
"""
