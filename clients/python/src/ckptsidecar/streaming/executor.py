"""Running generated code statement by statement, so that it goes on exactly after a crash."""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any, AsyncIterable, Callable, Mapping, Optional, Sequence, Union

from .._aio import AsyncRun
from .._encode import Encoded, Trace, dumps, read_json, write_json
from ..errors import CkptError, Invalid
from .._json import is_object
from ..models import is_json
from .._run import Run
from .._typed import drive, read
from . import foreign
from .classes import Classes
from .foreign import CannotAdopt
from .graph import Codec, Writer
from .rebuild import OF_MODULE, Reader
from .source import Source, Statement
from .tools import Calls, current, tool

FORMAT = "ckptsidecar.statements/1"
_MOST_HEADER = 192 << 10  # bytes of a program as JSON: it travels in a header


class ProgramChanged(CkptError):
    """The program is not the one that the checkpoint was made of."""

    code = "program_changed"


class LossRefused(CkptError):
    """A variable cannot be saved, and the executor was asked to refuse that."""

    code = "not_serializable"


class StreamingExecutor:
    """Runs a program and saves a checkpoint after each of its top-level statements.

    ``run`` is a run that has begun, an AsyncRun or a Run. ``tools`` are functions that the program
    calls to do something in the world: each call is a step of the run, done once, with its result
    kept. ``names`` are other things that it may use. ``context`` is saved with each checkpoint: the
    model's answer, agents, meetings, whatever belongs to it; it comes back as ``context``.

    ``codecs`` say how values of other classes are saved. ``on_lost`` says what becomes of a variable that
    cannot be saved: "name" names it in ``lost``, and to use it after a resume raises LostValue;
    "hold" saves no checkpoint as long as there is one, so that a resume executes again what was
    executed since (calls of tools answer what they answered then); "refuse" raises LossRefused.

    With ``checkpoints=False`` nothing is saved or resumed.

    This is no sandbox: the program may do what this process may do.
    """

    def __init__(
        self,
        run: Union[AsyncRun, Run],
        tools: Optional[Mapping[str, Callable[..., Any]]] = None,
        names: Optional[Mapping[str, Any]] = None,
        *,
        context: Any = None,
        codecs: Sequence[Codec] = (),
        on_lost: str = "name",
        checkpoints: bool = True,
        on_statement: Optional[Callable[[Statement], Any]] = None,
    ) -> None:
        if on_lost not in ("name", "hold", "refuse"):
            raise ValueError(f'on_lost is {on_lost!r}: say "name", "hold" or "refuse"')
        self.run = run if isinstance(run, AsyncRun) else AsyncRun.over(run)
        self.context = context
        self.value: Any = None  # of the last statement, where it is an expression
        self.lost: list[Trace] = []  # the variables that the last checkpoint does not have
        self.executed = 0  # bytes of the source
        self.number = 0  # statements that were executed
        self._source = Source()
        self._classes = Classes()
        self._codecs = list(codecs)
        self._on_lost = on_lost
        self._checkpoints = checkpoints
        self._on_statement = on_statement
        wrapped = {name: tool(self.run, name, fn) if checkpoints else fn for name, fn in (tools or {}).items()}
        self._host: dict[str, Any] = {**(names or {}), **wrapped}
        self._module = types.ModuleType("__program__")
        self.namespace: dict[str, Any] = self._module.__dict__
        self._begin()

    @property
    def source(self) -> str:
        """The program, as far as it has come."""
        return self._source.text

    @property
    def remaining(self) -> str:
        """What of it has not run."""
        return self.source.encode()[self.executed :].decode()

    # Beginning

    def _begin(self) -> None:
        self.namespace["__builtins__"] = self._classes.builtins()
        self.namespace.update(self._host)
        checkpoint = self.run.plan.checkpoint if self._checkpoints else None
        if checkpoint is None or checkpoint.state_bytes is None:
            return
        state = read_json(checkpoint.state_bytes) if is_json(checkpoint.content_type) else None
        if foreign.is_foreign(state):
            self._adopt(checkpoint.program, state)
        elif checkpoint.program is not None:
            if not is_object(state) or state.get("format") != FORMAT:
                raise CannotAdopt(
                    "the checkpoint has a program, and its state is not of a form that this executor reads: "
                    "start another run, or continue from it in another way"
                )
            self._resume(checkpoint.program, state)

    def _adopt(self, program: Optional[Mapping[str, Any]], state: Mapping[str, Any]) -> None:
        """Goes on from a checkpoint that another system has written."""
        if program is None:
            raise CannotAdopt(
                "the imported checkpoint does not say what of its code has run (its executed_code is not the beginning "
                "of the code in its llm_response), so the run cannot continue: start another run"
            )
        self._source.text, self.executed = program["source"], program["executed"]
        try:
            self._source.learn(self.executed)
        except SyntaxError as error:
            raise CannotAdopt(f"the part of the imported program that has run is not a program: {error}") from error
        variables = foreign.variables_of(state)
        self.namespace.update(variables)
        sys.modules[self._module.__name__] = self._module
        for statement in self._source.executed.values():
            if foreign.defines(statement.node):
                try:
                    eval(self._source.compiled(statement), self.namespace)
                except Exception as error:
                    raise CannotAdopt(
                        f"line {statement.line} of the imported program cannot be executed again: {error!r}"
                    ) from error
            self._classes.learn(statement, self.namespace)
        self.namespace.update(variables)
        self.number = len(self._source.executed)
        self.context = foreign.context_of(state)
        self.lost = foreign.fill(self.namespace, [s.node for s in self._source.executed.values()])

    def _resume(self, program: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        self._source.text, self.executed = program["source"], program["executed"]
        self._source.learn(self.executed)
        for statement in self._source.executed.values():
            self._classes.learn(statement, {})
        written = state["namespace"]
        sys.modules[self._module.__name__] = self._module
        Reader(written, self._source, self.namespace, self._host, self._classes, self._codecs).read()
        self.number = state["statement"]["number"]
        self.value, self.context = _back(state["value"]), _back(state["context"])
        self.lost = [Trace(*trace) for trace in state["lost"]]

    # Executing

    async def execute(self, source: str) -> Any:
        """Runs a whole program, or the rest of it where the run is resumed; answers the value of the last statement.

        Raises SyntaxError before anything runs, ProgramChanged where the checkpoint is of another program, and
        what the program raises.
        """
        self._take(source)
        await self._run(self._source.statements(self.executed, True))
        return self.value

    async def feed(self, text: str) -> None:
        """Takes more of a program, as a model writes it, and runs the statements that are whole."""
        self._source.text += text
        await self._run(self._source.statements(self.executed, False))

    async def finish(self) -> Any:
        """Runs what is left when all has come; answers the value of the last statement."""
        await self._run(self._source.statements(self.executed, True))
        return self.value

    async def stream(self, parts: AsyncIterable[str]) -> Any:
        """Takes a program part by part, and runs it meanwhile."""
        async for part in parts:
            await self.feed(part)
        return await self.finish()

    def amend(self, rest: str) -> None:
        """Replaces what has not run, for example by what a model wrote after an error."""
        self._source.amend(self.executed, rest)

    def _take(self, source: str) -> None:
        if self.executed and not source.encode().startswith(self.source.encode()[: self.executed]):
            raise ProgramChanged(
                f"the first {self.executed} bytes, which have run, differ from this program: "
                "give the same program, continue with execute(executor.source), or start another run"
            )
        self._source.text = source

    async def _run(self, statements: list[Statement]) -> None:
        for statement in statements:
            await self._execute(statement)
            self.executed = statement.next
            self.number += 1
            self._source.executed[statement.at] = statement
            self._classes.learn(statement, self.namespace)
            if self._checkpoints:
                await self._save(statement)
            if self._on_statement is not None:
                done = self._on_statement(statement)
                if inspect.isawaitable(done):
                    await done

    async def _execute(self, statement: Statement) -> None:
        code = self._source.compiled(statement)
        sys.modules[self._module.__name__] = self._module  # data classes look there for what annotations name
        token = current.set(Calls(statement.at))
        try:
            value = eval(code, self.namespace)
            if code.co_flags & inspect.CO_COROUTINE:
                value = await value
        finally:
            current.reset(token)
        self.value = value

    # Saving

    async def _save(self, statement: Statement) -> None:
        program = {"source": self.source, "executed": self.executed}
        state = self._state(statement)
        if self.lost and self._on_lost == "hold":
            return
        size = len(dumps(program).data)
        if size > _MOST_HEADER:
            raise Invalid(
                f"the program has {size} bytes as JSON, and {_MOST_HEADER} can be saved with a checkpoint: "
                "cut it in parts"
            )
        await self.run.save(Encoded(write_json(state), self.lost, []), program=program)

    def _state(self, statement: Statement) -> Any:
        plain = (str, int, float, type(None))
        host = {id(value): name for name, value in self._host.items() if not isinstance(value, plain)}
        writer = Writer(self._source, self.namespace, host, self._classes, self._codecs)
        variables = {name: value for name, value in self.namespace.items() if name not in OF_MODULE}
        namespace = writer.write(variables)
        self.lost = writer.lost
        if writer.lost and self._on_lost == "refuse":
            first = writer.lost[0]
            raise LossRefused(f"variable {first.path} ({first.type}) {first.reason}, and {len(writer.lost) - 1} more")
        return {
            "format": FORMAT,
            "python": ".".join(map(str, sys.version_info[:2])),
            "statement": {"number": self.number, "line": statement.line, "text": statement.text},
            "namespace": namespace,
            "lost": [list(trace) for trace in writer.lost],
            "value": _forth(self.value),
            "context": _forth(self.context),
        }


def _forth(value: Any) -> Any:
    return read_json(dumps(value).data)


def _back(tree: Any) -> Any:
    return drive(read(tree))
