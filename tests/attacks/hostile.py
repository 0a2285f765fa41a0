"""Hostile programs for a sandbox, in families. Each prints BREACH if it got through; names are unique.

`SECRET`, `FOLDER`, `PORT`, `HOST` and `ABSTRACT` are replaced by a readable file, its folder, a TCP port on which
something listens, the process id of the host, and the name of an abstract Unix socket.
"""

# ruff: noqa: E501  programs are one line each
__all__ = ["ENDS", "programs"]

_READS = {
    "open": "print('BREACH', open({p}).read(50))",
    "open bytes": "print('BREACH', open({p}, 'rb').read(50))",
    "io.open": "import io; print('BREACH', io.open({p}).read(50))",
    "os.open": "import os; print('BREACH', os.read(os.open({p}, os.O_RDONLY), 50))",
    "io.FileIO": "import io; print('BREACH', io.FileIO({p}).read(50))",
    "_io.open": "import _io; print('BREACH', _io.open({p}).read(50))",
    "pathlib": "import pathlib; print('BREACH', pathlib.Path({p}).read_text()[:50])",
    "linecache": "import linecache; x = linecache.getlines({p}); print('BREACH' if x else '', x[:1])",
    "codecs": "import codecs; print('BREACH', codecs.open({p}).read(50))",
    "mmap": "import mmap, os; print('BREACH', mmap.mmap(os.open({p}, 0), 4, prot=1)[:])",
    "urllib": "import urllib.request; print('BREACH', urllib.request.urlopen('file://' + {p}).read(50))",
    "runpy": "import importlib.util as u; s = u.spec_from_file_location('x', {p}); print('BREACH', s.loader.get_data({p}))",
    "sqlite": "import sqlite3; c = sqlite3.connect({p}); c.execute('select 1 from sqlite_master').fetchall(); print('BREACH')",
    "ctypes fopen": "import ctypes; L = ctypes.CDLL(None); L.fopen.restype = ctypes.c_void_p\n"
    "if L.fopen({p}.encode(), b'r'): print('BREACH')",
    "tokenize": "import tokenize; print('BREACH', tokenize.open({p}).read(50))",
}
_PATHS = {
    "secret": "'SECRET'", "passwd": "'/etc/passwd'", "environ": "'/proc/self/environ'", "host": "'/proc/HOST/environ'",
    "mem": "'/proc/self/mem'", "init": "'/proc/1/cmdline'",
}  # fmt: skip

