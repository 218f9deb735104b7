"""The programs of the adapters for clients/conformance/conformance.py: python3 -m tests.conform ADAPTER."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import ckptsidecar
from ckptsidecar.claude_agent import SidecarSessionStore
from ckptsidecar.langgraph_store import SidecarStore
from ckptsidecar.openai_agents import SidecarSession
from ckptsidecar.pydantic_ai import SidecarHistory

from . import langgraph_shim

sidecar = ckptsidecar.Sidecar(deadline=60.0, fail_open=False)


class OpenAI:
    about = {"adapter": "ckptsidecar.openai_agents", "agent": "openai-agents-python", "shared": True, "remove": True}

    def __init__(self, session: str) -> None:
        self.session = SidecarSession(session, sidecar=sidecar)

    def append(self, value: str) -> None:
        asyncio.run(self.session.add_items([{"role": "user", "content": value}]))

    def read(self) -> list[str]:
        return [item["content"] for item in asyncio.run(self.session.get_items())]

    def remove(self) -> None:
        asyncio.run(self.session.clear_session())


class Claude:
    about = {"adapter": "ckptsidecar.claude_agent", "agent": "claude-agent", "shared": True, "remove": True}
    store = SidecarSessionStore(sidecar=sidecar)

    def __init__(self, session: str) -> None:
        self.key = {"project_key": "p", "session_id": session}

    def append(self, value: str) -> None:
        asyncio.run(self.store.append(self.key, [{"type": "user", "value": value}]))

    def read(self) -> list[str]:
        return [entry["value"] for entry in asyncio.run(self.store.load(self.key)) or []]

    def remove(self) -> None:
        asyncio.run(self.store.delete(self.key))


class Plain:
    """Stands in for Pydantic AI's ModelMessagesTypeAdapter."""

    validate_json = staticmethod(json.loads)

    def dump_json(self, messages: list[Any]) -> bytes:
        return json.dumps(messages).encode()


class Pydantic:
    about = {"adapter": "ckptsidecar.pydantic_ai", "agent": "pydantic-ai", "shared": True, "remove": True}

    def __init__(self, session: str) -> None:
        self.history = SidecarHistory(session, sidecar=sidecar, adapter=Plain())

    def append(self, value: str) -> None:
        self.history.add([value])

    def read(self) -> list[str]:
        return self.history.messages()

    def remove(self) -> None:
        self.history.clear()


class Store:
    about = {"adapter": "ckptsidecar.langgraph_store", "agent": "langgraph-store", "shared": True, "remove": False}
    store = SidecarStore(sidecar)

    def __init__(self, session: str) -> None:
        self.namespace = ("count", session)

    def append(self, value: str) -> None:
        self.store.put(self.namespace, f"{value:>9}", {"value": value})

    def read(self) -> list[str]:
        return [i.value["value"] for i in sorted(self.store.search(self.namespace, limit=1000), key=lambda i: i.key)]


class Saver:
    about = {"adapter": "ckptsidecar.langgraph", "agent": "langgraph", "shared": False, "remove": True}

    def __init__(self, session: str) -> None:
        langgraph_shim.install()
        from ckptsidecar.langgraph import SidecarSaver

        self.saver = SidecarSaver(sidecar)
        self.config = {"configurable": {"thread_id": session, "checkpoint_ns": ""}}

    def append(self, value: str) -> None:
        found = self.saver.get_tuple(self.config)
        values = [*(found.checkpoint["channel_values"]["values"] if found else []), value]
        versions = {"values": len(values)}
        checkpoint = {"v": 4, "id": f"1f000000-{len(values):04x}-6000-8000-000000000000", "channel_values": {"values": values}, "channel_versions": versions}
        self.saver.put(found.config if found else self.config, checkpoint, {"step": len(values)}, versions)

    def read(self) -> list[str]:
        found = self.saver.get_tuple(self.config)
        return found.checkpoint["channel_values"]["values"] if found else []

    def remove(self) -> None:
        self.saver.delete_thread(self.config["configurable"]["thread_id"])


ADAPTERS: dict[str, Any] = {"openai_agents": OpenAI, "claude_agent": Claude, "pydantic_ai": Pydantic, "langgraph_store": Store, "langgraph": Saver}


def main() -> None:
    adapter = ADAPTERS[sys.argv[1]]
    sessions: dict[str, Any] = {}
    for line in sys.stdin:
        command = json.loads(line)
        answer: dict[str, Any] = {}
        if command["do"] == "hello":
            answer = adapter.about
        else:
            session = sessions.setdefault(command["session"], None) or adapter(command["session"])
            sessions[command["session"]] = session
            if command["do"] == "append":
                session.append(command["value"])
            elif command["do"] == "read":
                answer = {"values": session.read()}
            else:
                session.remove()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
