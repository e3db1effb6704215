"""What limits a plan, and the first thing to change about it, in words."""

from __future__ import annotations

from pronk.planning.search import Plan

FULL = 0.97  # utilisation: a part that is busier than this sets the speed
ORDER = ("learner", "gateway", "up", "down", "cores", "actors")  # which is named, if several are equally busy
NAMES = {
    "actors": "actors",
    "learner": "learner",
    "gateway": "gateway",
    "up": "network, unrolls",
    "down": "network, parameters",
    "cores": "cores of the learner's machine",
}
USUAL_MOST_ACTORS = 1024  # that a gateway lets in; see actors/gateway.py


def bottleneck(plan: Plan) -> str:
    """Return the part that sets the speed: a key of NAMES."""
    shares = plan.prediction.utilisation
    full = [name for name in ORDER if shares.get(name, 0.0) >= FULL]
    return full[0] if full else max(shares, key=lambda name: (shares[name], -ORDER.index(name)))


def advice(plan: Plan) -> str:
    """Return what the bottleneck calls for, in one sentence."""
    pipeline, found = plan.pipeline, bottleneck(plan)
    if found == "learner":
        more = "learners.count" if pipeline.learners == 1 else "more learners"
        return f"the learner sets the speed: a faster device, or {more}; more actors only add lag"
    if found == "actors":
        return "the actors set the speed: more of them make training faster until the learner never waits"
    if found == "gateway":
        return (
            "the gateway's core is full: more learners, each with a gateway; smaller observations help, and so does a "
            "larger actors.sync_every where parameters are large"
        )
    if found == "up":
        return "unrolls fill the network card: transport.compression=lz4, smaller observations, or more learners"
    if found == "down":
        return (
            "parameters fill the network card: actors.sync_every=4, at the price of some lag, or "
            "transport.parameters_dtype=bfloat16"
        )
    if pipeline.one_machine:
        if pipeline.on_device:
            return f"the actors fill all {pipeline.cores} cores: more cores, or actors on other machines"
        shared = "a GPU for the learner, or actors on other machines, leave more for the rest"
        return f"actors and learner compete for {pipeline.cores} cores: {shared}"
    return "gateway and learner compete for the cores of their machine: give it more cores"


def settings(plan: Plan, columns: int, learners: int = 1) -> str:
    """Return the settings that make the plan.

    Args:
        plan: what was found.
        columns: of one learner's batch.
        learners: of the configuration that was planned.
    """
    words = [f"actors.count={plan.actors if plan.pipeline.one_machine else 0}"]
    if plan.learners > 1 or learners > 1:
        words += [f"learners.count={plan.learners}", f"learner.batch_size={plan.learners * columns}"]
    if not plan.pipeline.one_machine and plan.pipeline.actors > USUAL_MOST_ACTORS:
        words.append(f"gateway.max_actors={plan.pipeline.actors}")
    return " ".join(words)