_FILES = {
    "list": "import os; print('BREACH', os.listdir('FOLDER'))",
    "scandir": "import os; print('BREACH', list(os.scandir('FOLDER')))",
    "glob": "import glob; x = glob.glob('/etc/*'); print('BREACH' if x else '')",
    "walk": "import os; x = list(os.walk('/etc')); print('BREACH' if x else '')",
    "stat": "import posix; print('BREACH', posix.stat('SECRET').st_size)",
    "exists": "import posix\ntry: posix.stat('SECRET')\nexcept FileNotFoundError: print('BREACH it is told apart')",
    "access": "import os; print('BREACH' if os.access('SECRET', os.R_OK) else '')",
    "readlink": "import os; print('BREACH', os.readlink('/proc/self/exe'))",
    "write": "open('FOLDER/hacked', 'w').write('x'); print('BREACH')",
    "append": "open('SECRET', 'a').write('x'); print('BREACH')",
    "os write": "import os; os.open('FOLDER/hacked', os.O_CREAT | os.O_WRONLY); print('BREACH')",
    "truncate": "import os; os.truncate('SECRET', 0); print('BREACH')",
    "unlink": "import os; os.unlink('SECRET'); print('BREACH')",
    "rename": "import os; os.rename('SECRET', 'FOLDER/x'); print('BREACH')",
    "chmod": "import os; os.chmod('SECRET', 0o777); print('BREACH')",
    "chown": "import os; os.chown('SECRET', 1, 1); print('BREACH')",
    "utime": "import os; os.utime('SECRET', (1, 1)); print('BREACH')",
    "mkdir": "import os; os.mkdir('FOLDER/new'); print('BREACH')",
    "rmdir": "import os; os.rmdir('FOLDER'); print('BREACH')",
    "symlink": "import os; os.symlink('/', 'FOLDER/link'); print('BREACH')",
    "hard link": "import os; os.link('SECRET', 'FOLDER/link'); print('BREACH')",
    "mkfifo": "import os; os.mkfifo('FOLDER/pipe'); print('BREACH')",
    "mknod": "import os; os.mknod('FOLDER/node'); print('BREACH')",
    "chdir": "import os; os.chdir('/etc'); print('BREACH')",
    "chroot": "import os; os.chroot('/'); print('BREACH')",
    "statvfs": "import os; print('BREACH', os.statvfs('/'))",
    "tempfile": "import tempfile; print('BREACH', tempfile.NamedTemporaryFile().name)",
    "shelve": "import shelve; shelve.open('FOLDER/shelf')['a'] = 1; print('BREACH')",
    "rmtree": "import shutil; shutil.rmtree('FOLDER', ignore_errors=False); print('BREACH')",
    "copy": "import shutil; shutil.copy('SECRET', 'FOLDER/copy'); print('BREACH')",
    "zip": "import zipfile; zipfile.ZipFile('FOLDER/z.zip', 'w').writestr('a', 'b'); print('BREACH')",
    "log": "import logging; logging.FileHandler('FOLDER/log'); print('BREACH')",
    "memfd": "import os; os.memfd_create('x'); print('BREACH')",
    "xattr": "import os; os.setxattr('SECRET', 'user.a', b'b'); print('BREACH')",
    "bytecode": "import py_compile; py_compile.compile('SECRET', 'FOLDER/c.pyc', doraise=True); print('BREACH')",
    "in-memory traversal": "print('BREACH', open('given.txt/../../../../etc/passwd').read(9))",
    "in-memory absolute": "print('BREACH', open('//etc/passwd').read(9))",
}

_NETWORK = {
    "tcp": "import socket; s = socket.create_connection(('127.0.0.1', PORT), 1); print('BREACH', s.recv(9))",
    "tcp 6": "import socket; socket.socket(socket.AF_INET6).connect(('::1', PORT)); print('BREACH')",
    "listen": "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); print('BREACH')",
    "udp": "import socket; socket.socket(2, 2).sendto(b'x', ('127.0.0.1', PORT)); print('BREACH')",
    "raw": "import socket; socket.socket(2, 3, 1); print('BREACH')",
    "netlink": "import socket; socket.socket(16, 3, 0); print('BREACH')",
    "packet": "import socket; socket.socket(17, 3, 0); print('BREACH')",
    "vsock": "import socket; socket.socket(40, 1, 0); print('BREACH')",
    "unix": "import socket; socket.socket(1).connect('FOLDER/unix'); print('BREACH')",
    "unix datagram": "import socket; a, b = socket.socketpair(1, 2); a.sendto(b'x', 'FOLDER/unix'); print('BREACH')",
    "abstract": "import socket; socket.socket(1).connect('\\0ABSTRACT'); print('BREACH')",
    "pair": "import socket; socket.socketpair(); print('BREACH')",
    "dns": "import socket; print('BREACH', socket.getaddrinfo('localhost', 80))",
    "http": "import urllib.request; print('BREACH', urllib.request.urlopen('http://127.0.0.1:PORT').read())",
    "asyncio": "import asyncio; asyncio.run(asyncio.open_connection('127.0.0.1', PORT)); print('BREACH')",
    "smtp": "import smtplib; smtplib.SMTP('127.0.0.1', PORT); print('BREACH')",
    "from a descriptor": "import socket\nfor n in range(64):\n    try: socket.socket(fileno=n).connect(('127.0.0.1', PORT)); "
    "print('BREACH')\n    except OSError: pass",
}

