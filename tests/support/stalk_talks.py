"""Conversations with beanstalkd; stalk.talk says what is in a line."""


def asked(*commands):
    """The lines in which `a` sends these commands, one after the other."""
    return "".join(f"a: {command}\n" for command in commands)


def tried(command, *arguments):
    """As asked, of one command with different arguments behind it."""
    return asked(*(command + argument for argument in arguments))


# The names that a tube may have, but for `.` and `..` (DIFFERENT): each kind of character alone, in
# front, in the middle and at the end; and words that files of flatq have
NAMES = ("/", "//", "a/", "/a", "a/b", ".a", "a.", "...", "+", "+-", ";", "$", "_", "(", ")", "()",
    "0", "Z", "$(x)", "a;b", "a-", "a" * 200, "end", "whole",
         "tube", "open", "lock", "sums", "wait", "-", "-a", "default")

TALKS = {
    "first": r"""
a: put 0 0 60 5|hello
a: put 5 0 60 0|
a: put 5 0 60 3|\x00\xff\n
a: use x
a: reserve
a: list-tube-used
a: watch x
a: ignore x
a: ignore default
a: ignore nowhere
a: reserve-with-timeout 0
a: delete #1
a: delete #1
a: release #2 7 0
a: release #2 7 0
a: peek #3
a: peek-ready
a: use default
a: peek-ready
a: peek-delayed
a: peek-buried
a: reserve
a: bury #3 9
a: peek-buried
a: kick 3
a: kick-job #3
a: stats-job #3
a: stats-job #2
a: stats-tube default
a: stats-tube x
a: stats
a: list-tubes
a: list-tubes-watched
a: reserve-job #3
a: touch #3
a: stats-job #3
a: pause-tube default 0
a: pause-tube nowhere 0
a: reserve-with-timeout 0
""",
    "numbers": "".join([
        tried("put", "", " ", " 0", " 0 0 0", " 0 0 0 ", " 0 0 0 x"),
        r"""
a*2: put 0 0 0 5x|hello
a: put -1 0 0 0
a: put +1 0 0 0
a: put 4294967295 0 0 0|
""",
        tried("put", " 4294967296 0 0 0", " 0 4294967296 0 0", " 0 0 4294967296 0",
        " 0 0 0 4294967296"),
        r"""
a: put 00000000000000000000001 0 0 0|
a: put    1    0    0    1|x
a*2: put 1 0 0 1 |x
a*2: put 1 0 0 1 |use z
a: put 0x1 0 0 0
a: put 99999999999999999999999999 0 0 0
a*2: put 1\t0 0 0|
a: put1 0 0 0
a: PUT 0 0 0 0
""",
        tried("delete", "", " ", " x", " 0", " -1", " 1x", " 1 ", "  1", " 18446744073709551615",
        " 18446744073709551616",
              " 99999999999999999999999999"),
        tried("release", "", " #1", " 1", " 1 0", " 1 0 0 ", " 1 0 0 0", " 1 4294967296 0",
        " 1 0 4294967296", " 18446744073709551616 0 0"),
        tried("bury", " 1", " 1 ", " 1 x", " 1 4294967296", " 1 4", " 1 4 x", " x 4"),
        tried("touch", "", " x", " 99", " 99 1"),
        tried("kick", "", " ", " x", " -1", " +1", " 5x", " 5 x", " 99999999999999999999999"),
        tried("kick-job", "", " ", " x", " 99", " 99 1"),
        tried("peek", "", " ", " x", " 99", " 99 1"),
        tried("reserve-job", "", " ", " x", " 99", " 99 9"),
        tried("stats-job", "", " x", " 99", " 99 9"),
        tried("stats-tube", "", " ", " nothere", " -x", " a b"),
        r"""
a: reserve-with-timeout
a: reserve-with-timeout 0 x
a: stats
""",
    ]),
    "words": "".join([
        asked("", "x", "reserved", "reserve ", "reserve-", "reserve-w", "peek-ready ",
        "peek-readyx", "peek-delayed 1", "peek-buriedd",
              "stats ", "statsx", "stats-", "list-tubes ", "list-tubesx", "list-tubes-watched ",
              "list-tube-used ", "list-tube-usedx",
              "list-tube", "list"),
        tried("use", "", " ", "  x", " x ", " x y", " -x", " x-", " +/;.$_()", " {200*n}",
        " {201*n}", " a,b", ' a"b', " %41"),
        tried("watch", "", " ", " -", " x y", " {200*w}", " {201*w}", " x", " x", " x/y"),
        r"""
a: list-tubes-watched
""",
        tried("ignore", "", " ", " -", " x y", " never", " default", " x", " x/y", " {200*w}"),
        r"""
a: list-tubes-watched
a: list-tubes
""",
        tried("pause-tube", "", " ", " default", " default ", " default x", " default 0",
        " default 0 ", " default 0 0", " default 4294967296",
              " nothere 1", "  default  0"),
        r"""
a: pause-tubedefault 0
""",
        tried("pause-tube", " -x 0", " {201*x} 0", " a,b 0"),
        asked("peek-x", "Quit", "bury", "release", "put", "quitter"),
    ]),
    # every kind of name is listed as it is, and hides no other
    "names": "".join(f"""
a: use {name}
a: put 0 0 60 1|x
b: list-tubes
b: stats-tube {name}
b: watch {name}
b: list-tubes-watched
b: pause-tube {name} 0
b: ignore {name}
b: stats-tube default
""" for name in NAMES) + "b: stats\n",
    "quit": r"""
a: quit
""",
    "bytes": r"""
a: use \xe4
a: \xff\xfe
a: put 0 0 1 2|\xff\xfe\xfd|
a: use \x01\x7f
""",
    "lines": r"""
a: use {218*a}
a: use {300*a}
a: use b
a: {222*x}
a: {5000*x}
a: use c
a*2: use d|use e
a*3: use d|use e|use f
a*2: use d\nuse e|use g
a*2: \nuse e|use g
a*2: use d\ruse h|use i|{220*x}|use h
a slow: use j
a slow: put 0 0 60 10|0123456789
a*3: put 0 0 60 3|abc|reserve-with-timeout 0|list-tube-used
a*2: delete #1|delete #2
a*3: put 0 0 60 3|abc|put 0 0 60 4|\r\n\r\n|use k
a*2: {500*y}|use l
a*2: {221*x}\n|use l
a*2: {223*x}\n|use l
""",
    "bodies": r"""
a: put 0 0 60 3|ab|
a: use x
a*2: put 0 0 60 3|abcd|use y
a*2: put 0 0 60 3|abc\r\r|use y
a*2: put 0 0 60 3|abc\n\n|use y
a*2: put 0 0 60 3|abc\nuse z|use y
a*2: put 0 0 60 3|abc\rx|use y
a*2: put 0 0 60 0|x|use y
a*2: put 0 0 60 0|xyz|use y
a*2: put 0 0 60 0|xyuse m|use y
a*2: put 0 0 60 3|abcdeuse m|use y
a: put 0 0 60 65535|{65535*z}
a: reserve-with-timeout 0
a: put 0 0 60 65536|{65536*z}
a*2: put 0 0 60 65536|{65536*z}|use q
a*2: put 0 0 60 65537 x|{65537*z}|use q
a*2: put 0 0 60 70000|{70000*z}XXuse q|use r
a*2: put 0 0 60 5 x|use q
a: put 0 0 60 6|\x00\x00\x00\xff\xfe\x80
a: put 0 0 60 4|\r\n\r\n
a: put 0 0 60 1|\n
a: put 0 0 60 1|\x00
a: use q
a: peek-ready
a: watch q
a: watch r
a: watch y
a: watch x
a: reserve-with-timeout 0
a: reserve-with-timeout 0
a: reserve-with-timeout 0
a: reserve-with-timeout 0
a: reserve-with-timeout 0
""",
    "order": r"""
a: put 10 0 60 1|a
a: put 5 0 60 1|b
a: use t
a: put 5 0 60 1|c
a: put 0 0 60 1|d
a: use default
a: put 5 0 60 1|e
a: put 1023 0 60 1|f
a: put 1024 0 60 1|g
a: put 1024 9000 60 1|h
a: put 1 10000 60 1|i
a: stats-tube default
a: watch t
a: reserve
a: reserve
a: reserve
a: reserve
a: release #3 5 0
a: release #2 5 0
a: stats
a: reserve
a: reserve
a: reserve
a: release #2 4294967295 0
a: reserve
a: reserve
a: reserve
a: reserve-with-timeout 0
a: release #1 7 100
a: stats-job #1
a: peek-delayed
a: reserve-job #9
a: stats-job #9
a: delete #8
a: kick 10
a: reserve
a: stats-tube t
a: stats-tube default
""",
    "kicks": r"""
a: put 1 0 60 1|a
a: put 2 0 60 1|b
a: put 3 5000 60 1|c
a: put 4 4000 60 1|d
a: reserve
a: reserve
a: bury #2 20
a: bury #1 30
a: bury #1 30
a: peek-buried
a: stats-tube default
a: kick 1
a: peek-buried
a: stats-job #2
a: kick 5
a: stats-job #1
a: peek-delayed
a: kick 1
a: peek-delayed
a: kick 0
a: kick 9
a: kick 9
a: peek-ready
a: reserve
a: bury #4 0
a: kick-job #4
a: kick-job #4
a: reserve-job #3
a: release #3 3 70
a: kick-job #3
a: stats-job #3
a: reserve-job #3
a: bury #3 3
a: reserve-job #3
a: stats-job #3
a: reserve-job #3
a: bury #3 5
a: delete #3
a: delete #3
a: use none
a: kick 5
a: peek-buried
a: stats
""",
    "others": r"""
a: put 1 0 60 1|a
b: put 2 0 60 1|b
a: reserve
b: delete #1
b: release #1 0 0
b: bury #1 0
b: touch #1
b: kick-job #1
b: reserve-job #1
b: peek #1
b: stats-job #1
a: touch #1
b: reserve
a: delete #2
b: delete #2
b: watch w
b: use u
c: stats-tube u
c: stats-tube w
c: stats-tube default
c: stats
c: list-tubes
a end
c: stats-job #1
c: reserve-with-timeout 0
b end
c: list-tubes
c: stats-tube u
c: stats
d: use u
d: ignore default
d: watch zz
d: list-tubes
d: stats
c: bury #1 3
d: delete #1
d: list-tubes
""",
    "waiting": r"""
a*0: reserve
a settle
b*3: watch t|watch s|ignore default
b*0: reserve-with-timeout 30
b settle
c: stats-tube default
c: stats-tube t
c: stats
c: put 0 0 60 1|x
a gets
c: stats-tube default
c: use t
c: put 0 0 60 1|y
b gets
c: stats
b*0: reserve|use z|list-tube-used|delete #2
b silent
c: stats-tube t
c: put 3 0 60 5|12345
b gets
b gets
b gets
b gets
c*0: reserve-with-timeout 1
c gets
c*2: reserve-with-timeout 1|use r
a*0: reserve
a settle
a end
b: stats-tube default
b*0: reserve
b half
b gets
b gets
c: stats-job #1
c: stats-tube default
c: stats
d*0: watch never|ignore default|reserve
d gets
d gets
d settle
e: stats-tube never
e: list-tubes
d end
e: list-tubes
""",
    "times": r"""
a: put 0 0 2 1|a
b: put 9 1 60 1|b
b: peek-delayed
b: peek-ready
a: reserve
b: reserve-with-timeout 4
a: stats-job #1
b: reserve-with-timeout 4
b: stats-job #1
a: delete #1
a: touch #1
a: release #1 0 0
a: bury #1 0
b*2: delete #1|delete #2
b: stats
b: put 0 0 1 1|c
b: reserve
b: reserve
b: reserve-with-timeout 0
b: put 0 0 60 1|d
b: reserve-with-timeout 0
b: touch #3
b: delete #3
b: put 0 0 3 1|e
b: reserve
b: reserve
b: reserve-with-timeout 0
b: touch #5
b: stats-job #5
b: reserve-with-timeout 0
b: delete #5
c: put 0 0 1 1|f
c: reserve
sleep 1.4
a: peek-ready
b: stats-job #6
a: stats-tube default
b: delete #6
a: put 0 1 60 1|g
sleep 1.3
a: peek-delayed
a: stats-tube default
a: stats-job #7
a: peek-ready
a: stats
""",
    "looks": r"""
a: put 0 100 60 5|later
a: put 0 0 60 3|now
b: reserve
sleep 1.1
a: peek #1
sleep 1.1
a: stats-job #1
sleep 1.1
a: kick-job #1
sleep 1.1
a: delete #1
""",
    "pauses": r"""
a: put 0 0 60 1|a
a: put 0 1 60 1|b
a: pause-tube default 2
a: stats-tube default
a: reserve-with-timeout 0
a: peek-ready
a: reserve-job #1
a: release #1 0 0
a: use q
a: watch q
a: put 5 0 60 1|c
a: reserve
a: reserve-with-timeout 5
a: reserve-with-timeout 5
a: stats-tube default
a: pause-tube default 60
a: put 5 0 60 1|d
a: stats-tube default
a*0: watch default|reserve
a gets
b: put 5 0 60 1|e
a gets
a*0: reserve
a silent
b: pause-tube default 0
a gets
b: pause-tube q 0
b: stats-tube default
b: stats
""",
    "margins": r"""
a: put 0 0 1 1|a
a: reserve
a: put 0 0 60 1|b
a: reserve
a: reserve-with-timeout 0
a: touch #1
a: reserve-with-timeout 5
a: release #1 0 1
a: reserve-with-timeout 3
""",
    "lapsed": r"""
a: put 0 0 1 1|a
a: reserve
b: watch t
b: use t
b: put 0 0 1 1|b
b: reserve
b: watch x
b: ignore default
b: ignore t
sleep 1.4
b: reserve-with-timeout 0
a: reserve-with-timeout 0
a: delete #1
b: delete #2
a: stats-tube t
""",
    "paused": r"""
a: put 0 0 60 1|a
a: put 0 3000 60 1|b
a: pause-tube default 1
a: kick 5
a: reserve-with-timeout 0
a: reserve-with-timeout 3
a: reserve-with-timeout 0
""",
    "edges": r"""
a: put 0 0 60 1|a
a: reserve
a: delete #1
a: put 0 0 60 1|b
a: peek #1
a: peek #2
a: delete #2
a: list-tubes
a: use zz
a: list-tubes
a: watch zz
a: use default
a: ignore zz
a: list-tubes
a: stats-tube zz
a: put 4294967295 4294967295 4294967295 1|q
a: stats-job #3
a: reserve-job #3
a: stats-job #3
a: release #3 0 4294967295
a: stats-job #3
a: peek-delayed
a: kick 4294967295
a: reserve-with-timeout 4294967
""",
    "ignored": r"""
a: watch t
a: put 10 0 60 1|a
a: use t
a: put 5 0 60 1|b
a: reserve
a: ignore t
a: release #2 5 0
a: reserve-with-timeout 0
a: reserve-with-timeout 0
a: reserve-job #2
a: bury #2 3
a: kick 1
a: use default
a: kick 1
a: stats-tube t
""",
    "halves": r"""
a: put 0 0 60 1|a
a: reserve|reserve-with-timeout 10\c
a half
a gets
b: reserve-with-timeout 2
c*0: reserve-with-timeout 10
c settle
c half
c gets
e: put 0 0 60 1|a
e*2: use t|quit|use x
g: use t
g*0: put 0 0 60 9|abc\c
g half
g gets
h: use t
h*0: put 0 0 60 3|abc\c
h half
h gets
b: stats-tube t
""",
    "drain": r"""
a: put 0 0 60 1|a
drain
a: put 0 0 60 1|b
a: put 0 0 60 1|bc|
a: use x
a: put 0 0 60 0|
a: put 0 0 60 99999|{99999*x}
a: put 0 0 60 x
b: put 0 0 60 1|c
b: reserve
b: release #1 0 0
a: stats
b: reserve
b: delete #1
""",
}

