"""Whoever sits at a terminal and uses the command line there."""
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time


class Terminal:
    """A person at a terminal of 30 by 100."""

    def __init__(self, argv, cwd, env):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen(argv, cwd=cwd, env=env, stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.seen = b""

    def expect(self, text, seconds=20):
        end = time.monotonic() + seconds
        while text not in self.seen:
            left = end - time.monotonic()
            assert left > 0, f"no {text!r} in {self.seen!r}"
            if select.select([self.master], [], [], left)[0]:
                self.seen += os.read(self.master, 65536)
        before, self.seen = self.seen.split(text, 1)
        return before

    def type(self, data):
        os.write(self.master, data)

    def end(self, seconds=20):
        """The exit status; the terminal must be as it was."""
        status = self.process.wait(seconds)
        assert termios.tcgetattr(self.slave) == self.before, "the terminal is not as it was"
        return status

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)