_PROCESSES = {
    "fork": "import os; os.fork(); print('BREACH')",
    "forkpty": "import os; os.forkpty(); print('BREACH')",
    "vfork": "import ctypes; r = ctypes.CDLL(None).vfork(); print('BREACH' if r >= 0 else '')",
    "fork bomb": "import os\nn = 0\nwhile n < 300:\n    os.fork(); n += 1\nprint('BREACH')",
    "caught fork bomb": "import os\nfor _ in range(5000):\n    try: os.fork(); print('BREACH')\n    except OSError: pass",
    "system": "import os; r = os.system('echo BREACH'); print('BREACH' if r == 0 else '')",
    "popen": "import os; print(os.popen('echo BREACH').read())",
    "subprocess": "import subprocess; print(subprocess.check_output(['/bin/echo', 'BREACH']))",
    "shell": "import subprocess; subprocess.run('echo BREACH', shell=True)",
    "exec": "import os; os.execv('/bin/sh', ['sh', '-c', 'echo BREACH'])",
    "spawn": "import os; r = os.posix_spawn('/bin/echo', ['echo', 'BREACH'], {}); print('BREACH')",
    "execveat": "import ctypes; L = ctypes.CDLL(None); r = L.syscall(322, -100, b'/bin/echo', 0, 0, 0); print('BREACH' if r >= 0 else '')",
    "thread": "import threading; threading.Thread(target=print, args=('BREACH',)).start()",
    "thread bomb": "import threading\nfor _ in range(3000):\n    try: threading.Thread(target=print, args=('BREACH',)).start()\n    except RuntimeError: pass",
    "low thread": "import _thread, time; _thread.start_new_thread(print, ('BREACH',)); time.sleep(.1)",
    "executor": "from concurrent.futures import ThreadPoolExecutor as T; print('BREACH', T(1).submit(int).result())",
    "process pool": "from concurrent.futures import ProcessPoolExecutor as T; print('BREACH', T(1).submit(int).result())",
    "multiprocessing": "import multiprocessing as m; p = m.Process(target=print, args=('BREACH',)); p.start(); p.join()",
    "pool": "import multiprocessing as m; print('BREACH', m.Pool(1).map(int, [1]))",
    "pty": "import pty; pty.spawn(['/bin/echo', 'BREACH'])",
    "session": "import os; os.setsid(); print('BREACH')",
    "group": "import os; os.setpgid(0, 0); print('BREACH')",
    "nice": "import os; os.nice(-5); print('BREACH')",
    "scheduler": "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)); print('BREACH')",
    "affinity": "import os; os.sched_setaffinity(0, {0}); print('BREACH')",
    "limits": "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1)); print('BREACH')",
    "limits of the host": "import resource; resource.prlimit(HOST, resource.RLIMIT_NOFILE, (3, 3)); print('BREACH')",
    "user": "import os; os.setuid(0); print('BREACH')",
    "wait": "import os; os.waitpid(-1, os.WNOHANG); print('BREACH')",
}

_SIGNALS = {
    "parent": "import os; os.kill(os.getppid(), 9); print('BREACH')",
    "host": "import os; os.kill(HOST, 0); print('BREACH')",
    "host 9": "import os; os.kill(HOST, 9); print('BREACH')",
    "all": "import os; os.kill(-1, 9); print('BREACH')",
    "group": "import os; os.kill(0, 9); print('BREACH')",
    "killpg": "import os; os.killpg(os.getpgid(0), 9); print('BREACH')",
    "own group of the host": "import os; os.killpg(HOST, 9); print('BREACH')",
    "siblings": "import os\nme = os.getpid()\nfor p in range(1, 40000):\n    if p != me:\n        try: os.kill(p, 9)\n"
    "        except OSError: continue\n        print('BREACH')",
    "itself": "import os; os.kill(os.getpid(), 9); print('BREACH')",
    "raise": "import signal; signal.raise_signal(9); print('BREACH')",
    "pidfd": "import signal, os; signal.pidfd_send_signal(os.pidfd_open(HOST), 9); print('BREACH')",
    "pthread": "import signal, threading; signal.pthread_kill(threading.get_ident(), 9); print('BREACH')",
    "set owner": "import fcntl; fcntl.fcntl(1, fcntl.F_SETOWN, HOST); print('BREACH')",
    "set signal": "import fcntl; fcntl.fcntl(1, 10, 9); print('BREACH')",
    "lease": "import fcntl; fcntl.fcntl(1, fcntl.F_SETLEASE, fcntl.F_WRLCK); print('BREACH')",
    "notify": "import fcntl; fcntl.fcntl(0, fcntl.F_NOTIFY, 1); print('BREACH')",
    "block": "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass",
    "ignore": "import signal\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True: pass",
    "terminal input": "import fcntl; fcntl.ioctl(0, 0x5412, b'x'); print('BREACH')",
    "alarm": "import signal, time; signal.alarm(1); time.sleep(60); print('BREACH')",
}

