"""The adapters for frameworks that cannot be installed here, over a real daemon, with stand-ins for what they import of them."""

from __future__ import annotations

import abc
import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import types
import unittest.mock
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Optional

import ckptsidecar
from ckptsidecar.claude_agent import SidecarSessionStore
from ckptsidecar._document import run_name
from ckptsidecar.langgraph_store import SidecarStore
from ckptsidecar.openai_agents import SidecarSession
from ckptsidecar.pydantic_ai import SidecarHistory

from .harness import World, child, until, wait


def run(work: Any) -> Any:
    return asyncio.run(work)


class Loading(World):
    def test_nothing_of_a_framework_is_imported_with_the_adapters(self) -> None:
        code = (
            "import sys, ckptsidecar.openai_agents, ckptsidecar.claude_agent, ckptsidecar.pydantic_ai, ckptsidecar.langgraph_store; "
            "print([n for n in sys.modules if n.split('.')[0] in ('agents', 'claude_agent_sdk', 'pydantic_ai', 'langgraph')])"
        )
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.assertEqual(subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True).stdout, "[]\n")

    def test_runs_are_named_as_by_the_typescript_client(self) -> None:
        self.assertEqual(run_name("s 1", "-home-ä/proj", "s 1", "sub/😀"), "s_1-bf6024112a2b1baa")
        self.assertRegex(run_name("日本", "日本"), r"^[0-9a-f]{16}$")


def counted(make: Callable[[], Any], add: Callable[[Any, int], None], count: Callable[[Any], int], told: int) -> None:
    """Goes on counting in something that is kept, and says each number when it is."""
    kept = make()
    n = count(kept)
    while True:
        add(kept, n)
        os.write(told, f"{n}\n".encode())
        n += 1


class Killed(World):
    """Each adapter in a process that is killed, and its daemon too: what was acknowledged is there, once and in order."""

    def survives(self, make: Callable[[], Any], add: Callable[[Any, int], None], read: Callable[[Any], list[int]]) -> None:
        self.start()
        last = -1
        for life in range(4):
            reading, writing = os.pipe()
            pid = child(lambda: counted(make, add, lambda kept: len(read(kept)), writing))
            os.close(writing)
            lines = os.fdopen(reading)
            for _ in range(3 + life * 2):
                last = int(lines.readline())
            if life == 2:
                self.daemon.stop(signal.SIGKILL)
                self.daemon.start()
                last = int(lines.readline())
            os.kill(pid, signal.SIGKILL)
            wait(pid)
            self.assertTrue(until(self.daemon.alone))  # its last request may still be on its way: the next one counts
            last = max([last, *(int(line) for line in lines)])
            lines.close()
        found = read(make())
        self.assertEqual(found, list(range(len(found))))
        self.assertGreater(len(found), last)
        self.daemon.sound(self)

    def client(self) -> ckptsidecar.Sidecar:
        return self.sidecar(deadline=30.0)

    def test_openai_agents(self) -> None:
        self.survives(
            lambda: SidecarSession("count", sidecar=self.client()),
            lambda s, n: run(s.add_items([{"role": "user", "content": str(n)}])),
            lambda s: [int(item["content"]) for item in run(s.get_items())],
        )

    def test_claude_agent(self) -> None:
        key = {"project_key": "p", "session_id": "count"}
        self.survives(
            lambda: SidecarSessionStore(sidecar=self.client(), fold_session_summary=fold),
            lambda s, n: run(s.append(key, [{"type": "user", "uuid": f"u{n}", "n": n}])),
            lambda s: [e["n"] for e in run(s.load(key)) or []],
        )

    def test_pydantic_ai(self) -> None:
        self.survives(
            lambda: SidecarHistory("count", sidecar=self.client(), adapter=Messages()),
            lambda h, n: h.add([Message("request", n)]),
            lambda h: [m.content for m in h.messages()],
        )

    def test_langgraph_store(self) -> None:
        self.survives(
            lambda: SidecarStore(self.client()),
            lambda s, n: s.put(("counts",), f"{n:06}", {"n": n}),
            lambda s: sorted(item.value["n"] for item in s.search(("counts",), limit=10_000)),
        )


