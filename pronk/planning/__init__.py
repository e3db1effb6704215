"""How many actors, gateways and learners a speed needs: costs -> simulation of the pipeline -> smallest numbers.

costs.py      what a step, an update, a message cost; from a file, or measured (`measuring.py`)
events.py     a clock, and resources that several jobs share (cores, network)
pipeline.py   what is simulated (actors, slots, network, gateway, batches, learners), and what comes out
simulated.py, simulation.py    the discrete-event simulation
search.py     the smallest numbers that reach a target
wording.py    what limits the speed, and what to do about it
"""