# x86-64 numbers of calls that must fail: name -> number and arguments ("P" the host, "B" a buffer, "F" a path).
_CALLS = {
    "ptrace": (101, 16, "P", 0, 0), "ptrace seize": (101, 0x4206, "P", 0, 0), "process_vm_readv": (310, "P", "B", 1, "B", 1, 0),
    "process_vm_writev": (311, "P", "B", 1, "B", 1, 0), "pidfd_open": (434, "P", 0), "pidfd_getfd": (438, 3, 0, 0),
    "kcmp": (312, "P", "P", 0, 0, 0), "io_uring_setup": (425, 8, "B"), "io_setup": (206, 8, "B"),
    "mount": (165, "F", "F", "F", 0, 0), "umount": (166, "F", 0), "open_tree": (428, -100, "F", 1),
    "fsopen": (430, "F", 0), "move_mount": (429, -100, "F", -100, "F", 0), "pivot_root": (155, "F", "F"),
    "unshare user": (272, 0x10000000), "unshare mount": (272, 0x20000), "clone": (56, 17, 0, 0, 0, 0),
    "clone namespaces": (56, 0x10000011, 0, 0, 0, 0), "clone3": (435, "B", 88), "fork": (57,), "vfork": (58,),
    "execve": (59, "F", 0, 0), "execveat": (322, -100, "F", 0, 0, 0), "memfd_create": (319, "F", 0),
    "memfd_secret": (447, 0), "prctl dumpable": (157, 4, 1, 0, 0, 0), "prctl death signal": (157, 1, 0, 0, 0, 0),
    "prctl name": (157, 15, "B", 0, 0, 0), "seccomp": (317, 1, 0, "B"), "bpf": (321, 0, "B", 64),
    "perf_event_open": (298, "B", 0, -1, -1, 0), "userfaultfd": (323, 0), "keyctl": (250, 0, -3, 1),
    "add_key": (248, "F", "F", "F", 1, -3), "request_key": (249, "F", "F", "F", -3), "setns": (308, 0, 0),
    "chroot": (161, "F"), "reboot": (169, 0, 0, 0, 0), "init_module": (175, 0, 0, "F"), "kexec_load": (246, 0, 0, 0, 0),
    "quotactl": (179, 0, "F", 0, "B"), "prlimit of the host": (302, "P", 7, "B", 0), "affinity of the host": (203, "P", 8, "B"),
    "priority of the host": (141, 0, "P", 19), "open": (2, "F", 0, 0), "openat": (257, -100, "F", 0, 0),
    "openat2": (437, -100, "F", "B", 24), "creat": (85, "F", 0o666), "handle": (303, -100, "F", "B", "B", 0),
    "open by handle": (304, -100, "B", 0), "stat": (4, "F", "B"), "lstat": (6, "F", "B"), "statx": (332, -100, "F", 0, 0, "B"),
    "newfstatat": (262, -100, "F", "B", 0), "access": (21, "F", 0), "faccessat2": (439, -100, "F", 0, 0),
    "readlink": (89, "F", "B", 8), "getdents": (217, 0, "B", 32), "shmget": (29, 0, 4096, 0o1666),
    "semget": (64, 0, 1, 0o1666), "msgget": (68, 0, 0o1666), "mq_open": (240, "F", 0o102, 0o600, 0),
    "inotify": (294, 0), "fanotify": (300, 0, 0), "signalfd": (289, -1, "B", 8, 0), "timerfd": (283, 0, 0),
    "eventfd": (290, 0, 0), "epoll": (291, 0), "setuid": (105, 0), "setgid": (106, 0), "setgroups": (116, 0, "B"),
    "setresuid": (117, 0, 0, 0), "capset": (126, "B", "B"), "personality": (135, 0x0040000), "arch_prctl": (158, 0x1012, 1),
    "modify_ldt": (154, 1, "B", 16), "iopl": (172, 3), "ioperm": (173, 0, 1, 1), "swapon": (167, "F", 0),
    "sethostname": (170, "F", 1), "settimeofday": (164, "B", 0), "clock_settime": (227, 0, "B"), "adjtimex": (159, "B"),
    "syslog": (103, 3, "B", 32), "acct": (163, "F"), "ustat": (136, 0, "B"), "sysfs": (139, 3), "lookup_dcookie": (212, 0, "B", 8),
    "process_madvise": (440, 3, "B", 1, 4, 0), "process_mrelease": (448, 3, 0), "landlock_create": (444, "B", 8, 0),
    "tgkill": (234, "P", "P", 9), "tkill": (200, "P", 9), "rt_sigqueueinfo": (129, "P", 9, "B"), "kill": (62, "P", 9),
    "setpgid": (109, 0, 0), "setsid": (112,), "ioprio_set": (251, 1, "P", 0), "move_pages": (279, "P", 0, 0, 0, 0, 0),
    "migrate_pages": (256, "P", 8, "B", "B"), "mbind": (237, "B", 4096, 0, 0, 0, 0), "get_robust_list": (274, "P", "B", "B"),
    "socket": (41, 2, 1, 0), "socketpair": (53, 1, 1, 0, "B"), "connect": (42, 0, "B", 16), "sendto": (44, 0, "B", 1, 0, 0, 0),
    "sendmsg": (46, 1, "B", 0), "splice": (275, 0, 0, 1, 0, 1, 0), "tee": (276, 0, 1, 1, 0), "vmsplice": (278, 1, "B", 1, 0),
    "sendfile": (40, 1, 0, 0, 1), "copy_file_range": (326, 0, 0, 1, 0, 1, 0), "truncate": (76, "F", 0), "ftruncate": (77, 1, 0),
    "fchmod": (91, 1, 0o777), "fchown": (93, 1, 1, 1), "flock": (73, 1, 2), "chdir": (80, "F"), "fchdir": (81, 0),
    "utimensat": (280, -100, "F", 0, 0), "linkat": (265, -100, "F", -100, "F", 0), "symlinkat": (266, "F", -100, "F"),
    "wait4": (61, -1, 0, 1, 0), "waitid": (247, 0, 0, "B", 1, 0), "x32 open": (0x40000002, "F", 0, 0),
    "x32 getpid": (0x40000027,), "set_tid_address": (218, "B"), "mlock": (149, "B", 8), "name_to_handle": (303, -100, "F", "B", "B", 0),
}  # fmt: skip
_CALL = """
import ctypes
library = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(4096)
arguments = [ctypes.c_long(a) if isinstance(a, int) else a for a in ({arguments},)]
result = library.syscall(*arguments)
if result >= 0: print("BREACH", result)
"""

