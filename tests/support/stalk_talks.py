"""Conversations with beanstalkd. stalk.talk says what is in a line; a command alone is of `a`."""

import re

OTHERS = r"sleep |drain$|\w+(?: slow)?(?:\*\d+)?: |\w (?:end|half|silent|settle|gets)$"


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
put 0 0 60 5|hello
put 5 0 60 0|
put 5 0 60 3|\x00\xff\n
use x
reserve
list-tube-used
watch x
ignore x
ignore default
ignore nowhere
reserve-with-timeout 0
delete #1
delete #1
release #2 7 0
release #2 7 0
peek #3
peek-ready
use default
peek-ready
peek-delayed
peek-buried
reserve
bury #3 9
peek-buried
kick 3
kick-job #3
stats-job #3
stats-job #2
stats-tube default
stats-tube x
stats
list-tubes
list-tubes-watched
reserve-job #3
touch #3
stats-job #3
pause-tube default 0
pause-tube nowhere 0
reserve-with-timeout 0
""",
    "numbers": "".join([
        tried("put", "", " ", " 0", " 0 0 0", " 0 0 0 ", " 0 0 0 x"),
        r"""
a*2: put 0 0 0 5x|hello
put -1 0 0 0
put +1 0 0 0
put 4294967295 0 0 0|
""",
        tried("put", " 4294967296 0 0 0", " 0 4294967296 0 0", " 0 0 4294967296 0",
        " 0 0 0 4294967296"),
        r"""
put 00000000000000000000001 0 0 0|
put    1    0    0    1|x
a*2: put 1 0 0 1 |x
a*2: put 1 0 0 1 |use z
put 0x1 0 0 0
put 99999999999999999999999999 0 0 0
a*2: put 1\t0 0 0|
put1 0 0 0
PUT 0 0 0 0
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
reserve-with-timeout
reserve-with-timeout 0 x
stats
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
list-tubes-watched
""",
        tried("ignore", "", " ", " -", " x y", " never", " default", " x", " x/y", " {200*w}"),
        r"""
list-tubes-watched
list-tubes
""",
        tried("pause-tube", "", " ", " default", " default ", " default x", " default 0",
        " default 0 ", " default 0 0", " default 4294967296",
              " nothere 1", "  default  0"),
        r"""
pause-tubedefault 0
""",
        tried("pause-tube", " -x 0", " {201*x} 0", " a,b 0"),
        asked("peek-x", "Quit", "bury", "release", "put", "quitter"),
    ]),
    # every kind of name is listed as it is, and hides no other
    "names": "".join(f"""
use {name}
put 0 0 60 1|x
b: list-tubes
b: stats-tube {name}
b: watch {name}
b: list-tubes-watched
b: pause-tube {name} 0
b: ignore {name}
b: stats-tube default
""" for name in NAMES) + "b: stats\n",
    "quit": r"""
quit
""",
    "bytes": r"""
use \xe4
\xff\xfe
put 0 0 1 2|\xff\xfe\xfd|
use \x01\x7f
""",
    "lines": r"""
use {218*a}
use {300*a}
use b
{222*x}
{5000*x}
use c
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
put 0 0 60 3|ab|
use x
a*2: put 0 0 60 3|abcd|use y
a*2: put 0 0 60 3|abc\r\r|use y
a*2: put 0 0 60 3|abc\n\n|use y
a*2: put 0 0 60 3|abc\nuse z|use y
a*2: put 0 0 60 3|abc\rx|use y
a*2: put 0 0 60 0|x|use y
a*2: put 0 0 60 0|xyz|use y
a*2: put 0 0 60 0|xyuse m|use y
a*2: put 0 0 60 3|abcdeuse m|use y
put 0 0 60 65535|{65535*z}
reserve-with-timeout 0
put 0 0 60 65536|{65536*z}
a*2: put 0 0 60 65536|{65536*z}|use q
a*2: put 0 0 60 65537 x|{65537*z}|use q
a*2: put 0 0 60 70000|{70000*z}XXuse q|use r
a*2: put 0 0 60 5 x|use q
put 0 0 60 6|\x00\x00\x00\xff\xfe\x80
put 0 0 60 4|\r\n\r\n
put 0 0 60 1|\n
put 0 0 60 1|\x00
use q
peek-ready
watch q
watch r
watch y
watch x
reserve-with-timeout 0
reserve-with-timeout 0
reserve-with-timeout 0
reserve-with-timeout 0
reserve-with-timeout 0
""",
    "order": r"""
put 10 0 60 1|a
put 5 0 60 1|b
use t
put 5 0 60 1|c
put 0 0 60 1|d
use default
put 5 0 60 1|e
put 1023 0 60 1|f
put 1024 0 60 1|g
put 1024 9000 60 1|h
put 1 10000 60 1|i
stats-tube default
watch t
reserve
reserve
reserve
reserve
release #3 5 0
release #2 5 0
stats
reserve
reserve
reserve
release #2 4294967295 0
reserve
reserve
reserve
reserve-with-timeout 0
release #1 7 100
stats-job #1
peek-delayed
reserve-job #9
stats-job #9
delete #8
kick 10
reserve
stats-tube t
stats-tube default
""",
    "kicks": r"""
