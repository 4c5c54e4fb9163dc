"""Ray's errors, sorted: what means that a process is gone, and what a role said itself."""

from typing import Any

import ray
from ray import exceptions

GONE = (
    exceptions.RayActorError,  # with ActorDiedError and ActorUnavailableError
    exceptions.ObjectLostError,  # with OwnerDiedError, ObjectReconstructionFailedError, ObjectFetchTimedOutError
    exceptions.OutOfMemoryError,
    exceptions.NodeDiedError,
    exceptions.WorkerCrashedError,
    exceptions.PendingCallsLimitExceeded,
    exceptions.LocalRayletDiedError,
    exceptions.RaySystemError,
)
"""The process, its node or its object is gone; whoever did not answer in time (GetTimeoutError) counts as gone as well."""


def ask(reference: Any, seconds: float, lost: type[Exception], name: str) -> Any:
    """The answer to a call; `lost` if who was asked is gone or does not answer within `seconds`."""
    try:
        return ray.get(reference, timeout=seconds)
    except exceptions.RayTaskError:
        raise  # the role's own error
    except (*GONE, exceptions.GetTimeoutError) as error:
        raise lost(f"{name} does not answer: {type(error).__name__}") from error


def own_error(error: BaseException) -> BaseException:
    """The exception that a role raised, out of Ray's wrapping; the error itself if the process is gone."""
    if isinstance(error, exceptions.RayTaskError):
        cause = error.cause
        if isinstance(cause, BaseException):
            return cause
    return error


def describe(error: BaseException) -> str:
    """What happened, for people: a role's own traceback, or that its process is gone and why."""
    if isinstance(error, exceptions.RayTaskError):
        return str(error).strip()
    text = " ".join(str(error).split())
    # Ray's message ends in general advice, and begins with what its caller knows already.
    detail = text.partition("Worker exit detail: ")[2].partition(" Some common causes")[0]
    return f"its process is gone ({type(error).__name__}): {detail or text}"
