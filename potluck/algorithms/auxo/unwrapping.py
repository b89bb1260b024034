"""Tasks and replies as the rule within a cohort knows them: with its own tag and slot."""

from dataclasses import replace

from potluck.authoring import Lost, ModelSpec, Reply, Task, Training


def find_model(task: Task) -> ModelSpec:
    """The model that a task of the inner rule trains, or uses."""
    assert isinstance(task.job, Training)
    return task.job.model


def unwrap_reply(reply: Reply) -> Reply:
    """A reply as the inner rule knows it: its own tag and slot."""
    return replace(reply, task=unwrap_task(reply.task))


def unwrap_lost(lost: Lost) -> Lost:
    return replace(lost, what=unwrap_task(lost.what)) if isinstance(lost.what, Task) else lost


def unwrap_task(task: Task) -> Task:
    assert isinstance(task.slot, tuple)
    return replace(task, tag=task.tag[0], slot=task.slot[1])