_RESOURCES = {
    "memory at once": "x = bytearray(3 * 10**9); print('BREACH')",
    "memory in pieces": "x = []\nwhile True: x.append(bytearray(10**6))",
    "memory of small objects": "x = []\nwhile True: x.append([x])",
    "memory of a string": "x = 'a'\nwhile True: x += x",
    "memory by mmap": "import mmap\nx = [mmap.mmap(-1, 10**8) for _ in range(40)]\nprint('BREACH')",
    "memory by malloc": "import ctypes\nL = ctypes.CDLL(None); L.malloc.restype = ctypes.c_void_p\n"
    "n = sum(bool(L.malloc(10**8)) for _ in range(60))\nprint('BREACH' if n > 20 else n)",
    "memory of an integer": "x = 1 << 10**11; print('BREACH')",
    "memory of a range": "x = list(range(10**10)); print('BREACH')",
    "memory of a regex": "import re; re.compile('(a{1,5000}){1,5000}').match('a' * 10**6); print('done')",
    "deep nesting": "x = []\nfor _ in range(10**6): x = [x]\nprint(repr(x)[:5])",
    "deep recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(n): return f(n + 1)\nf(0)",
    "recursion in C": "import sys\nsys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**6): x = [x]\nx == x",
    "deep destructor": "x = None\nfor _ in range(3 * 10**6): x = (x,)\ndel x",
    "loop": "while True: pass",
    "loop that catches": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "loop in a destructor": "class A:\n    def __del__(self):\n        while True: pass\na = A()\ndel a",
    "loop at exit": "import atexit\ndef f():\n    while True: pass\natexit.register(f)",
    "one long call": "10 ** 10**8; print('BREACH')",
    "one long sum": "sum(range(10**12)); print('BREACH')",
    "regex": "import re; re.match('(a+)+$', 'a' * 40 + 'b'); print('BREACH')",
    "sort": "sorted(range(10**7), key=lambda x: -x) and [sorted(range(10**6)) for _ in range(10**4)]; print('BREACH')",
    "sleep": "import time; time.sleep(100); print('BREACH')",
    "sleep in C": "import ctypes; ctypes.CDLL(None).sleep(100); print('BREACH')",
    "pause": "import signal; signal.pause(); print('BREACH')",
    "wait for input": "import os; os.read(3, 1); print('BREACH')",
    "lock": "import threading; l = threading.Lock(); l.acquire(); l.acquire(); print('BREACH')",
    "output": "while True: print('a' * 10000)",
    "output of lines": "while True: print()",
    "raw output": "import os\nwhile True: os.write(1, b'a' * 65536)",
    "error output": "import os\nwhile True: os.write(2, b'a' * 65536)",
    "both outputs": "import os\nwhile True: os.write(1, b'a' * 999); os.write(2, b'a' * 999)",
    "output of the value": "'a' * 10**8",
    "descriptors": "import os\nn = 0\ntry:\n    while n < 10000: os.dup(0); n += 1\nexcept OSError: pass\nprint('BREACH' if n > 1000 else n)",
    "pipes": "import os; os.pipe(); print('BREACH')",
    "zip bomb": "import zlib; d = zlib.decompress(zlib.compress(b'0' * 10**8)) * 20; print('BREACH')",
    "long literal": "int('9' * 10**6)",
    "hash flood": "d = {k: 1 for k in ((1 << 61) * i for i in range(20000))}; print(len(d))",
}

