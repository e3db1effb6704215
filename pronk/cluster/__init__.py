"""A run whose processes live on many machines.

      this machine                      each other machine, one per process
      Fleet --connect--> (ssh | ray) ==> Attendant --starts--> pronk learner | pronk actor
        ^--------- events: here, started, line, file, exit ------'

The fleet decides (`fleet.py`), a carrier reaches the machines (`ssh.py`, `ray_cluster.py`), and an attendant there
looks after one process: it passes on what the process prints and what it writes to its run directory, and ends it when
the fleet says so or is gone. Unrolls and parameters do not come this way: they travel between actors and learners over
gRPC.
"""
