"""Whom the client speaks to. The other users are real ones, so these tests need root."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import tempfile
import unittest

from ckptsidecar import _endpoint as endpoint, _trust as trust

from .harness import World, ckptsidecar

SQUATTER, SERVICE, PERSON, OTHER, NOBODY = 1001, 977, 1003, 1004, 65534


@unittest.skipUnless(hasattr(os, "geteuid") and os.geteuid() == 0, "needs root, to act as several users")
class Trust(World):
    def squat(self, path: str, uid: int) -> "tuple[int, int]":
        """A process of another user that listens; what it is sent comes out of the pipe that is answered."""
        out, into = os.pipe()
        ready, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.setgid(uid)
                os.setuid(uid)
                os.umask(0)
                listener = socket.socket(socket.AF_UNIX)
                listener.bind(path)
                listener.listen(8)
                os.write(tell, b"x")
                while True:
                    connection = listener.accept()[0]
                    while data := connection.recv(1 << 16):
                        os.write(into, data)
                    connection.close()
            finally:
                os._exit(0)
        os.close(into)
        os.close(tell)
        self.assertEqual(os.read(ready, 1), b"x")
        os.close(ready)
        return out, pid

    def test_a_stranger_gets_nothing(self) -> None:
        os.chmod(self.folder, 0o755)
        place = os.path.join(self.folder, "theirs")
        os.mkdir(place)
        os.chown(place, SQUATTER, SQUATTER)
        path = os.path.join(place, "s")
        out, pid = self.squat(path, SQUATTER)
        with self.assertRaises(ckptsidecar.NoDaemon) as told:
            ckptsidecar.Sidecar(path, deadline=0.1, fail_open=False).agent("a").save({"secret": "canary"})
        message = str(told.exception)
        for part in (path, "uid 1001", "this process is uid 0", endpoint.SOCKET):
            self.assertIn(part, message)
        os.environ["CKPTSIDECAR_SOCKET"] = path  # a stranger ends the search
        with self.assertRaises(ckptsidecar.NoDaemon) as told:
            ckptsidecar.Sidecar(deadline=0.1, fail_open=False, autostart=True).agent("a").save({"secret": "canary"})
        self.assertIn("uid 1001", str(told.exception))
        os.kill(pid, signal.SIGKILL)  # all that was sent to it is in the pipe or in its socket
        os.waitpid(pid, 0)
        self.assertEqual(os.read(out, 1 << 16), b"")
        os.close(out)

    def test_the_service_has_the_place_that_root_gave_it(self) -> None:
        try:
            top = tempfile.mkdtemp(prefix="ckptpy-", dir="/run")
        except OSError as error:
            self.skipTest(f"needs a folder below which only root writes: {error}")
        self.addCleanup(shutil.rmtree, top, ignore_errors=True)
        os.chmod(top, 0o755)
        cases = (  # above, its owner, the folder's owner and mode, the socket's owner, who listens, whether trusted
            ("a folder of the service's account", 0o755, 0, SERVICE, 0o755, SERVICE, SERVICE, True),
            ("a person's folder", 0o755, 0, PERSON, 0o755, PERSON, PERSON, False),
            ("root's folder, and a socket that root gave away", 0o755, 0, 0, 0o755, PERSON, PERSON, True),
            ("root's folder, and another user's socket", 0o755, 0, 0, 0o755, OTHER, PERSON, False),
            ("root's folder, in which others write", 0o755, 0, 0, 0o777, SERVICE, SERVICE, False),
            ("a folder in which a group writes", 0o755, 0, SERVICE, 0o775, SERVICE, SERVICE, False),
            ("a folder that others could replace", 0o777, 0, SERVICE, 0o755, SERVICE, SERVICE, False),
            ("a folder in a sticky one", 0o1777, 0, SERVICE, 0o755, SERVICE, SERVICE, False),
            ("root's folder in a sticky one", 0o1777, 0, 0, 0o755, SERVICE, SERVICE, True),
            ("a folder below a person's", 0o755, PERSON, SERVICE, 0o755, SERVICE, SERVICE, False),
            ("nobody", 0o755, 0, NOBODY, 0o755, NOBODY, NOBODY, False),
        )
        for name, above_mode, above_owner, folder, mode, owner, peer, trusted in cases:
            with self.subTest(name):
                above = tempfile.mkdtemp(dir=top)
                place = os.path.join(above, "d")
                os.mkdir(place)
                path = os.path.join(place, "s")
                with socket.socket(socket.AF_UNIX) as listener:
                    listener.bind(path)
                self.assertTrue(stat.S_ISSOCK(os.lstat(path).st_mode))
                os.chown(path, owner, owner)
                os.chown(place, folder, folder)
                os.chmod(place, mode)
                os.chown(above, above_owner, above_owner)
                os.chmod(above, above_mode)
                self.assertEqual(trust.is_service_user(peer, path), trusted)

    def test_its_own_daemon_and_roots(self) -> None:
        self.start()
        self.assertEqual(self.sidecar().version()["name"], "ckptsidecar")


if __name__ == "__main__":
    unittest.main()