_INSIDE = {
    "environment": "import os\nif 'SECRET_TOKEN' in os.environ or b'SECRET_TOKEN' in os.environb: print('BREACH')",
    "environment of libc": "import ctypes\nL = ctypes.CDLL(None); L.getenv.restype = ctypes.c_char_p\nif L.getenv(b'SECRET_TOKEN'): print('BREACH')",
    "environment in memory": "import ctypes\np = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), 'environ')\n"
    "i = 0\nwhile p[i]:\n    if b'SECRET' in p[i]: print('BREACH')\n    i += 1",
    "arguments": "import sys\nif any('agent' in a for a in sys.argv + getattr(sys, 'orig_argv', [])[:1]): print('BREACH')",
    "inherited descriptors": "import os\nfor n in range(4, 4096):\n    try: os.fstat(n); print('BREACH', n)\n    except OSError: pass",
    "read every descriptor": "import os, select\nfor n in range(64):\n    try:\n        if select.select([n], [], [], 0)[0] and os.read(n, 9): print('BREACH', n)\n    except OSError: pass",
    "main module of the host": "import sys\nfor m in list(sys.modules):\n    if m.startswith('agent_envs'): print('BREACH', m)",
    "frames": "import sys\nf = sys._getframe()\nwhile f.f_back: f = f.f_back\nopen_ = f.f_builtins['open']\nprint('BREACH', open_('/etc/passwd').read(9))",
    "garbage": "import gc, socket\nif any(isinstance(o, socket.socket) for o in gc.get_objects()): print('BREACH')",
    "referrers": "import gc\nx = [o for o in gc.get_objects() if type(o).__name__ in ('Lane', '_Child')]\nfor o in x:\n    for n in vars(o).values():\n        if isinstance(n, int) and n > 4:\n            import os\n            try: os.write(n, b'x'); print('BREACH', n)\n            except OSError: pass",
    "subclasses": "c = [c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'Popen']\nc and c[0](['/bin/echo', 'BREACH'])",
    "original open": "import sys\ng = open.__globals__\nprint('BREACH', g['_real_open']('/etc/passwd').read(9))",
    "closure of open": "c = open.__closure__\nfor x in c:\n    try: print('BREACH', x.cell_contents('/etc/passwd').read(9))\n    except (TypeError, AttributeError): pass",
    "import by path": "import sys, importlib\nsys.path.insert(0, 'FOLDER')\nimportlib.invalidate_caches()\nimport planted; print('BREACH')",
    "import hook": "import sys, importlib.machinery as m\nprint('BREACH', m.SourceFileLoader('planted', 'FOLDER/planted.py').load_module())",
    "import of C": "import ctypes; ctypes.CDLL('libcrypt.so.1'); print('BREACH')",
    "zip import": "import zipimport; zipimport.zipimporter('FOLDER/z.zip'); print('BREACH')",
    "pip": "import ensurepip; ensurepip.bootstrap(); print('BREACH')",
    "execute memory": "import ctypes, mmap\nm = mmap.mmap(-1, 4096, prot=7)\nm.write(bytes.fromhex('53b814000000cd805bc3'))\nf = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\nprint('BREACH' if f() > 0 else '')",
    "segfault": "import ctypes; ctypes.string_at(0)",
    "abort": "import os; os.abort()",
    "bad instruction": "import ctypes, mmap\nm = mmap.mmap(-1, 4096, prot=7)\nm.write(b'\\x0f\\x0b')\nctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()",
    "bytecode": "def f(): pass\nf.__code__ = f.__code__.replace(co_code=b'\\xff\\xff' * 8)\nf()",
    "shared memory": "from multiprocessing import shared_memory as s; s.SharedMemory(create=True, size=4096); print('BREACH')",
    "own audit hook": "import sys; sys.addaudithook(lambda *a: None); sys.settrace(lambda *a: None); import os; os.fork(); print('BREACH')",
    "faulthandler": "import faulthandler; faulthandler.dump_traceback_later(1, file=open('FOLDER/f', 'w')); print('BREACH')",
    "pickle": "import pickle\nclass A:\n    def __reduce__(self): import os; return os.system, ('echo BREACH',)\nr = pickle.loads(pickle.dumps(A()))\nprint('BREACH' if r == 0 else r)",
    "pickle in the output": "import pickle, os, sys\nclass A:\n    def __reduce__(self): return os.system, ('touch FOLDER/hacked',)\nsys.stdout.buffer.write(pickle.dumps(A()))",
    "control characters": "print('\\x1b[2J\\x1b]0;x\\x07\\u202e\\0\\r')",
    "marshal in the output": "import marshal, os\nos.write(1, marshal.dumps((1, 2, 3)) * 99)",
    "not utf-8": "import os; os.write(1, bytes(range(256)) * 9)",
    "surrogates": "import sys; sys.stdout.reconfigure(errors='surrogatepass'); print('\\ud800')",
    "change math": "import math, builtins; math.pi = 3; builtins.len = lambda x: 5; math.floor = None",
    "change raw memory": "import ctypes\nctypes.c_long.from_address(id(3) + 24).value = 4",
    "change the libraries": "import json, random, re\njson.dumps = lambda *a: 'BREACHED'\nrandom.random = lambda: 7\nre.compile = None",
    "change the zygote's files": "import linecache, sys; linecache.cache.clear(); sys.path.clear(); sys.meta_path.clear(); sys.modules.clear()",
}