# where time passes
LONG = ("times", "looks", "pauses", "margins", "lapsed", "paused")

# (the conversation, what 1.12 says, what ours says, why)
DIFFERENT = [
    ("a: reserve-with-timeout x", b"TIMED_OUT\r\n", b"BAD_FORMAT\r\n",
    "1.12 reads any text as a number; later ones refuse what is none, as ours does"),
    ("a: reserve-with-timeout 4294967296", None, b"BAD_FORMAT\r\n",
    "likewise: from 2,147,483,648 on"),
    ("a: use .", b"USING .\r\n", b"BAD_FORMAT\r\n",
    "a name that reads as a path upward is no queue's"),
    ("a: use ..", b"USING ..\r\n", b"BAD_FORMAT\r\n", "likewise"),
    ("a: watch a/../b", b"WATCHING 2\r\n", b"BAD_FORMAT\r\n", "likewise"),
    ("a: use {219*a}", None, b"BAD_FORMAT\r\n",
    "beanstalkd loses a CRLF that lies across its 224 bytes, and takes the next line for the rest; "
    "ours refuses the line at once"),
    ("a: {224*y}\\r{100*z}", None, b"BAD_FORMAT\r\n",
    "likewise of a CRLF behind a CR that stands alone"),
    ("a: use\\x00 x", b"BAD_FORMAT\r\n", b"USING x\r\n", "sh's read drops a NUL"),
]