put 1 0 60 1|a
put 2 0 60 1|b
put 3 5000 60 1|c
put 4 4000 60 1|d
reserve
reserve
bury #2 20
bury #1 30
bury #1 30
peek-buried
stats-tube default
kick 1
peek-buried
stats-job #2
kick 5
stats-job #1
peek-delayed
kick 1
peek-delayed
kick 0
kick 9
kick 9
peek-ready
reserve
bury #4 0
kick-job #4
kick-job #4
reserve-job #3
release #3 3 70
kick-job #3
stats-job #3
reserve-job #3
bury #3 3
reserve-job #3
stats-job #3
reserve-job #3
bury #3 5
delete #3
delete #3
use none
kick 5
peek-buried
stats
""",
    "others": r"""
put 1 0 60 1|a
b: put 2 0 60 1|b
reserve
b: delete #1
b: release #1 0 0
b: bury #1 0
b: touch #1
b: kick-job #1
b: reserve-job #1
b: peek #1
b: stats-job #1
touch #1
b: reserve
delete #2
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
b*0: list-tube-used
c: stats-tube default
c: stats-tube t
c: stats
c: put 0 0 60 1|x
a gets
c: stats-tube default
c: use t
c: put 0 0 60 1|y
b gets
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
put 0 0 2 1|a
b: put 9 1 60 1|b
b: peek-delayed
b: peek-ready
reserve
b: reserve-with-timeout 4
stats-job #1
b: reserve-with-timeout 4
b: stats-job #1
delete #1
touch #1
release #1 0 0
bury #1 0
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
b: put 0 0 4 1|e
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
peek-ready
b: stats-job #6
stats-tube default
b: delete #6
put 0 1 60 1|g
sleep 1.3
peek-delayed
stats-tube default
stats-job #7
peek-ready
stats
""",
    "looks": r"""
put 0 100 60 5|later
put 0 0 60 3|now
b: reserve
sleep 1.1
peek #1
sleep 1.1
stats-job #1
sleep 1.1
kick-job #1
sleep 1.1
delete #1
""",
    "pauses": r"""
put 0 0 60 1|a
put 0 1 60 1|b
pause-tube default 2
stats-tube default
reserve-with-timeout 0
peek-ready
reserve-job #1
release #1 0 0
use q
watch q
put 5 0 60 1|c
reserve
reserve-with-timeout 5
reserve-with-timeout 5
stats-tube default
pause-tube default 60
put 5 0 60 1|d
stats-tube default
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
put 0 0 1 1|a
reserve
put 0 0 60 1|b
reserve
reserve-with-timeout 0
touch #1
reserve-with-timeout 5
release #1 0 1
reserve-with-timeout 3
""",
    "lapsed": r"""
put 0 0 1 1|a
reserve
b: watch t
b: use t
b: put 0 0 1 1|b
b: reserve
b: watch x
b: ignore default
b: ignore t
sleep 1.4
b: reserve-with-timeout 0
reserve-with-timeout 0
delete #1
b: delete #2
stats-tube t
""",
    "paused": r"""
put 0 0 60 1|a
put 0 3000 60 1|b
pause-tube default 1
kick 5
reserve-with-timeout 0
reserve-with-timeout 3
reserve-with-timeout 0
""",
    "edges": r"""
put 0 0 60 1|a
reserve
delete #1
put 0 0 60 1|b
peek #1
peek #2
delete #2
list-tubes
use zz
list-tubes
watch zz
use default
ignore zz
list-tubes
stats-tube zz
put 4294967295 4294967295 4294967295 1|q
stats-job #3
reserve-job #3
stats-job #3
release #3 0 4294967295
stats-job #3
peek-delayed
kick 4294967295
reserve-with-timeout 4294967
""",
    "ignored": r"""
watch t
put 10 0 60 1|a
use t
put 5 0 60 1|b
reserve
ignore t
release #2 5 0
reserve-with-timeout 0
reserve-with-timeout 0
reserve-job #2
bury #2 3
kick 1
use default
kick 1
stats-tube t
""",
    "halves": r"""
put 0 0 60 1|a
reserve|reserve-with-timeout 10\c
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
put 0 0 60 1|a
drain
put 0 0 60 1|b
put 0 0 60 1|bc|
use x
put 0 0 60 0|
put 0 0 60 99999|{99999*x}
put 0 0 60 x
b: put 0 0 60 1|c
b: reserve
b: release #1 0 0
stats
b: reserve
b: delete #1
""",
}

TALKS = {name: re.sub(rf"(?m)^(?!{OTHERS})(?=.)", "a: ", script)
    for name, script in TALKS.items()}

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