class Sessions(World):
    """The Session of OpenAI Agents, as the SDK's own session for SQLite does it (0.22.0)."""

    def setUp(self) -> None:
        super().setUp()
        self.start()

    def session(self, id: str = "s", **options: Any) -> SidecarSession:
        return SidecarSession(id, sidecar=self.sidecar(), **options)

    def test_items(self) -> None:
        async def work() -> None:
            s = self.session("thread/ü")
            self.assertEqual([await s.get_items(), await s.pop_item()], [[], None])
            await s.add_items([])
            items: list[Any] = [{"role": "user", "content": f"{n}", "providerData": {"x": [n, None, 1.5]}} for n in range(5)]
            await s.add_items(items[:2])
            await s.add_items(items[2:])
            items[0]["content"] = "changed by the caller"
            other = self.session("thread/ü")
            self.assertEqual([i["content"] for i in await other.get_items()], list("01234"))
            self.assertEqual([len(await other.get_items(n)) for n in (0, 1, 3, 5, 9, -1)], [0, 1, 3, 5, 5, 5])
            self.assertEqual([i["content"] for i in await other.get_items(2)], ["3", "4"])
            (await other.get_items())[0]["content"] = "changed by a reader"
            last = await other.pop_item()
            self.assertEqual(last, items[4])
            await s.add_items([{"role": "user", "content": "5"}])  # after another process has changed it
            self.assertEqual([i["content"] for i in await s.get_items()], list("01235"))
            await s.clear_session()
            self.assertEqual([await other.get_items(), await other.pop_item()], [[], None])
            await other.add_items([{"role": "user", "content": "anew"}])
            self.assertEqual(len(await s.get_items()), 1)

        run(work())
        self.daemon.sound(self)

    def test_settings_and_refusals(self) -> None:
        async def work() -> None:
            s = self.session(session_settings=types.SimpleNamespace(limit=2))
            await s.add_items([{"role": "user", "content": str(n)} for n in range(3)])
            self.assertEqual([len(await s.get_items()), len(await s.get_items(3))], [2, 3])
            with self.assertRaises(ckptsidecar.NotSerializable):
                await s.add_items([{"role": "user", "content": object()}])
            self.assertEqual(len(await s.get_items(9)), 3)
            with self.assertRaises(ckptsidecar.Invalid):
                await self.session(agent="other").get_items() or SidecarSession("")

        run(work())

    def test_many_processes_add_at_once(self) -> None:
        def add(who: int) -> None:
            s = self.session("crowd")
            for n in range(6):
                run(s.add_items([{"role": "user", "content": f"{who}.{n}"}]))

        threads = [threading.Thread(target=add, args=(who,)) for who in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        found = [i["content"] for i in run(self.session("crowd").get_items())]
        self.assertEqual(len(found), 24)
        for who in range(4):
            self.assertEqual([c for c in found if c.startswith(f"{who}.")], [f"{who}.{n}" for n in range(6)])

    def test_while_the_daemon_is_away_it_goes_on_and_sends_later(self) -> None:
        s = SidecarSession("away", sidecar=self.sidecar(deadline=0.2))
        run(s.add_items([{"role": "user", "content": "0"}]))
        self.daemon.stop(signal.SIGKILL)
        with self.quiet():
            run(s.add_items([{"role": "user", "content": "1"}]))
        self.assertEqual(len(run(s.get_items())), 2)
        self.daemon.start()
        until(lambda: len(run(self.session("away").get_items())) == 2 or s._history._agent.sidecar.replay())
        self.assertEqual([i["content"] for i in run(s.get_items())], ["0", "1"])


def fold(previous: Any, key: Mapping[str, str], entries: list[Any]) -> dict[str, Any]:
    """Stands in for the SDK's fold_session_summary: the last title, and how many entries there were."""
    data = dict(previous["data"]) if previous else {"count": 0}
    for entry in entries:
        data["count"] += 1
        if "customTitle" in entry:
            data["title"] = entry["customTitle"]
    return {"session_id": key["session_id"], "mtime": 0, "data": data}


class Transcripts(World):
    """The contracts that the Claude Agent SDK states for a SessionStore."""

    def setUp(self) -> None:
        super().setUp()
        self.start()
        self.store = self.other()

    def other(self, **options: Any) -> SidecarSessionStore:
        return SidecarSessionStore(sidecar=self.sidecar(), **{"fold_session_summary": fold, **options})

    def test_append_and_load(self) -> None:
        async def work() -> None:
            key, sub = {"project_key": "p/ä", "session_id": "s"}, {"project_key": "p/ä", "session_id": "s", "subpath": "subagents/agent-1"}
            self.assertIsNone(await self.store.load(key))
            await self.store.append(key, [])
            self.assertIsNone(await self.store.load(key))
            entries: list[Any] = [{"type": "x", "uuid": "b", "n": 1}, {"type": "x", "uuid": "a", "n": 2.5, "deep": {"\ud800": [None]}}, {"type": "x"}]
            await self.store.append(key, entries[:1])
            await self.store.append(key, entries)
            await self.other().append(key, [{"type": "x"}])
            self.assertEqual(await self.store.load(key), [*entries, {"type": "x"}])
            await self.store.append(sub, [{"type": "y"}])
            await self.store.append({"project_key": "p", "session_id": "s"}, [{"type": "z"}])
            self.assertEqual([await self.other().load(k) for k in (sub, {**key, "subpath": "no"})], [[{"type": "y"}], None])
            self.assertEqual(await self.store.list_subkeys(key), ["subagents/agent-1"])
            self.assertEqual(await self.store.list_subkeys({**key, "session_id": "no"}), [])
            listed = await self.store.list_sessions("p/ä")
            self.assertEqual([s["session_id"] for s in listed], ["s"])
            self.assertGreater(listed[0]["mtime"], 1e12)
            self.assertEqual(await self.store.list_sessions("none"), [])
            for bad in ({"project_key": "", "session_id": "s"}, {"project_key": "p"}, {**key, "subpath": ""}):
                with self.assertRaises(ckptsidecar.Invalid):
                    await self.store.append(bad, [{"type": "x"}])

        run(work())
        self.daemon.sound(self)

    def test_delete(self) -> None:
        async def work() -> None:
            key, one, two = ({"project_key": "p", "session_id": "s", **more} for more in ({}, {"subpath": "a/1"}, {"subpath": "a/2"}))
            await self.store.delete({"project_key": "p", "session_id": "never"})
            for k in (key, one, two, {**key, "session_id": "t"}, {**key, "project_key": "q"}):
                await self.store.append(k, [{"type": "x"}])
            await self.store.delete(one)
            self.assertEqual([await self.store.load(one), await self.store.list_subkeys(key)], [None, ["a/2"]])
            await self.other().delete(key)
            self.assertEqual([await self.store.load(k) for k in (key, two)], [None, None])
            self.assertEqual([s["session_id"] for s in await self.store.list_sessions("p")], ["t"])
            self.assertIsNotNone(await self.store.load({**key, "project_key": "q"}))

        run(work())

    def test_summaries_are_listed_without_transcripts(self) -> None:
        async def work() -> None:
            key = {"project_key": "p", "session_id": "s"}
            await self.store.append(key, [{"type": "x", "customTitle": "first"}, {"type": "x"}])
            await self.other().append(key, [{"type": "x", "customTitle": "second"}])
            await self.store.append({**key, "subpath": "sub"}, [{"type": "x"}])
            await self.other(fold_session_summary=lambda *_: 1 / 0).append({**key, "session_id": "odd"}, [{"type": "x"}])
            (one,) = await self.store.list_session_summaries("p")
            self.assertEqual((one["session_id"], one["data"]), ("s", {"count": 3, "title": "second"}))
            self.assertGreater(one["mtime"], 1e12)
            self.assertIsNotNone(await self.store.load({**key, "session_id": "odd"}))
            await self.store.delete(key)
            self.assertEqual(await self.store.list_session_summaries("p"), [])

        run(work())

    def test_the_fold_of_the_sdk_is_taken_where_it_is_installed(self) -> None:
        module = types.ModuleType("claude_agent_sdk")
        module.fold_session_summary = fold  # type: ignore[attr-defined]
        with unittest.mock.patch.dict(sys.modules, {"claude_agent_sdk": module}):
            run(SidecarSessionStore(sidecar=self.sidecar()).append({"project_key": "p", "session_id": "s"}, [{"type": "x"}]))
        self.assertEqual(len(run(self.store.list_session_summaries("p"))), 1)


@dataclasses.dataclass
class Message:
    """Stands in for a ModelMessage of Pydantic AI."""

    kind: str
    content: Any


class Messages:
    """Stands in for its ModelMessagesTypeAdapter."""

    def validate_json(self, text: bytes) -> list[Message]:
        return [Message(**m) for m in json.loads(text)]

    def dump_json(self, messages: list[Message]) -> bytes:
        return json.dumps([dataclasses.asdict(m) for m in messages]).encode()


class Result:
    """Stands in for an AgentRunResult."""

    def __init__(self, *messages: Message) -> None:
        self.messages = messages

    def new_messages_json(self) -> bytes:
        return Messages().dump_json(list(self.messages))


class Histories(World):
    def test_messages(self) -> None:
        self.start()
        one = SidecarHistory("c", sidecar=self.sidecar(), adapter=Messages())
        other = SidecarHistory("c", sidecar=self.sidecar(), adapter=Messages())
        self.assertEqual(one.messages(), [])
        one.add(Result(Message("request", "hello"), Message("response", {"$ckpt": "not a tag of ours"})))
        other.add([Message("request", "again")])
        one.add(Result())
        self.assertEqual([m.kind for m in one.messages()], ["request", "response", "request"])
        self.assertEqual(one.messages()[1].content, {"$ckpt": "not a tag of ours"})
        run(other.areplace([Message("request", "summed up")]))
        self.assertEqual(run(one.amessages()), [Message("request", "summed up")])
        run(one.aadd([Message("response", "fine")]))
        self.assertEqual(len(other.messages()), 2)
        run(one.aclear())
        self.assertEqual(other.messages(), [])
        with self.assertRaises(ckptsidecar.Invalid):
            one.add(type("Odd", (), {"new_messages_json": lambda self: b"{}"})())
        self.daemon.sound(self)

    def test_the_adapter_of_pydantic_ai_is_taken_at_the_first_use(self) -> None:
        self.start()
        history = SidecarHistory("c", sidecar=self.sidecar())
        with unittest.mock.patch.dict(sys.modules, {"pydantic_ai": None}), self.assertRaisesRegex(ImportError, "pip install pydantic-ai"):
            history.messages()
        package, module = types.ModuleType("pydantic_ai"), types.ModuleType("pydantic_ai.messages")
        module.ModelMessagesTypeAdapter = Messages()  # type: ignore[attr-defined]
        with unittest.mock.patch.dict(sys.modules, {"pydantic_ai": package, "pydantic_ai.messages": module}):
            history.add([Message("request", 1)])
            self.assertEqual(history.messages(), [Message("request", 1)])


class GetOp(NamedTuple):
    """The operations of LangGraph's store, with its members."""

    namespace: Any
    key: str
    refresh_ttl: bool = True


class SearchOp(NamedTuple):
    namespace_prefix: Any
    filter: Optional[dict[str, Any]] = None
    limit: int = 10
    offset: int = 0
    query: Optional[str] = None
    refresh_ttl: bool = True


class MatchCondition(NamedTuple):
    match_type: str
    path: Any


class ListNamespacesOp(NamedTuple):
    match_conditions: Any = None
    max_depth: Optional[int] = None
    limit: int = 100
    offset: int = 0


class PutOp(NamedTuple):
    namespace: Any
    key: str
    value: Optional[dict[str, Any]]
    index: Any = None
    ttl: Optional[float] = None


class Memory(World):
    """LangGraph's BaseStore, as its in-memory store does it (langgraph-checkpoint 4.2.0)."""

    def setUp(self) -> None:
        super().setUp()
        self.start()
        self.store, self.other = SidecarStore(self.sidecar()), SidecarStore(self.sidecar())

    def test_items(self) -> None:
        user = ("users", "ä/1")
        self.assertIsNone(self.store.get(user, "prefs"))
        value: dict[str, Any] = {"theme": "dark", "n": 3, "nested": {"tags": ["a", "b"]}}
        self.store.put(user, "prefs", value)
        value["theme"] = "changed by the caller"
        found = self.other.get(user, "prefs")
        self.assertEqual((found.value["theme"], found.key, found.namespace), ("dark", "prefs", user))
        self.other.put(user, "prefs", {"theme": "light"})
        again = self.store.get(user, "prefs")
        self.assertEqual((again.value, again.created_at), ({"theme": "light"}, found.created_at))
        self.assertGreaterEqual(again.updated_at, found.updated_at)
        self.store.delete(user, "prefs")
        self.store.delete(user, "none")
        self.assertIsNone(self.other.get(user, "prefs"))
        for bad in ((), ("",), ("a.b",), ("langgraph", "x"), (1,)):
            with self.assertRaises(ValueError):
                self.store.put(bad, "k", {})  # type: ignore[arg-type]
        with self.assertRaises(NotImplementedError):
            self.store.put(("a",), "k", {}, ttl=5)
        with self.assertRaises(ckptsidecar.NotSerializable):
            self.store.put(("a",), "k", {"x": object()})
        self.daemon.sound(self)

    def test_searches(self) -> None:
        for n in range(6):
            self.store.put(("docs", "even" if n % 2 == 0 else "odd"), f"d{n}", {"n": n, "at": {"x": n, "l": [n]}, "all": True})
        self.store.put(("other",), "o", {"n": 9})

        def keys(*args: Any, **options: Any) -> list[str]:
            return [item.key for item in self.other.search(*args, **options)]

        self.assertEqual(keys(("docs",)), ["d5", "d4", "d3", "d2", "d1", "d0"])
        self.assertEqual(keys(("docs", "odd")), ["d5", "d3", "d1"])
        self.assertEqual(keys(("docs",), limit=2, offset=1, query="passed over"), ["d4", "d3"])
        self.assertEqual(keys((), filter={"n": 9}), ["o"])
        self.assertEqual(keys(("docs",), filter={"n": {"$gte": 2, "$lt": 4}, "all": True}), ["d3", "d2"])
        self.assertEqual(keys(("docs",), filter={"at": {"x": 1}}), ["d1"])
        self.assertEqual(keys(("docs",), filter={"at": {"l": [2]}}), ["d2"])
        self.assertEqual(keys(("docs",), filter={"n": {"$ne": 0}, "at": {"x": {"$lte": 1}}}), ["d1"])
        self.assertEqual(keys(("docs",), filter={"n": {"$eq": 5}}), ["d5"])
        with self.assertRaises(ValueError):
            keys(("docs",), filter={"n": {"$like": 5}})

    def test_namespaces(self) -> None:
        for ns in (("a", "b", "c"), ("a", "b", "d", "e"), ("a", "x", "c"), ("z",)):
            self.store.put(ns, "k", {})
        self.store.put(("gone",), "k", {})
        self.store.delete(("gone",), "k")
        self.assertEqual(self.other.list_namespaces(), [("a", "b", "c"), ("a", "b", "d", "e"), ("a", "x", "c"), ("z",)])
        self.assertEqual(self.other.list_namespaces(prefix=("a", "b"), max_depth=3), [("a", "b", "c"), ("a", "b", "d")])
        self.assertEqual(self.other.list_namespaces(prefix=("a", "*", "c")), [("a", "b", "c"), ("a", "x", "c")])
        self.assertEqual(self.other.list_namespaces(suffix=("c",), limit=1, offset=1), [("a", "x", "c")])

    def test_batches(self) -> None:
        self.store.put(("a",), "old", {"n": 0})
        ops = [
            PutOp(("a",), "x", {"n": 1}), GetOp(("a",), "old"), GetOp(("a",), "x"), PutOp(("a",), "x", {"n": 2}), PutOp(("a",), "old", None),
            PutOp(("b",), "y", {"n": 3}), SearchOp(("a",)), ListNamespacesOp((MatchCondition("prefix", ("a",)),)),
        ]  # fmt: skip
        results = asyncio.run(self.store.abatch(ops))
        self.assertEqual([type(r).__name__ for r in results], ["NoneType", "Item", "NoneType", "NoneType", "NoneType", "NoneType", "list", "list"])
        self.assertEqual(([i.key for i in results[6]], results[7]), (["old"], [("a",)]))
        self.assertEqual(self.other.get(("a",), "x").value, {"n": 2})
        self.assertIsNone(self.other.get(("a",), "old"))
        self.assertEqual(len(list(self.store._shelf.agent.list(run=run_name("a", "a")))), 2, "two puts are one checkpoint")
        with self.assertRaises(ValueError):
            self.store.batch([object()])

    def test_awaited(self) -> None:
        async def work() -> None:
            await self.store.aput(("a",), "k", {"n": 1})
            self.assertEqual((await self.other.aget(("a",), "k")).value, {"n": 1})
            self.assertEqual(len(await self.other.asearch(("a",), filter={"n": 1})), 1)
            self.assertEqual(await self.other.alist_namespaces(prefix=("a",)), [("a",)])
            await self.store.adelete(("a",), "k")
            self.assertIsNone(await self.other.aget(("a",), "k"))

        run(work())

    def test_it_is_a_store_of_langgraph_where_that_is_installed(self) -> None:
        base = types.ModuleType("langgraph.store.base")

        class BaseStore(abc.ABC):
            pass

        class Item:
            def __init__(self, *, value: Any, key: str, namespace: Any, created_at: Any, updated_at: Any) -> None:
                self.value = value

        base.BaseStore, base.Item, base.InvalidNamespaceError = BaseStore, Item, type("InvalidNamespaceError", (ValueError,), {})  # type: ignore[attr-defined]
        modules = {"langgraph": types.ModuleType("langgraph"), "langgraph.store": types.ModuleType("langgraph.store"), "langgraph.store.base": base}
        with unittest.mock.patch.dict(sys.modules, modules):
            store = SidecarStore(self.sidecar())
            self.assertIsInstance(store, BaseStore)
            store.put(("a",), "k", {"n": 1})
            self.assertIsInstance(store.get(("a",), "k"), Item)
            with self.assertRaises(base.InvalidNamespaceError):  # type: ignore[attr-defined]
                store.put((), "k", {})

    def test_many_processes_put_at_once(self) -> None:
        def put(who: int) -> None:
            store = SidecarStore(self.sidecar())
            for n in range(6):
                store.put(("crowd",), f"{who}.{n}", {"n": n})

        threads = [threading.Thread(target=put, args=(who,)) for who in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(self.store.search(("crowd",), limit=100)), 24)