_FORGERY = {
    "status on every descriptor": "import os\nfor n in range(3, 256):\n    try: os.write(n, b'\\0')\n    except OSError: pass\nwhile True: pass",
    "unknown status": "import os\nfor b in range(256):\n    os.write(3, bytes([255 - b]))\n",
    "an answer": "import os, struct\nfor n in range(3, 64):\n    try: os.write(n, struct.pack('<BBIId', 0, 0, 6, 0, .1) + b'forged')\n    except OSError: pass\nos._exit(7)",
    "a long answer": "import os, struct\nfor n in range(3, 64):\n    try: os.write(n, struct.pack('<BBIId', 0, 0, 1 << 31, 1 << 31, .1))\n    except OSError: pass\nos._exit(7)",
    "a request to itself": "import os, struct\nfor n in range(3, 64):\n    try: os.write(n, struct.pack('<I', 1 << 31))\n    except OSError: pass",
    "steal requests": "import os\nwhile True: os.read(3, 9)",
    "close everything": "import os\nos.closerange(0, 256)",
    "close and go on": "import os\nos.closerange(0, 256)\nwhile True: pass",
    "close the channel": "import os\nos.close(3)",
    "exchange descriptors": "import os\nos.dup2(1, 3); os.dup2(3, 1); print('x')",
    "exit 0": "import os; print('x'); os._exit(0)",
    "exit 86": "import os; os._exit(86)",
    "exit 255": "import os; os._exit(255)",
    "raise SystemExit": "raise SystemExit(256)",
    "raise KeyboardInterrupt": "raise KeyboardInterrupt",
    "raise GeneratorExit": "raise GeneratorExit",
    "exception that cannot be shown": "class E(BaseException):\n    def __str__(self): raise self\n    __repr__ = __str__\nraise E",
    "exception with a loop": "e = ValueError(); e.__context__ = f = ValueError(); f.__context__ = e\nraise e",
    "exception of no class": "raise type('E' * 10**6, (Exception,), {})('x' * 10**6)",
    "value that cannot be shown": "class A:\n    def __repr__(self): raise SystemExit(0)\nA()",
    "value that exits": "class A:\n    def __repr__(self):\n        import os; os._exit(0)\nA()",
    "no stdout": "import sys; sys.stdout = None; sys.stderr = 5; 1 / 0",
    "closed stdout": "import sys; sys.stdout.close(); print('x')",
    "hostile stdout": "import sys\nclass O:\n    def write(self, x): raise MemoryError\n    def flush(self):\n        while True: pass\nsys.stdout = O()",
    "hostile exception hook": "import traceback, sys\ntraceback.TracebackException = None\n1 / 0",
    "no modules": "import sys\nsys.modules.clear()\n1 / 0",
}

