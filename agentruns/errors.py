"""Every exception of agentruns. The type is the condition; the message names the remedy.

Three families. What an author raises or catches (`Exception`); what a caller of a verb did wrong (`Refusal`, with a
sentence to show him); and what is ours, the database's or the deploy's (`Interruption`, a BaseException, so that
neither `except Exception` nor a library's guard can turn our trouble into a step's result).
"""


class AgentRunsError(Exception):
    """The base of what agentruns raises as an Exception."""


# --- what an author declares wrongly ------------------------------------------------------------------------------


class PlanError(AgentRunsError):
    """A plan that cannot be loaded: a bad or doubled name, an alias of a living step. Raised when it is declared."""


# --- what an author's step raises, or gets ------------------------------------------------------------------------


class PermanentError(AgentRunsError):
    """Raise it in a step: trying again would not help; the run fails at once and can be retried by a person."""


class RetryLater(AgentRunsError):
    """Raise it in a step: try again in `seconds`; counts as one of the step's retries."""

    def __init__(self, seconds: float, message: str = "") -> None:
        self.seconds = max(float(seconds), 0.0)
        if not self.seconds <= 366 * 86_400:
            raise ValueError(f"RetryLater({seconds!r}): give a number of seconds, at most a year's.")
        super().__init__(message or f"try again in {self.seconds:g} s")


class MisusedContext(PermanentError):
    """A step used ctx in a way that could not be resumed: two calls of one name, a bad name, a reserved word."""


class Rejected(PermanentError):
    """A person said no to what the step asked for, or nobody answered in time; `.reason` says why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"Rejected: {reason}")


class ItemFailed(AgentRunsError):
    """An item of a map failed: `.item` is it, `.error` what its function raised, which decides about a retry."""

    def __init__(self, item: object, error: Exception) -> None:
        self.item, self.error = item, error
        super().__init__(f"item {str(item)[:80]!r}: {type(error).__name__}: {error}")


class ModelError(PermanentError):
    """The provider's final no to one call; asking the same again would get the same. `code` is the provider's."""

    def __init__(self, message: str, code: str = "") -> None:
        self.code = code
        super().__init__(message)


class Incomplete(ModelError):
    """The answer ended early (`max_output_tokens`, `content_filter`): paid, kept in `.text`, not the answer."""

    def __init__(self, message: str, code: str = "", text: str = "") -> None:
        self.text = text
        super().__init__(message, code)


class Refused(ModelError):
    """The model or the provider's policy declined the request."""


class BadAnswer(ModelError):
    """Every answer that was asked for failed the ask's `schema` or `check`; the last one is in `.text`."""

    def __init__(self, message: str, text: str = "") -> None:
        self.text = text
        super().__init__(message, "bad_answer")


# --- what the provider answers (llm.py raises, the context decides) --------------------------------------------


class ProviderTrouble(AgentRunsError):
    """A call that got no answer to book. Its kinds say what may be done about it."""


class ProviderBusy(ProviderTrouble):
    """A passing failure (429, 5xx, no connection made): nothing was generated; try again, after `retry_after` s."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class ProviderStopped(ProviderTrouble):
    """Quota, key or permission: no call of any run can succeed until a person acts. Stops the provider for all."""


class BackgroundRefused(ProviderTrouble):
    """400 that names `background`: this provider or model has no background mode; ask again without it."""


class AnswerLost(ProviderTrouble):
    """The POST was sent and its answer never came: it may have been paid. `text` is what a stream had brought."""

    def __init__(self, message: str, text: str = "") -> None:
        self.text = text
        super().__init__(message)


class ResponseGone(ProviderTrouble):
    """404 for a response id: expired there, or made with another key or at another address."""


# --- what a caller of a verb is told --------------------------------------------------------------------------


class Refusal(AgentRunsError):
    """Bad input or a verb that does not fit the run's state: one sentence, with its remedy, for a person."""


class UnknownPlan(Refusal):
    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"There is no plan called {name!r}. Plans here: {', '.join(known) or 'none'}.")


class UnknownPrice(Refusal):
    def __init__(self, model: str) -> None:
        super().__init__(
            f"No price is known for model {model!r}, so its budget could not be kept. Set AGENT_PRICE="
            '"input/output" (USD per million tokens), or add a Price in the admin.'
        )


class WrongState(Refusal):
    """The verb does not apply to a run in this state (somebody was first, or it has ended)."""


# --- ours: they leave a step as BaseException and close its ctx ------------------------------------------------


class Interruption(BaseException):
    """Something of ours ends this entry of a step; whatever the function does with it, the engine sees it."""


class LeaseLost(Interruption):
    """Another holder has this run by now, or nobody: whatever is decided here would be refused by the database."""


class Draining(Interruption):
    """The worker is asked to stop: this run goes on elsewhere."""


class SliceOver(Interruption):
    """The slice's time is used up at a boundary: the run is released and rung for again."""


class Parked(Interruption):
    """The run waits, and holds no process while it does. `waits` is what for, `reason` a sentence for people."""

    def __init__(self, *waits: object, reason: str = "") -> None:
        self.waits, self.reason = waits, reason
        super().__init__(reason or "the run waits")


class CancelAsked(Interruption):
    """A person asked to cancel this run: nothing new begins."""


class PauseAsked(Interruption):
    """A person paused this run, or all work: nothing new begins until he resumes it."""


class StepTimeout(Interruption):
    """The step ran longer than its `timeout`."""


class DeadlinePassed(Interruption):
    """The run's own time limit is over; it was given when the run was submitted."""


class DatabaseTrouble(Interruption):
    """The database did not do what we asked; nothing the step did counts until it does. `is_passing`: it may later."""

    def __init__(self, message: str, *, is_passing: bool = True) -> None:
        self.is_passing = is_passing
        super().__init__(message)
