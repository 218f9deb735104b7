"""The checkpointer for LangGraph: all that one must do, checked over a real daemon, called and awaited."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock
from typing import Any, Iterator, Optional

import ckptsidecar

from . import langgraph_shim
from .harness import ROOT, Daemon, World

SHIMMED = langgraph_shim.install()

from ckptsidecar.langgraph import SidecarSaver  # noqa: E402

_ids = itertools.count(1)


def new_id() -> str:
    """Ids whose order is that of time, as LangGraph's."""
    return f"1f000000-{next(_ids):04x}-6000-8000-000000000000"


def config(thread: str, ns: Optional[str] = "", checkpoint: Optional[str] = None, **more: Any) -> dict[str, Any]:
    named = {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint}
    return {"configurable": {**{k: v for k, v in named.items() if v is not None}, **more}}


def checkpoint(values: Optional[dict[str, Any]] = None, versions: Optional[dict[str, Any]] = None, **more: Any) -> dict[str, Any]:
    values = values or {}
    versions = dict.fromkeys(values, 1) if versions is None else versions
    return {
        "v": 4, "id": new_id(), "ts": "2026-01-01T00:00:00+00:00", "channel_values": values, "channel_versions": versions,
        "versions_seen": {"node": {"a": 1}}, "updated_channels": None, **more,
    }  # fmt: skip


META = {"source": "loop", "step": 1, "parents": {}}


class Called:
    """The saver's methods, as LangGraph's invoke uses them."""

    def __init__(self, saver: Any) -> None:
        self.saver = saver

    def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        return getattr(self.saver, name)(*arguments, **options)

    def list(self, *arguments: Any, **options: Any) -> list[Any]:
        return list(self.saver.list(*arguments, **options))

    def finish(self) -> None:
        pass


class Awaited(Called):
    """The same, as LangGraph's ainvoke uses them."""

    def __init__(self, saver: Any) -> None:
        super().__init__(saver)
        self.loop = asyncio.new_event_loop()

    def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        return self.loop.run_until_complete(getattr(self.saver, "a" + name)(*arguments, **options))

    def list(self, *arguments: Any, **options: Any) -> list[Any]:
        async def all_of() -> list[Any]:
            return [found async for found in self.saver.alist(*arguments, **options)]

        return self.loop.run_until_complete(all_of())

    def finish(self) -> None:
        self.loop.close()