ENDS = {
    **dict.fromkeys(("resources: loop", "resources: loop that catches", "resources: sleep", "resources: sleep in C",
                     "resources: one long call", "resources: one long sum", "resources: regex", "resources: lock",
                     "resources: loop in a destructor", "resources: loop at exit", "signals: block",
                     "signals: ignore", "forgery: close and go on", "forgery: hostile stdout"), "timeout"),
    **dict.fromkeys(("resources: memory at once", "resources: memory of an integer", "resources: memory of a range"),
                    "memory"),
    **dict.fromkeys(("resources: output", "resources: output of lines", "resources: raw output",
                     "resources: error output", "resources: both outputs"), "output-limit"),
    **dict.fromkeys(("processes: fork", "network: tcp", "files: write", "signals: host"), "refused"),
}  # fmt: skip
"""The statuses that some must end with."""


def programs() -> dict[str, str]:
    """Return every program by "family: name"."""
    families = {
        "reads": {
            f"{way} {name}": code.format(p=path) for way, code in _READS.items() for name, path in _PATHS.items()
        },
        "files": _FILES,
        "network": _NETWORK,
        "processes": _PROCESSES,
        "signals": _SIGNALS,
        "calls": {name: _CALL.format(arguments=", ".join(map(_argument, call))) for name, call in _CALLS.items()},
        "resources": _RESOURCES,
        "inside": _INSIDE,
        "forgery": _FORGERY,
    }
    return {f"{family}: {name}": code for family, found in families.items() for name, code in found.items()}


def _argument(value: int | str) -> str:
    return {"P": "HOST", "B": "buffer", "F": "b'SECRET'"}[value] if isinstance(value, str) else str(value)
