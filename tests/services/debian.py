# SPDX-License-Identifier: Apache-2.0
"""A package of another Debian release, run on this machine: a folder with that release, and commands that see its /usr and /etc.

    root = Root("trixie", "rabbitmq-server").ready()        # under a minute, once per machine
    subprocess.run([*root.inside, "rabbitmqctl", "version"])

The folder is ${SUTRA_TEST_CACHE:-${XDG_CACHE_HOME:-~/.cache}/sutra-tests}/debian/<suite>-<key>:

    tree/       what debootstrap makes of the suite and the package; used, never written to
    complete    the moment of the last use

It is built beside its place and moved there when it is whole, so a half-built one is never used; a lock keeps several runs
apart. The packages come from where the machine's own apt gets them, by its proxies, or from debootstrap's default mirror.

`inside` is a command in front of a command. It makes a mount namespace in which the folder's usr and etc lie over the machine's,
and nothing else changes: /tmp, /dev, /proc and the network are the machine's, paths mean the same on both sides, the process
keeps its id and its parent. The mounts end with the last process that sees them, however it ends.
"""

import fcntl
import glob
import hashlib
import os
import re
import shutil
import sys
import tempfile
import time

from process import ServiceError, Unavailable, cache_folder, run

# Mounts and processes of its own, all of which end with it, and it with us: killed, debootstrap leaves nothing running.
APART = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
         "--mount-proc"]
INSIDE = 'mount --bind "$0/etc" /etc && mount --bind "$0/usr" /usr && exec "$@"'
# Packages do not start their services while they are installed.
POLICY = "#!/bin/sh\nexit 101\n"
HOSTS = "127.0.0.1\tlocalhost\n::1\tlocalhost\n"


class Root:
    """`suite` with `package` and what that depends on. Constructing it touches nothing."""

    def __init__(self, suite, package):
        self.suite = suite
        self.package = package
        self.place = cache_folder("debian")
        recipe = "\n".join([suite, package, os.uname().machine, POLICY, HOSTS])
        self.folder = os.path.join(self.place, f"{suite}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}")
        self.root = self.folder + "/tree"
        self.why = self.folder + ".failed"
        self.inside = ["unshare", "--mount", "--propagation", "private", "sh", "-c", INSIDE, self.root]

    def find(self):
        """self, if it is there and can be used; raises Unavailable with what is in the way. Builds nothing."""
        self._check_machine()
        if not os.path.exists(self.folder + "/complete"):
            raise Unavailable(self._reason() or f"no Debian {self.suite} here: `tests/services/rabbitmq.py setup` makes it")
        os.utime(self.folder + "/complete")
        return self

    def ready(self):
        """self, built first when it is not there."""
        self._check_machine()
        os.makedirs(self.place, exist_ok=True)
        with open(os.path.join(self.place, "lock"), "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(self.folder + "/complete"):
                self._forget_old()
                self._set_up()
        return self.find()

    def _check_machine(self):
        if os.geteuid() != 0:
            raise Unavailable(f"Debian {self.suite} beside this system needs root")
        if not os.path.islink("/bin"):
            raise Unavailable(f"Debian {self.suite} beside this system needs one whose /bin is a link to /usr/bin")
        tried = run([*APART, "true"], check=False)
        if tried.returncode != 0:
            raise Unavailable("no namespaces of processes and mounts: " + tried.stderr.strip())

    def _reason(self):
        try:
            with open(self.why, encoding="utf-8") as source:
                return source.read()
        except OSError:
            return ""

    def _forget_old(self):
        """Removes what a killed run left, and roots that nobody used for a month."""
        for folder in glob.glob(self.place + "/new-*"):
            shutil.rmtree(folder, ignore_errors=True)
        for stamp in glob.glob(self.place + "/*/complete"):
            if time.time() - os.stat(stamp).st_mtime > 30 * 86400:
                shutil.rmtree(os.path.dirname(stamp), ignore_errors=True)

    def _set_up(self):
        print(f"debian: setting up {self.folder}", file=sys.stderr, flush=True)
        new = tempfile.mkdtemp(prefix="new-", dir=self.place)
        os.chmod(new, 0o755)
        try:
            self._build(new + "/tree")
            with open(new + "/complete", "w", encoding="ascii"):
                pass
            shutil.rmtree(self.folder, ignore_errors=True)
            os.rename(new, self.folder)
        except (ServiceError, Unavailable) as reason:
            with open(self.why, "w", encoding="utf-8") as out:
                out.write(str(reason))
            raise Unavailable(str(reason)) from None
        finally:
            shutil.rmtree(new, ignore_errors=True)
        if os.path.exists(self.why):
            os.remove(self.why)

    def _build(self, root):
        """Two stages: between them the folder is told not to start services, and the name of this machine.

        Everything is fetched in the first, by the machine's own programs, so that the folder needs no apt settings.
        """
        if not shutil.which("debootstrap"):
            raise Unavailable("no debootstrap (package debootstrap)")
        environment = {**os.environ, **apt_proxies(), "LC_ALL": "C"}
        command = [*APART, "debootstrap", "--foreign", "--force-check-gpg", "--variant=minbase",
                   "--include=" + self.package, self.suite, root]
        for mirror in [*apt_mirrors(), None]:
            shutil.rmtree(root, ignore_errors=True)
            fetched = run(command + ([mirror] if mirror else []), timeout=600, check=False, env=environment)
            if fetched.returncode == 0:
                break
        else:
            raise Unavailable(f"debootstrap could not fetch Debian {self.suite}: {last_lines(fetched)}")
        for name, text, mode in (("usr/sbin/policy-rc.d", POLICY, 0o755), ("etc/hosts", HOSTS, 0o644)):
            with open(os.path.join(root, name), "w", encoding="ascii") as out:
                out.write(text)
            os.chmod(os.path.join(root, name), mode)
        installed = run([*APART, "chroot", root, "/debootstrap/debootstrap", "--second-stage"], timeout=600, check=False,
                        env=environment)
        if installed.returncode != 0:
            raise Unavailable(f"debootstrap could not install Debian {self.suite}: {last_lines(installed)}")
        for package in glob.glob(root + "/var/cache/apt/archives/*.deb"):
            os.remove(package)


def apt_mirrors():
    """The http and https addresses that this machine's apt uses for its own release, each once.

    Some may belong to other archives; debootstrap finds no signed release there and goes on to the next.
    """
    with open("/etc/os-release", encoding="utf-8") as source:
        release = re.search(r'^VERSION_CODENAME="?([\w-]+)', source.read(), re.MULTILINE)
    said = run(["apt-get", "update", "--print-uris"], check=False).stdout if shutil.which("apt-get") else ""
    if not release:
        return []
    return list(dict.fromkeys(re.findall(rf"^'(https?://[^']+?)/+dists/{release.group(1)}/InRelease'", said, re.MULTILINE)))


def apt_proxies():
    """The proxies that apt is configured to use, as environment variables."""
    found = {}
    for scheme in ("http", "https") if shutil.which("apt-config") else ():
        said = run(["apt-config", "dump", "--format", "%v%n", f"Acquire::{scheme}::Proxy"], check=False).stdout.strip()
        if said:
            found[scheme + "_proxy"] = "" if said == "DIRECT" else said
    return found


def last_lines(done):
    """What a command ended with, without debootstrap's lines of progress."""
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip() and not line.startswith("I: ")]
    return "; ".join(lines[-3:]) or f"exit code {done.returncode}"