class Conformance:
    """The nine capabilities. It is mixed into a test case for each way to call."""

    way: type[Called]
    daemon: Daemon
    agents = itertools.count(1)

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.mkdtemp(prefix="ckptpy-")
        cls.daemon = Daemon(cls.folder).start()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.daemon.stop(signal.SIGKILL)
        shutil.rmtree(cls.folder, ignore_errors=True)

    def setUp(self: Any) -> None:
        sidecar = ckptsidecar.Sidecar(self.daemon.socket, spool=os.path.join(self.folder, "spool"))
        self.addCleanup(sidecar._delivery.close, flush=False)
        self.agent = f"graph-{next(self.agents)}"
        self.saver = SidecarSaver(sidecar, agent=self.agent)
        self.s = self.way(self.saver)
        self.addCleanup(self.s.finish)

    def tearDown(self: Any) -> None:
        self.daemon.sound(self)

    def put(self: Any, cp: dict[str, Any], thread: str = "t", parent: Any = None, ns: str = "", new: Any = None, meta: Any = None) -> Any:
        where = config(thread, ns, parent["configurable"]["checkpoint_id"] if parent else None)
        return self.s.call("put", where, cp, META if meta is None else meta, cp["channel_versions"] if new is None else new)

    def chain(self: Any, length: int, thread: str = "t", ns: str = "", metas: Any = None) -> list[Any]:
        made: list[Any] = []
        for n in range(length):
            meta = {**META, "step": n, **((metas or {}).get(n) or {})}
            made.append(self.put(checkpoint({"n": n}, {"n": n + 1}), thread, made[-1] if made else None, ns, meta=meta))
        return made

    def get(self: Any, *arguments: Any) -> Any:
        return self.s.call("get_tuple", config(*arguments))

    def ids(self: Any, *arguments: Any, **options: Any) -> list[str]:
        return [found.config["configurable"]["checkpoint_id"] for found in self.s.list(*arguments, **options)]

    # put

    def test_what_was_put_comes_back(self: Any) -> None:
        values = {
            "text": "ä \ud83d\ude00 \"quoted\" \u2028", "number": 1.5, "big": 2**70, "none": None, "bytes": b"\x00\xff\n", "nested": {"a": [1, {"b": None}]},
            "tuple": (1, 2), "set": {1, 2}, "empty": "", "many": list(range(5000)),
        }  # fmt: skip
        cp = checkpoint(values, updated_channels=["text"])
        stored = self.put(cp, "thread with spaces/ä", ns="node:1|sub:2")
        self.assertEqual(stored, config("thread with spaces/ä", "node:1|sub:2", cp["id"]))
        found = self.s.call("get_tuple", stored)
        self.assertEqual((found.config, found.checkpoint, found.parent_config), (stored, cp, None))
        self.assertEqual(found.pending_writes, [])

    def test_the_checkpoint_that_was_given_stays_as_it_is(self: Any) -> None:
        cp = checkpoint({"a": [1]})
        before = {**cp, "channel_values": dict(cp["channel_values"])}
        self.put(cp)
        self.assertEqual(cp, before)

    def test_metadata_and_what_the_config_adds(self: Any) -> None:
        cp = checkpoint()
        where = {**config("t", user="ann", __secret="x", step=7), "metadata": {"tenant": "t1", "langgraph_step": 3, "object": object()}}
        meta = {**META, "run_id": "r", "nested": {"a": [1, None]}, "writes": {"a": object()}, "zero": "a\0b"}
        self.s.call("put", where, cp, meta, {})
        expected = {**META, "run_id": "r", "nested": {"a": [1, None]}, "zero": "ab", "user": "ann", "tenant": "t1"}
        self.assertEqual(self.get("t").metadata, expected)

    def test_only_new_versions_are_sent_and_the_others_carried(self: Any) -> None:
        first = self.put(checkpoint({"a": 1, "b": "x" * 10_000}, {"a": 1, "b": 1}))
        sent: list[int] = []
        send = self.saver._calls.send
        with unittest.mock.patch.object(self.saver._calls, "send", side_effect=lambda call, body: (sent.append(len(body)), send(call, body))[1]):
            self.put(checkpoint({"a": 2, "b": "x" * 10_000}, {"a": 2, "b": 1}), parent=first, new={"a": 2})
        self.assertEqual(len(sent), 1)
        self.assertLess(sent[0], 1000)
        self.assertEqual(self.get("t").checkpoint["channel_values"], {"a": 2, "b": "x" * 10_000})

    def test_what_the_parent_has_not_is_sent_after_all(self: Any) -> None:
        stray = config("t", "", new_id())
        for parent in (stray, self.put(checkpoint({"b": 1}, {"b": 1}))):
            cp = checkpoint({"a": 2, "b": 3}, {"a": 2, "b": 9})
            self.put(cp, parent=parent, new={"a": 2})
            self.assertEqual(self.s.call("get_tuple", config("t", "", cp["id"])).checkpoint, cp)

    def test_values_without_a_version_are_kept_and_without_a_parent_only_new_ones_are(self: Any) -> None:
        self.put(checkpoint({"a": 1, "b": 2}, {"a": 1}), "loose", new={"a": 1})
        self.assertEqual(self.get("loose").checkpoint["channel_values"], {"a": 1, "b": 2})
        self.put(checkpoint({"a": 1, "b": 2}, {"a": 1, "b": 1}), "none", new={})
        self.assertEqual(self.get("none").checkpoint["channel_values"], {})

    def test_a_fork_of_the_first_checkpoint_has_its_values(self: Any) -> None:
        first = checkpoint({"a": "input", "b": [1]}, {"a": 1, "b": 1})
        root = self.put(first)
        for name in ("left", "right"):
            self.put(checkpoint({"a": name, "b": [1]}, {"a": 2, "b": 1}), parent=root, new={"a": 2})
        fork = self.put({**first, "id": new_id()}, new={})
        found = self.s.call("get_tuple", fork)
        self.assertEqual((found.checkpoint["channel_values"], found.parent_config), ({"a": "input", "b": [1]}, None))
        which = self.put(checkpoint({"a": "left", "b": [1]}, {"a": 2, "b": 1}), new={})
        self.assertEqual(self.s.call("get_tuple", which).checkpoint["channel_values"], {"a": "left", "b": [1]})

    def test_a_put_without_new_versions_puts_all(self: Any) -> None:
        first = self.s.call("put", config("t"), checkpoint({"a": 1, "b": 2}, {"a": 1, "b": 1}), META)
        self.assertEqual(self.get("t").checkpoint["channel_values"], {"a": 1, "b": 2})
        self.s.call("put", first, checkpoint({"a": 3, "b": 4}, {"a": 1, "b": 1}), META, None)
        self.assertEqual(self.get("t").checkpoint["channel_values"], {"a": 3, "b": 4})

    def test_what_the_saver_has_is_not_sent_to_it_again(self: Any) -> None:
        still, got = "x" * 10_000, []
        read = self.saver._calls.read

        def watched(call: str, **query: Any) -> Any:
            parts = read(call, **query)
            got.append(sum(v["length"] for t in parts.header["tuples"] for v in t["values"]))
            return parts

        with unittest.mock.patch.object(self.saver._calls, "read", side_effect=watched):
            first = self.put(checkpoint({"a": 1, "b": still}, {"a": 1, "b": 1}))
            self.assertEqual(self.get("t").checkpoint["channel_values"], {"a": 1, "b": still})
            other = SidecarSaver(self.saver.sidecar, agent=self.agent)
            self.assertEqual(other.get_tuple(config("t")).checkpoint["channel_values"]["b"], still)
            fork = other.put(first, checkpoint({"a": 2, "b": "y" * 10_000}, {"a": 2, "b": 1}), META, {"a": 2, "b": 1})  # of the same version
            self.assertEqual(self.get("t").checkpoint["channel_values"]["b"], "y" * 10_000)
            self.put(checkpoint({"a": 3, "b": "?"}, {"a": 3, "b": 1}), parent=fork, new={"a": 3})
            self.assertEqual(self.get("t").checkpoint["channel_values"], {"a": 3, "b": "y" * 10_000})
            self.assertEqual(self.s.call("get_tuple", first).checkpoint["channel_values"]["b"], still)
        self.assertEqual([size > 9_000 for size in got], [False, True, False, True])

    def test_the_same_id_again_replaces(self: Any) -> None:
        cp = checkpoint({"a": 1})
        self.put(cp)
        self.s.call("put_writes", config("t", "", cp["id"]), [("a", 1)], "task")
        self.put({**cp, "channel_values": {"a": "other"}}, meta={**META, "step": 9})
        found = self.get("t")
        self.assertEqual((found.checkpoint["channel_values"], found.metadata["step"]), ({"a": "other"}, 9))
        self.assertEqual(found.pending_writes, [("task", "a", 1)])
        self.assertEqual(len(self.ids(config("t"))), 1)

    def test_two_forks_that_mint_one_version_keep_their_own_values(self: Any) -> None:
        root = self.put(checkpoint({"a": 0}, {"a": 1}))
        forks = [self.put(checkpoint({"a": name}, {"a": 2}), parent=root) for name in ("left", "right")]
        for name, fork in zip(("left", "right"), forks):
            child = self.put(checkpoint({"a": name, "b": 1}, {"a": 2, "b": 1}), parent=fork, new={"b": 1})
            self.assertEqual(self.s.call("get_tuple", child).checkpoint["channel_values"], {"a": name, "b": 1})
            self.assertEqual(self.s.call("get_tuple", child).parent_config, fork)

    def test_a_thread_must_be_named_and_a_namespace_need_not(self: Any) -> None:
        with self.assertRaises(KeyError):
            self.s.call("put", {"configurable": {"checkpoint_ns": ""}}, checkpoint(), META, {})
        with self.assertRaises(KeyError):
            self.s.call("get_tuple", {"configurable": {}})
        cp = checkpoint()
        stored = self.s.call("put", {"configurable": {"thread_id": 7}}, cp, META, {})
        self.assertEqual(stored, config("7", "", cp["id"]))
        self.assertIsNotNone(self.s.call("get_tuple", {"configurable": {"thread_id": 7}}))

    def test_what_is_no_json_is_refused_and_nothing_is_stored(self: Any) -> None:
        with self.assertRaisesRegex(ckptsidecar.Invalid, "metadata of a checkpoint must be plain JSON"):
            self.put(checkpoint(), meta={**META, "x": object()})
        with self.assertRaisesRegex(ckptsidecar.Invalid, "plain JSON"):
            self.put(checkpoint(versions_seen={"a": {"b": object()}}))
        self.assertIsNone(self.get("t"))

    # put_writes

    def test_writes_come_back_by_task_and_place(self: Any) -> None:
        where = self.put(checkpoint())
        self.s.call("put_writes", where, [("b", {"x": 1}), ("a", b"\x00"), ("b", None)], "task 2", "~path")
        self.s.call("put_writes", where, [("a", (1, 2))], "task 1")
        self.s.call("put_writes", where, [], "task 0")
        expected = [("task 1", "a", (1, 2)), ("task 2", "b", {"x": 1}), ("task 2", "a", b"\x00"), ("task 2", "b", None)]
        self.assertEqual(self.get("t").pending_writes, expected)

    def test_parallel_writes_come_back_in_the_order_of_their_paths(self: Any) -> None:
        where = self.put(checkpoint({"m": []}))
        for task, node in (("t1", "d"), ("t2", "a"), ("t3", "c"), ("t4", "b")):
            self.s.call("put_writes", where, [("m", node)], task, f"~__pregel_pull, {node}")
        end = self.put(checkpoint({}, {"m": 2}), parent=where)
        history = self.s.call("get_delta_channel_history", config=end, channels=["m"])["m"]["writes"]
        for writes in (self.get("t", "", where["configurable"]["checkpoint_id"]).pending_writes, self.s.list(where)[0].pending_writes, history):
            self.assertEqual([value for _, _, value in writes], ["a", "b", "c", "d"])

    def test_writes_that_are_there_stay_and_special_ones_are_replaced(self: Any) -> None:
        where = self.put(checkpoint())
        for n in (1, 2):
            self.s.call("put_writes", where, [("a", n), ("b", n)], "task")
            self.s.call("put_writes", where, [("__error__", n)], "task")
            self.s.call("put_writes", where, [("__interrupt__", n), ("__resume__", n)], "task")
            self.s.call("put_writes", where, [("__scheduled__", n), ("c", n)], "mixed")
        found = {(task, channel): value for task, channel, value in self.get("t").pending_writes}
        self.assertEqual(found[("task", "a")], 1)
        self.assertEqual([found[("task", c)] for c in ("__error__", "__interrupt__", "__resume__")], [2, 2, 2])
        self.assertEqual((found[("mixed", "__scheduled__")], found[("mixed", "c")]), (1, 1))
        self.assertEqual(len(self.get("t").pending_writes), 7)

    def test_writes_without_a_checkpoint_are_refused(self: Any) -> None:
        with self.assertRaisesRegex(ckptsidecar.Invalid, "checkpoint_id"):
            self.s.call("put_writes", config("t"), [("a", 1)], "task")

    def test_writes_may_come_before_their_checkpoint_and_belong_to_one_alone(self: Any) -> None:
        cp = checkpoint()
        where = config("t", "", cp["id"])
        self.s.call("put_writes", where, [("a", 1)], "task")
        self.assertIsNone(self.get("t"))
        self.put(cp)
        self.put(cp, ns="sub:1")
        self.put(cp, thread="other")
        self.assertEqual(self.get("t").pending_writes, [("task", "a", 1)])
        self.assertEqual((self.get("t", "sub:1").pending_writes, self.get("other").pending_writes), ([], []))

    # get_tuple

    def test_none_where_there_is_none(self: Any) -> None:
        self.assertIsNone(self.get("t"))
        self.put(checkpoint())
        self.assertIsNone(self.get("other"))
        self.assertIsNone(self.get("t", "other"))
        self.assertIsNone(self.get("t", "", new_id()))

    def test_the_newest_is_that_of_the_greatest_id(self: Any) -> None:
        early, late = checkpoint({"a": "early"}), checkpoint({"a": "late"})
        self.put(late)
        self.put(early)
        self.assertEqual(self.get("t").checkpoint["id"], late["id"])
        found = self.get("t", "", early["id"])
        self.assertEqual((found.checkpoint["channel_values"], found.config), ({"a": "early"}, config("t", "", early["id"])))

    def test_an_old_checkpoint_has_the_sends_of_its_parent(self: Any) -> None:
        parent = self.put(checkpoint({"a": 1}, {"a": 3}, v=1))
        self.s.call("put_writes", parent, [("__pregel_tasks", "second"), ("a", 2)], "t1", "~2")
        self.s.call("put_writes", parent, [("__pregel_tasks", "first")], "t2", "~1")
        for version, sends in ((1, ["first", "second"]), (4, None)):
            child = self.put(checkpoint({"a": 1}, {"a": 3}, v=version), parent=parent)
            found = self.s.call("get_tuple", child).checkpoint
            self.assertEqual(found["channel_values"].get("__pregel_tasks"), sends)
            self.assertEqual(found["channel_versions"].get("__pregel_tasks"), 3 if sends else None)

    # list

    def test_lists(self: Any) -> None:
        root, sub, other = self.chain(3), self.chain(2, ns="sub:1"), self.chain(2, "other")
        names = lambda made: [c["configurable"]["checkpoint_id"] for c in reversed(made)]  # noqa: E731
        self.assertEqual(self.ids(config("t")), names(root))
        self.assertEqual(self.ids(config("t", None)), names(sub) + names(root))
        self.assertEqual(self.ids(None), names(other) + names(sub) + names(root))
        self.assertEqual(self.ids(config("t", "sub:1")), names(sub))
        self.assertEqual(self.ids(root[1]), names([root[1]]))
        self.assertEqual(self.ids(config("t"), before=root[2]), names(root[:2]))
        self.assertEqual(self.ids(config("t"), before=config("t")), names(root))
        self.assertEqual(self.ids(config("t"), limit=2), names(root[1:]))
        self.assertEqual((self.ids(config("t"), limit=0), self.ids(config("t"), limit=-1)), ([], []))
        self.assertEqual(self.ids(config("nobody")), [])
        found = self.s.list(config("t"), limit=1)[0]
        self.assertEqual((found.parent_config, found.checkpoint["channel_values"], found.metadata["step"]), (root[1], {"n": 2}, 2))

    def test_filters_are_equality_of_metadata(self: Any) -> None:
        made = self.chain(4, metas={1: {"source": "input", "score": 1.5}, 2: {"source": "input", "nested": {"b": 1, "a": [True]}, "none": None}})
        ids = [c["configurable"]["checkpoint_id"] for c in made]
        for wanted, expected in [
            ({"source": "input"}, [2, 1]), ({"source": "input", "step": 1}, [1]), ({"step": 3}, [3]), ({"score": 1.5}, [1]), ({"step": "3"}, []),
            ({"nested": {"a": [True], "b": 1}}, [2]), ({"nested": {"a": [True]}}, []), ({"none": None}, [2]), ({"no such": 1}, []), ({}, [3, 2, 1, 0]),
        ]:  # fmt: skip
            self.assertEqual(self.ids(config("t"), filter=wanted), [ids[n] for n in expected], wanted)
        self.assertEqual(self.ids(config("t"), filter={"source": "input"}, limit=1), [ids[2]])
        self.assertEqual(self.ids(config("t"), filter={"source": "input"}, before=made[2]), [ids[1]])

    def test_a_long_list_comes_in_pages_and_only_as_far_as_it_is_looked_at(self: Any) -> None:
        made = [c["configurable"]["checkpoint_id"] for c in reversed(self.chain(45))]
        self.assertEqual(self.ids(config("t")), made)
        self.assertEqual(self.ids(config("t"), limit=33), made[:33])
        asked: list[str] = []
        read = self.saver._calls.read
        with unittest.mock.patch.object(self.saver._calls, "read", side_effect=lambda call, **q: (asked.append(call), read(call, **q))[1]):
            first: Iterator[Any] = self.saver.list(config("t"))
            next(first)
        self.assertEqual(asked, ["list"])

    # delete_thread, delete_for_runs, copy_thread, prune

    def test_a_thread_goes_with_all_its_namespaces(self: Any) -> None:
        for thread in ("t", "other"):
            self.s.call("put_writes", self.chain(2, thread)[-1], [("a", 1)], "task")
            self.chain(2, thread, ns="sub:1")
        self.s.call("delete_thread", "t")
        self.s.call("delete_thread", "nobody")
        self.assertEqual(self.ids(config("t", None)), [])
        self.assertEqual(len(self.ids(config("other", None))), 4)
        self.assertEqual(len(self.get("other").pending_writes), 1)
        self.put(checkpoint({"a": "anew"}))
        self.assertEqual((self.get("t").checkpoint["channel_values"], self.get("t").pending_writes), ({"a": "anew"}, []))

    def test_the_checkpoints_of_runs_go(self: Any) -> None:
        made = self.chain(4, metas={0: {"run_id": "r1"}, 1: {"run_id": "r2"}, 2: {"run_id": "r1"}})
        other = self.chain(1, "other", metas={0: {"run_id": "r1"}})
        self.chain(1, "kept", metas={0: {"run_id": "r3"}})
        self.s.call("put_writes", other[0], [("a", 1)], "task")
        self.s.call("delete_for_runs", [])
        self.s.call("delete_for_runs", ["nobody"])
        self.assertEqual(len(self.ids(None)), 6)
        self.s.call("delete_for_runs", ["r1", "r3"])
        self.assertEqual(self.ids(None), [made[n]["configurable"]["checkpoint_id"] for n in (3, 1)])
        self.assertEqual(self.get("t", "", made[1]["configurable"]["checkpoint_id"]).checkpoint["channel_values"], {"n": 1})

    def test_a_copy_is_whole_and_on_its_own(self: Any) -> None:
        made, sub = self.chain(3), self.chain(2, ns="sub:1")
        self.s.call("put_writes", made[1], [("a", 1)], "task")
        self.s.call("put_writes", sub[1], [("__interrupt__", "ask")], "task")
        self.s.call("copy_thread", "t", "copy")
        self.s.call("copy_thread", "nobody", "nothing")
        for ns in ("", "sub:1"):
            pairs = list(zip(self.s.list(config("t", ns)), self.s.list(config("copy", ns))))
            self.assertEqual(len(pairs), 3 if ns == "" else 2)
            for old, new in pairs:
                self.assertEqual(new.config["configurable"]["thread_id"], "copy")
                self.assertEqual((new.checkpoint, new.metadata, new.pending_writes), (old.checkpoint, old.metadata, old.pending_writes))
                self.assertEqual(new.parent_config is None, old.parent_config is None)
        self.s.call("delete_thread", "t")
        self.assertEqual(len(self.ids(config("copy", None))), 5)
        self.assertEqual(self.ids(config("nothing")), [])

    def test_prune_leaves_the_newest_of_each_namespace(self: Any) -> None:
        made, sub, other = self.chain(4), self.chain(2, ns="sub:1"), self.chain(2, "other")
        for where in (made[0], made[3]):
            self.s.call("put_writes", where, [("a", 1)], "task")
        self.s.call("prune", [])
        self.s.call("prune", ["nobody", "t"])
        left = [made[3], sub[1]]
        self.assertEqual(sorted(self.ids(config("t", None))), sorted(c["configurable"]["checkpoint_id"] for c in left))
        found = self.get("t")
        self.assertEqual((found.checkpoint["channel_values"], found.pending_writes), ({"n": 3}, [("task", "a", 1)]))
        self.assertEqual(len(self.ids(config("other"))), len(other))
        self.s.call("prune", ["t"], strategy="delete")
        self.assertEqual(self.ids(config("t", None)), [])
        with self.assertRaises(ckptsidecar.Invalid):
            self.s.call("prune", ["t"], strategy="some")

    # delta channels

    def delta(self: Any) -> list[Any]:
        """A chain whose channel m has a value in the second of five, and writes in all."""
        made: list[Any] = []
        for n in range(5):
            values = {"n": n, **({"m": ["seed"]} if n == 1 else {})}
            counters = {"counters_since_delta_snapshot": {"m": [n, n]}} if n > 1 else {}
            cp = checkpoint(values, {"n": n + 1, "m": n + 1})
            made.append(self.put(cp, parent=made[-1] if made else None, meta={**META, **counters}))
            self.s.call("put_writes", made[-1], [("m", f"{n}b"), ("x", "not asked for"), ("m", f"{n}c")], "t2")
            self.s.call("put_writes", made[-1], [("m", f"{n}a")], "t1")
        return made

    def test_the_history_of_delta_channels(self: Any) -> None:
        made = self.delta()
        self.assertEqual(self.s.call("get_delta_channel_history", config=made[4], channels=[]), {})
        found = self.s.call("get_delta_channel_history", config=made[4], channels=["m", "n", "none"])
        writes = [("t1" if c == "a" else "t2", "m", f"{n}{c}") for n in (1, 2, 3) for c in "abc"]
        self.assertEqual(found["m"], {"seed": ["seed"], "writes": writes})
        self.assertEqual(found["n"], {"seed": 3, "writes": []})
        self.assertEqual(found["none"], {"writes": []})
        root = self.s.call("get_delta_channel_history", config=made[0], channels=["m"])
        self.assertEqual(root, {"m": {"writes": []}})
        self.assertEqual([w[2] for w in self.s.call("get_delta_channel_history", config=made[1], channels=["m"])["m"]["writes"]], ["0a", "0b", "0c"])
        self.assertEqual(self.s.call("get_delta_channel_history", config=config("t"), channels=["m"])["m"], found["m"])

    def test_the_history_is_that_of_the_ancestors_alone(self: Any) -> None:
        made = self.delta()
        fork = self.put(checkpoint({"n": 9}, {"n": 9}), parent=made[2])
        self.s.call("put_writes", fork, [("m", "of the fork")], "t1")
        end = self.put(checkpoint({"n": 10}, {"n": 10}), parent=fork)
        writes = self.s.call("get_delta_channel_history", config=end, channels=["m"])["m"]["writes"]
        self.assertEqual([w[2] for w in writes], ["1a", "1b", "1c", "2a", "2b", "2c", "of the fork"])

    def test_prune_keeps_what_delta_channels_are_made_of(self: Any) -> None:
        made = self.delta()
        before = self.s.call("get_delta_channel_history", config=made[4], channels=["m"])
        self.s.call("prune", ["t"])
        self.assertEqual(self.s.call("get_delta_channel_history", config=made[4], channels=["m"]), before)
        self.assertEqual(len(self.ids(config("t"))), 4)


