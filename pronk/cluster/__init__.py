"""SEAM: how the processes of a run get to other machines. `base.py` has the protocol; `ssh.py` and `ray_cluster.py`.

      this machine                                      each other machine, once per process
      ClusterRun --> RemoteWorker --(ssh | ray)-->  ProcessRunner --starts--> pronk learner | pronk actor
          ^                                               |                        |
          '--- typed messages (processes/messages.py) ----'<--- Listening, Joined, Failed

`ClusterRun` decides what runs where and what is restarted. A `ProcessRunner` on the other machine runs one process, and
forwards its messages, its output and the changes of its run directory. It stops the process on request, or when the
connection is gone. Unrolls and parameters do not come this way: they travel between actors and learners over gRPC.
"""