class ConformanceCalled(Conformance, unittest.TestCase):
    way = Called


class ConformanceAwaited(Conformance, unittest.TestCase):
    way = Awaited


class OverADaemon(World):
    def saver(self, **options: Any) -> Any:
        return SidecarSaver(self.sidecar(**options))

    def test_what_was_acknowledged_survives_a_killed_daemon(self) -> None:
        self.start()
        saver, parent = self.saver(deadline=20.0), config("t", "")
        for n in range(12):
            if n % 3 == 2:  # between two calls, and the next one waits for the daemon
                self.daemon.stop(signal.SIGKILL)
                threading.Timer(0.2, self.daemon.start).start()
            cp = checkpoint({"log": [f"line {i}" for i in range(n * 50)]}, {"log": n + 1})
            parent = saver.put(parent, cp, {**META, "step": n}, cp["channel_versions"])
            saver.put_writes(parent, [("log", n)], "task")
        self.daemon.stop(signal.SIGKILL)
        self.start()
        found = list(self.saver().list(config("t")))
        self.assertEqual([t.metadata["step"] for t in found], list(range(11, -1, -1)))
        for t in found:
            self.assertEqual(len(t.checkpoint["channel_values"]["log"]), t.metadata["step"] * 50)
            self.assertEqual(t.pending_writes, [("task", "log", t.metadata["step"])])
        self.daemon.sound(self)

    def test_a_graph_hears_of_its_drift_and_speaks(self) -> None:
        self.start()
        told: list[Any] = []
        saver = SidecarSaver(self.sidecar(), on_drift=lambda where, drift: told.append((where["configurable"]["thread_id"], drift.verdict)))
        where = saver.put(config("t", ""), checkpoint({"a": 1}), META, {"a": 1})
        self.assertFalse(saver.drift(where))
        found = saver.report(where, "wrong-file", "not its file", severity="critical")
        self.assertTrue(saver.drift(config("t")).critical)
        again = saver.put(where, checkpoint({"a": 2}), META, {"a": 2})  # the verdict comes with every put
        self.assertTrue(saver.drift(again).critical)
        asyncio.run(saver.adismiss(where, found["id"]))
        self.assertFalse(saver.drift(where))
        self.assertEqual(told, [("t", "critical")])
        with self.assertRaises(ckptsidecar.Invalid):
            saver.report(config("nobody"), "r", "m")
        self.daemon.sound(self)

    def test_without_a_daemon_it_says_so_and_spools_nothing(self) -> None:
        saver = self.saver(deadline=0.05)
        for call in (lambda: saver.get_tuple(config("t")), lambda: saver.put(config("t"), checkpoint(), META, {})):
            with self.assertRaises(ckptsidecar.NoDaemon):
                call()
        self.assertEqual(self.waiting(), [])

    def test_a_saver_is_a_context_and_closes_only_its_own_client(self) -> None:
        self.start()
        theirs = self.sidecar()
        close = ckptsidecar.Sidecar.close
        with unittest.mock.patch.object(ckptsidecar.Sidecar, "close", autospec=True, side_effect=close) as closed:
            with SidecarSaver(theirs) as saver:
                saver.put(config("t"), checkpoint({"a": 1}), META, {"a": 1})
            self.assertEqual(closed.call_count, 0)
            with unittest.mock.patch.dict(os.environ, {"CKPTSIDECAR_SOCKET": self.daemon.socket}):
                with SidecarSaver() as own:
                    self.assertEqual(own.get_tuple(config("t")).checkpoint["channel_values"], {"a": 1})
                self.assertEqual([call.args[0] for call in closed.call_args_list], [own.sidecar])

                async def awaited() -> None:
                    async with SidecarSaver() as again:
                        self.assertEqual((await again.aget_tuple(config("t"))).checkpoint["channel_values"], {"a": 1})

                asyncio.run(awaited())
                self.assertEqual(closed.call_count, 2)
                with self.assertRaisesRegex(ValueError, "no"), SidecarSaver():
                    raise ValueError("no")
                self.assertEqual(closed.call_count, 3)

    def test_many_threads_at_once(self) -> None:
        self.start()
        saver = self.saver()
        where = saver.put(config("t"), checkpoint(), META, {})

        def work(name: int) -> None:
            for n in range(10):
                saver.put_writes(where, [("a", [name, n])], f"task {name}.{n}")
                cp = checkpoint({"a": n})
                saver.put(config(f"thread {name}"), cp, META, cp["channel_versions"])

        workers = [threading.Thread(target=work, args=(name,)) for name in range(6)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        self.assertEqual(len(saver.get_tuple(where).pending_writes), 60)
        self.assertEqual(len(list(saver.list(None))), 61)
        self.daemon.sound(self)

    def test_answers_of_tools_are_steps_with_the_turn_of_the_model(self) -> None:
        record = json.loads((ROOT / "clients" / "recorded" / "langgraph-tools.json").read_text())
        self.start()

        def saver() -> SidecarSaver:  # each is that of another process
            return SidecarSaver(self.sidecar(), agent="tools", steps=True)

        at = config("t")
        for call in record["calls"]:
            cp = checkpoint({"messages": [call]})
            at = saver().put(at, cp, META, cp["channel_versions"])
            other, own = saver(), {c["id"] for c in call["tool_calls"]}
            other.get_tuple(config("t"))
            for n, answer in enumerate(a for a in record["answers"] if a["tool_call_id"] in own):
                other.put_writes(at, [("messages", [answer])], f"task {n}")
            self.daemon.stop(signal.SIGKILL)
            self.start()
            cp = checkpoint({"messages": []})
            at = other.put(at, cp, META, cp["channel_versions"])
        rows = self.daemon.rows("SELECT key, name, args, status, turn, outcome FROM audit_steps ORDER BY key")
        names = ("key", "name", "args", "status", "turn", "outcome")
        self.assertEqual([{**dict(zip(names, r)), "args": json.loads(r[2])} for r in rows], record["steps"])

    def test_steps_that_cannot_be_told_do_not_stop_a_graph(self) -> None:
        self.start()
        saver = SidecarSaver(self.sidecar(), agent="tools", steps=True)
        at = saver.put(config("t"), checkpoint(), META)
        with self.quiet() as log:
            saver.put_writes(at, [("messages", [{"tool_call_id": "x" * 600, "name": "f", "content": "too long a key"}])], "task")
        self.assertIn("could not be recorded as steps", log.output[0])

    def test_it_is_awaited_while_other_things_go_on(self) -> None:
        self.start()
        saver = self.saver()

        async def many() -> list[Any]:
            await asyncio.gather(*(saver.aput(config(f"t{n}"), checkpoint({"n": n}), META, {"n": 1}) for n in range(20)))
            return [t async for t in saver.alist(None)]

        self.assertEqual(len(asyncio.run(many())), 20)

    def test_auditors_see_runs_and_checkpoints_and_they_cost_what_changed(self) -> None:
        self.start()
        saver, parent = self.saver(), config("thread 7", "")
        big = {f"file{n}": os.urandom(24_000).hex() for n in range(3)}
        messages: list[str] = []
        for n in range(40):
            messages.append(f"message {n}: " + os.urandom(50).hex())
            versions = {**dict.fromkeys(big, 1), "messages": n + 1}
            cp = checkpoint({**big, "messages": list(messages)}, versions)
            parent = saver.put(parent, cp, {**META, "step": n}, versions if n == 0 else {"messages": n + 1})
        (runs,) = self.daemon.rows("SELECT count(*) FROM audit_runs WHERE agent = 'langgraph'")
        ((count, size, stored),) = self.daemon.rows("SELECT count(*), sum(size), sum(stored_size) FROM audit_checkpoints WHERE agent = 'langgraph'")
        self.assertEqual((runs, count), ((1,), 40), "the whole history is kept")
        self.assertLess(stored, size / 10)
        ((state,),) = self.daemon.rows("SELECT state FROM audit_states WHERE agent = 'langgraph' ORDER BY seq DESC LIMIT 1")
        self.assertTrue('"channel":"messages","version":40,' in state)
        if SHIMMED:  # LangGraph's own serializer makes bytes
            self.assertTrue(messages[-1] in state)

    def test_versions_grow(self) -> None:
        saver = self.saver()
        self.assertEqual((saver.get_next_version(None, None), saver.get_next_version(41, None)), (1, 42))
        first = "00000000000000000000000000000009.0.5"
        second = saver.get_next_version(first, None)
        self.assertGreater(second, first)
        self.assertGreater(saver.get_next_version(second, None), second)

    def test_without_langgraph_the_rest_of_the_package_works(self) -> None:
        code = "import sys; sys.modules['langgraph'] = None; import ckptsidecar\ntry: import ckptsidecar.langgraph\nexcept ImportError as e: print(e)"
        ran = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT / "clients/python/src")}, capture_output=True, text=True
        )
        self.assertRegex(ran.stdout, r"^ckptsidecar\.langgraph needs LangGraph .*: pip install langgraph-checkpoint$")

    def test_the_documents_examples(self) -> None:
        text = (ROOT / "docs/LANGGRAPH.md").read_text(encoding="utf-8")
        snippets = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
        self.assertGreaterEqual(len(snippets), 1)
        for code in snippets:
            compile(code, "docs/LANGGRAPH.md", "exec")
        if SHIMMED or importlib.util.find_spec("langgraph.graph") is None:
            self.skipTest("LangGraph is not installed: the examples were compiled, not run")
        self.start()
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python/src"), "CKPTSIDECAR_SOCKET": self.daemon.socket}
        for code in snippets:
            ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
            self.assertEqual(ran.returncode, 0, ran.stderr)

    @unittest.skipIf(SHIMMED, "LangGraph is not installed: its own conformance suite is not run")
    def test_langgraphs_own_suite(self) -> None:
        try:
            import langgraph.checkpoint.conformance  # noqa: F401
        except ImportError:
            self.skipTest("langgraph-checkpoint-conformance is not installed")
        self.start()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "CKPTSIDECAR_SOCKET": self.daemon.socket}
        ran = subprocess.run([sys.executable, "-m", "ckptsidecar.langgraph.conformance"], env=environment, capture_output=True, text=True, timeout=300)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)


if __name__ == "__main__":
    unittest.main()
